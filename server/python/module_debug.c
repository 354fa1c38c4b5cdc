/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module's functions for messages.
 */
#include "bridge.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../cmdline.h"
#include "../log.h"

#define ROW 16U
#define ROW_TEXT (3 * ROW + 4 + ROW + 2)

PyObject *
module_debug (PyObject *self, PyObject *args)
{
    const char *message;

    (void) self;
    if (!PyArg_ParseTuple (args, "s:debug", &message))
        return NULL;
    log_debug ("%s", message);
    Py_RETURN_NONE;
}

/* log_error's line; and for the client, if the request fails. */
PyObject *
module_error (PyObject *self, PyObject *args)
{
    PyObject *message;

    (void) self;
    if (!PyArg_ParseTuple (args, "U:error", &message))
        return NULL;
    char *text = text_of (message);
    if (!text)
        return PyErr_NoMemory ();
    log_error ("%s: %s", script_name, text);
    free (call_state.text);
    call_state.text = text;
    Py_RETURN_NONE;
}

PyObject *
module_name (PyObject *self, PyObject *unused)
{
    (void) self;
    (void) unused;
    return PyUnicode_DecodeFSDefault (log_name ());
}

PyObject *
module_timestamp (PyObject *self, PyObject *unused)
{
    struct timespec now;
    struct tm tm;
    char day[32];

    (void) self;
    (void) unused;
    clock_gettime (CLOCK_REALTIME, &now);
    if (!gmtime_r (&now.tv_sec, &tm)
        || strftime (day, sizeof day, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        return PyUnicode_FromString ("!");
    return PyUnicode_FromFormat ("%s.%06ld", day, now.tv_nsec / 1000);
}

/* One row of a dump: the bytes of BUF that lie in the ROW bytes from ROW_START,
 * where BUF[0] has the offset START.  Bytes that are the same in SAME (if any)
 * stay blank. */
static void
format_row (char *out, const uint8_t *buf, const uint8_t *same, size_t len,
            uint64_t start, uint64_t row_start)
{
    char *hex = out, *text = out + 3 * ROW + 2;

    memset (out, ' ', ROW_TEXT);
    text[0] = text[ROW + 1] = '|';
    text[ROW + 2] = '\0';
    for (size_t i = 0; i < ROW; i++) {
        uint64_t offset = row_start + i;
        bool there = offset >= start && offset - start < len;
        size_t at = (size_t) (offset - start);
        char *place = hex + 3 * i + (i >= ROW / 2);

        if (!there || (same && same[at] == buf[at]))
            continue;
        place[0] = "0123456789abcdef"[buf[at] >> 4];
        place[1] = "0123456789abcdef"[buf[at] & 15];
        text[1 + i] = isprint (buf[at]) && buf[at] < 128 ? (char) buf[at]
                                                         : '.';
    }
}

/* All rows of A; where B (if any) differs, A's and B's. */
static void
dump (const uint8_t *a, const uint8_t *b, size_t len, const char *prefix,
      uint64_t start)
{
    char row[ROW_TEXT + 1];

    for (uint64_t at = start - start % ROW; len > 0; at += ROW) {
        size_t first = at > start ? (size_t) (at - start) : 0;
        if (first >= len)
            break;
        size_t n = (size_t) (at + ROW - start) - first;
        if (n > len - first)
            n = len - first;
        bool differs = b && memcmp (a + first, b + first, n) != 0;

        format_row (row, a, NULL, len, start, at);
        log_debug ("%s%s%08llx: %s", prefix, !b ? "" : differs ? "-" : " ",
                   (unsigned long long) at, row);
        if (differs) {
            format_row (row, b, a, len, start, at);
            log_debug ("%s+%08llx: %s", prefix, (unsigned long long) at, row);
        }
        if (at > UINT64_MAX - ROW)
            break;
    }
}

PyObject *
module_debug_hexdump (PyObject *self, PyObject *args)
{
    Py_buffer buf;
    const char *prefix = NULL;
    unsigned long long start = 0;

    (void) self;
    if (!PyArg_ParseTuple (args, "y*|zK:debug_hexdump", &buf, &prefix, &start))
        return NULL;
    if (log_verbose)
        dump (buf.buf, NULL, (size_t) buf.len, prefix ? prefix : "", start);
    PyBuffer_Release (&buf);
    Py_RETURN_NONE;
}

PyObject *
module_debug_hexdiff (PyObject *self, PyObject *args)
{
    Py_buffer a, b;
    const char *prefix = NULL;
    unsigned long long start = 0;

    (void) self;
    if (!PyArg_ParseTuple (args, "y*y*|zK:debug_hexdiff", &a, &b, &prefix,
                           &start))
        return NULL;
    bool same_length = a.len == b.len;
    if (!same_length)
        PyErr_Format (PyExc_ValueError,
                      "debug_hexdiff: the buffers have %zd and %zd bytes; "
                      "expected the same length",
                      a.len, b.len);
    else if (log_verbose)
        dump (a.buf, b.buf, (size_t) a.len, prefix ? prefix : "", start);
    PyBuffer_Release (&a);
    PyBuffer_Release (&b);
    if (!same_length)
        return NULL;
    Py_RETURN_NONE;
}
