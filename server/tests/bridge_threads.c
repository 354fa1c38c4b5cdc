/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads as a script sees them.
 */
#include "bridge_test.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../log.h"
#include "../python/bridge.h"

static void *handle;

static void *
three_calls (void *name)
{
    struct buffer *buf;

    worker_begin (name);
    for (int i = 1; i <= 3; i++) {
        CHECK_EQUAL (read_at (handle, 0, 512, &buf), 0);
        CHECK_EQUAL (buf->data[0], i); /* threading.local */
        CHECK_EQUAL (buf->data[1], i); /* contextvars */
        buffer_put (buf);
        backend->leave ();
        backend->enter ();
    }
    worker_end ();
    return NULL;
}

static void
run_thread (void *(*function) (void *), const char *name)
{
    pthread_t thread;

    CHECK (pthread_create (&thread, NULL, function, (void *) name) == 0);
    pthread_join (thread, NULL);
}

/* A worker keeps its state from one callback to the next, the next worker
 * (often with the same thread number) begins afresh, and both are called what
 * the server calls them. */
static void
test_local (void)
{
    start ("threads.py", NULL);
    worker_begin ("main");
    handle = open_export ();
    backend->leave ();
    run_thread (three_calls, "worker-1");
    run_thread (three_calls, "worker-2");
    backend->enter ();
    CHECK_EQUAL (python_value ("names == ['worker-1'] * 3 + ['worker-2'] * 3"),
                 1);
    /* Nothing of them is left in the module threading. */
    CHECK_EQUAL (python_value ("[t.name for t in threading.enumerate ()"
                               " if t.name.startswith ('worker')] == []"),
                 1);
    CHECK_EQUAL (python_value ("threading.main_thread ()"
                               " is threading.current_thread ()"),
                 1);
    backend->close (handle);
    worker_end ();
    finish ();
}

static void
test_background (void)
{
    start ("threads.py", NULL);
    long before = 0, after = 0;

    for (int i = 0; i < 1000 && after < before + 5; i++) {
        nanosleep (&(struct timespec) { .tv_nsec = 5000000 }, NULL);
        SCOPED_GIL ();
        after = python_value ("ticks");
        if (before == 0)
            before = after;
    }
    CHECK (after >= before + 5);
    finish ();
}

/* The child ends in the callback's return, with a line that says so. */
static void
test_fork_returns (void)
{
    int out[2];
    char line[512] = "";
    pid_t me = getpid ();

    start ("threads.py", NULL);
    CHECK (pipe (out) == 0);
    dup2 (out[1], STDERR_FILENO);
    worker_begin ("main");
    handle = open_export ();
    CHECK_EQUAL (request (handle, backend->flush, &(struct io) { 0 }), 0);
    CHECK_EQUAL (getpid (), me);
    CHECK (read (out[0], line, sizeof line - 1) > 0);
    CHECK (strstr (line, "flush") && strstr (line, "os.fork"));
    backend->close (handle);
    worker_end ();
    finish ();
}

/* A daemon's fork runs the functions of os.register_at_fork; afterwards the
 * child is the server and works. */
static void
test_daemon (void)
{
    int status;

    start_until_ready ("threads.py", NULL);
    CHECK (backend->before_fork () == 0);
    pid_t child = fork ();
    if (child == 0) {
        CHECK (backend->after_fork () == 0);
        worker_begin ("main");
        CHECK_EQUAL (python_value ("forks == ['before', 'child']"), 1);
        handle = open_export ();
        CHECK_EQUAL (read_at (handle, 0, 512, NULL), 0);
        backend->close (handle);
        worker_end ();
        finish ();
        _exit (0);
    }
    CHECK (waitpid (child, &status, 0) == child);
    CHECK_EQUAL (status, 0);
}

const struct test thread_tests[] = {
    { "thread-local", test_local },
    { "background-thread", test_background },
    { "fork-that-returns", test_fork_returns },
    { "daemon-fork", test_daemon },
    { NULL, NULL },
};
