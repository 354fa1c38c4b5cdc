/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A buffer that a script keeps stays what it was, costs no copy where none is
 * needed, and has no effect on any reply; one that it does not keep is the
 * pool's again.
 */
#include "bridge_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../log.h"
#include "../python/bridge.h"

#define SIZE 65536U
#define OTHERS 20

static void *handle;
static char keep[32];

static void
begin (const char *way)
{
    snprintf (keep, sizeof keep, "keep=%s", way);
    log_open (LOG_TO_NULL, NULL);
    start ("lifetime.py", keep);
    worker_begin ("worker");
    handle = open_export ();
}

static void
end (void)
{
    python_run ("forget ()");
    backend->close (handle);
    worker_end ();
    finish ();
}

/* Other requests, which a dangling view would show. */
static void
run_others (void)
{
    python_run ("way = 'nothing'");
    for (int i = 0; i < OTHERS; i++)
        write_at (handle, 0, SIZE, 'B' + i, NULL);
}

static void
check_pwrite (const char *way)
{
    uint8_t *address, *next;
    char again[64];

    begin (way);
    write_at (handle, 0, SIZE, 'A', &address);
    run_others ();
    write_at (handle, 0, SIZE, 'Z', &next);
    CHECK (next != address);
    snprintf (again, sizeof again, "way = '%s'", way);
    python_run (again);
    CHECK_EQUAL (python_value ("shows (65)"), 1);
    end ();
}

static void
check_pread (const char *way)
{
    struct buffer *reply;
    bool fails = strcmp (way, "raised") == 0;

    begin (way);
    int error = read_at (handle, 0, SIZE, &reply);
    CHECK_EQUAL (error != 0, fails);
    if (!fails) {
        for (size_t i = 0; i < SIZE; i++)
            CHECK_EQUAL (reply->data[i], 'A');
    }
    /* What the script does to its view now is not seen in the reply. */
    python_run ("for v in kept:\n"
                "    if type (v) is memoryview and not v.readonly:\n"
                "        v.cast ('B')[:] = b'X' * v.nbytes\n");
    if (!fails) {
        for (size_t i = 0; i < SIZE; i++)
            CHECK_EQUAL (reply->data[i], 'A');
    }
    run_others ();
    buffer_put (reply);
    end ();
}

#define WAYS(X)                                                               \
    X (view)                                                                  \
    X (slice)                                                                 \
    X (cast)                                                                  \
    X (toreadonly)                                                            \
    X (obj)                                                                   \
    X (iterator)                                                              \
    X (exception)                                                             \
    X (raised)                                                                \
    X (cycle)                                                                 \
    X (generator)                                                             \
    X (closure)                                                               \
    X (thread)

#define TESTS(way)                                                            \
    static void test_pwrite_##way (void)                                      \
    {                                                                         \
        check_pwrite (#way);                                                  \
    }                                                                         \
    static void test_pread_##way (void)                                       \
    {                                                                         \
        check_pread (#way);                                                   \
    }
WAYS (TESTS)

/* The view is the buffer itself, and the buffer is used again at once. */
static void
test_no_copy (void)
{
    uint8_t *first, *second;

    begin ("nothing");
    python_run ("import ctypes\n"
                "def address (v):\n"
                "    c = (ctypes.c_char * len (v)).from_buffer (v)\n"
                "    return ctypes.addressof (c)\n"
                "seen = []\n"
                "def pread (h, buf, offset, flags):\n"
                "    seen.append (address (buf))\n");
    write_at (handle, 0, SIZE, 'A', &first);
    write_at (handle, 0, SIZE, 'A', &second);
    CHECK (first == second);

    struct buffer *reply;
    CHECK_EQUAL (read_at (handle, 0, SIZE, &reply), 0);
    CHECK_EQUAL (python_value ("seen[0]"), (long) reply->data);
    buffer_put (reply);
    end ();
}

/* A view kept by pwrite is the very memory: nothing was copied. */
static void
test_kept_without_copy (void)
{
    uint8_t *address;
    Py_buffer view;

    begin ("view");
    write_at (handle, 0, SIZE, 'A', &address);
    run_others ();
    PyObject *kept = PyDict_GetItemString (script_globals, "kept");
    PyObject *first = PyList_GetItem (kept, 0);
    CHECK (PyObject_GetBuffer (first, &view, PyBUF_SIMPLE) == 0);
    CHECK (view.buf == address);
    CHECK_EQUAL (view.len, SIZE);
    PyBuffer_Release (&view);
    end ();
}

/* A pread that fills a part only gives zeroes for the rest. */
static void
test_unfilled (void)
{
    struct buffer *reply;

    begin ("nothing");
    write_at (handle, 0, SIZE, 'S', NULL);
    python_run ("def pread (h, buf, offset, flags):\n"
                "    buf[:10] = b'0123456789'\n");
    CHECK_EQUAL (read_at (handle, 0, SIZE, &reply), 0);
    CHECK (memcmp (reply->data, "0123456789", 10) == 0);
    for (size_t i = 10; i < SIZE; i++)
        CHECK_EQUAL (reply->data[i], 0);
    buffer_put (reply);
    end ();
}

/* Made, dropped and made again: a thousand kept views leave nothing. */
static void
test_many_kept (void)
{
    begin ("view");
    for (int i = 0; i < 1000; i++) {
        write_at (handle, 0, 4096, 'A', NULL);
        if (i % 10 == 9)
            python_run ("forget ()");
    }
    end ();
}

const struct test lifetime_tests[] = {
#define ENTRIES(way)                                                          \
    { "kept-pwrite-" #way, test_pwrite_##way },                               \
    { "kept-pread-" #way, test_pread_##way },
    WAYS (ENTRIES)
    { "no-copy", test_no_copy },
    { "kept-without-copy", test_kept_without_copy },
    { "unfilled", test_unfilled },
    { "many-kept", test_many_kept },
    { NULL, NULL },
};
