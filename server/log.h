/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the server tells its operator.  Lines have nbdkit's form,
 * "nbdspecd: BACKEND[CONNECTION]: error: TEXT"; they are written whole, never
 * with a Python lock held while the other end is slow, and errno is preserved.
 */
#ifndef NBDSPEC_LOG_H
#define NBDSPEC_LOG_H

#include <stdarg.h>
#include <stdbool.h>

#define PRINTF_LIKE(f, a) __attribute__ ((format (printf, f, a)))

/* Set once, by the command line. */
extern bool log_verbose;

/* The program's name in front of each line (nbdkit's --name changes it). */
void log_set_name (const char *name);

/* Names what this thread works for: back end and connection number (0: none).
 * NAME is not copied. */
void log_set_context (const char *name, unsigned connection);

/* An error, in one line or several; always shown, goes where --log says. */
void log_error (const char *fmt, ...) PRINTF_LIKE (1, 2);

/* An error that a client can cause as often as it likes: at most a few lines
 * a second per process are shown, the rest are counted and the count shown. */
void log_client_error (const char *fmt, ...) PRINTF_LIKE (1, 2);

/* Shown on stderr with -v only. */
void log_debug_ (const char *fmt, ...) PRINTF_LIKE (1, 2);
#define log_debug(...)                                                        \
    do {                                                                      \
        if (__builtin_expect (log_verbose, 0))                                \
            log_debug_ (__VA_ARGS__);                                         \
    } while (0)

/* A start-up error: logs it and ends the process with status 1. */
void log_fatal (const char *fmt, ...) PRINTF_LIKE (1, 2)
    __attribute__ ((noreturn));

#endif
