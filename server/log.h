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
const char *log_name (void);

/* Names what this thread works for: back end and connection number (0: none).
 * NAME is not copied. */
void log_set_context (const char *name, unsigned connection);

/* An error, in one line or several; always shown, goes where --log says. */
void log_error (const char *fmt, ...) PRINTF_LIKE (1, 2);

/* Goes where errors go, for what does no harm by itself. */
void log_warning (const char *fmt, ...) PRINTF_LIKE (1, 2);

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

/* Where errors go.  Default: stderr, and syslog once daemonised. */
enum log_sink {
    LOG_TO_DEFAULT,
    LOG_TO_STDERR,
    LOG_TO_SYSLOG,
    LOG_TO_NULL,
    LOG_TO_FILE
};

/* Called once by the command line.  PATH is LOG_TO_FILE's.  -1 with errno set:
 * the file cannot be opened. */
int log_open (enum log_sink sink, const char *path);

/* The server is ready.  Until then errors also go to stderr, whatever --log
 * says. */
void log_started (void);

/* The process leaves its terminal.  With LOG_TO_DEFAULT errors go to syslog;
 * stderr is kept open only for -v and for who asked for it with --log. */
void log_detach (void);

/* Waits until lines that stderr was too slow to take are written, but not for
 * ever.  Also happens at exit. */
void log_flush (void);

/* A start-up error: logs it (always on stderr) and ends the process with
 * status 1. */
void log_fatal (const char *fmt, ...) PRINTF_LIKE (1, 2)
    __attribute__ ((noreturn));

#endif
