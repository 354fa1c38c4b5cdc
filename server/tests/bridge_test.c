/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The frame of the bridge's tests.
 *
 *   bridge-test --list          the names
 *   bridge-test NAME [CALLS]    runs one
 *   bridge-test --bench         measures what the bridge costs
 */
#include "bridge_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../config.h"
#include "../log.h"
#include "../quit.h"
#include "../python/bridge.h"

#define SCRIPTS "server/tests/scripts/"

long test_calls = 2000;

static const struct test *const groups[]
    = { slope_tests, lifetime_tests, thread_tests, final_tests,
          pace_tests };

void
test_failed (const char *file, int line, const char *what)
{
    fprintf (stderr, "%s:%d: failed: %s\n", file, line, what);
    _exit (1);
}

void
test_equal (const char *file, int line, const char *what, long long got,
            long long expected)
{
    if (got == expected)
        return;
    fprintf (stderr, "%s:%d: %s is %lld, expected %lld\n", file, line, what,
             got, expected);
    _exit (1);
}

void
start_until_ready (const char *script, const char *parameter)
{
    static char path[4096];
    static char *words[3];
    int n = 1;

    snprintf (path, sizeof path, SCRIPTS "%s", script);
    words[0] = path;
    if (parameter)
        words[n++] = strdup (parameter);
    backend = &backend_python;
    CHECK (backend->config (n, words) == 0);
    CHECK (backend->config_complete () == 0);
    thread_model = (enum thread_model) backend->thread_model ();
    CHECK (backend->get_ready () == 0);
}

void
start (const char *script, const char *parameter)
{
    start_until_ready (script, parameter);
    CHECK (backend->after_fork () == 0);
}

void
finish (void)
{
    backend->cleanup ();
    backend->unload ();
    buffer_pool_free ();
}

void
worker_begin (const char *name)
{
    backend->thread_start (name);
    backend->enter ();
}

void
worker_end (void)
{
    backend->leave ();
    backend->thread_end ();
}

void *
open_export (void)
{
    void *handle;

    CHECK (backend->open (false, false, "", &handle) == 0);
    return handle;
}

int
request (void *handle, int (*callback) (void *, struct io *), struct io *io)
{
    int error = callback (handle, io);

    free (io->error_text);
    io->error_text = NULL;
    return error;
}

int
read_at (void *handle, uint64_t offset, uint64_t count, struct buffer **buf)
{
    struct io io = { .offset = offset, .count = count };

    io.buf = buffer_get ((size_t) count);
    CHECK (io.buf != NULL);
    int error = request (handle, backend->pread, &io);
    if (buf)
        *buf = io.buf;
    else
        buffer_put (io.buf);
    return error;
}

int
write_at (void *handle, uint64_t offset, uint64_t count, int byte,
          uint8_t **address)
{
    struct io io = { .offset = offset, .count = count };

    io.buf = buffer_get ((size_t) count);
    CHECK (io.buf != NULL);
    memset (io.buf->data, byte, (size_t) count);
    if (address)
        *address = io.buf->data;
    int error = request (handle, backend->pwrite, &io);
    buffer_put (io.buf);
    return error;
}

void
python_run (const char *code)
{
    PyObject *result = PyRun_String (code, Py_file_input, script_globals,
                                     script_globals);
    if (!result) {
        PyErr_Print ();
        test_failed (__FILE__, __LINE__, code);
    }
    Py_DECREF (result);
}

long
python_value (const char *expression)
{
    PyObject *result = PyRun_String (expression, Py_eval_input, script_globals,
                                     script_globals);
    long value = result ? PyLong_AsLong (result) : -1;

    if (PyErr_Occurred ()) {
        PyErr_Print ();
        test_failed (__FILE__, __LINE__, expression);
    }
    Py_DECREF (result);
    return value;
}

int
main (int argc, char **argv)
{
    bool list = argc == 2 && strcmp (argv[1], "--list") == 0;

    if (argc < 2 || argc > 3) {
        fprintf (stderr,
                 "usage: bridge-test --list | --bench | NAME [CALLS]\n");
        return 2;
    }
    if (argc == 3)
        test_calls = atol (argv[2]);
    CHECK (quit_init () == 0);
    config.threads = 16;
    if (strcmp (argv[1], "--bench") == 0) {
        bench ();
        return 0;
    }
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        for (const struct test *t = groups[g]; t->name; t++) {
            if (list)
                puts (t->name);
            else if (strcmp (t->name, argv[1]) == 0) {
                t->run ();
                return 0;
            }
        }
    }
    if (!list)
        fprintf (stderr, "bridge-test: no test is named %s\n", argv[1]);
    return list ? 0 : 2;
}
