/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tests of the Python bridge that call it as the engine does, for what no
 * client can see: reference counts, lifetimes, threads, finalisation.
 *
 * One program, with a table of named functions; test_bridge.py runs each in a
 * process of its own, so that a crash is one failed test.
 */
#ifndef NBDSPEC_BRIDGE_TEST_H
#define NBDSPEC_BRIDGE_TEST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "../backend.h"

struct test {
    const char *name;
    void (*run) (void);
};

extern const struct test slope_tests[], lifetime_tests[], thread_tests[],
    final_tests[], pace_tests[];

/* bridge_bench.c: prints what the bridge costs. */
void bench (void);

/* Ends the process with status 1 and a message. */
#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition))                                                     \
            test_failed (__FILE__, __LINE__, #condition);                     \
    } while (0)
#define CHECK_EQUAL(got, expected)                                            \
    test_equal (__FILE__, __LINE__, #got, (long long) (got),                  \
                (long long) (expected))
void test_failed (const char *file, int line, const char *what)
    __attribute__ ((noreturn));
void test_equal (const char *file, int line, const char *what, long long got,
                 long long expected);

/* How many calls a slope is measured over. */
extern long test_calls;

/* Starts the bridge with server/tests/scripts/SCRIPT and one parameter, or
 * NULL, up to after_fork, or up to what comes before. */
void start (const char *script, const char *parameter);
void start_until_ready (const char *script, const char *parameter);
/* cleanup and unload. */
void finish (void);

/* This thread becomes a worker, and leaves that. */
void worker_begin (const char *name);
void worker_end (void);

void *open_export (void);

/* Requests.  The buffer, if wanted, is a new one and the caller's. */
int request (void *handle, int (*callback) (void *, struct io *),
             struct io *io);
int read_at (void *handle, uint64_t offset, uint64_t count,
             struct buffer **buf);
int write_at (void *handle, uint64_t offset, uint64_t count, int byte,
              uint8_t **address);

/* Runs Python code in the script's globals; an exception fails the test.  The
 * second form gives the value of an expression. */
void python_run (const char *code);
long python_value (const char *expression);

#endif
