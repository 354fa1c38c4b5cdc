/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The data callbacks.  They run with the GIL held, many in one bracket, and
 * return 0 or an errno value.
 */
#include "bridge.h"

#include <errno.h>
#include <string.h>

#include "../config.h"
#include "../extents.h"
#include "../log.h"
#include "../stats.h"

/* Calls CB for a request of H; the result is a new reference, or NULL with the
 * error in *ERROR. */
static inline PyObject *
call (enum callback cb, struct handle *h, struct io *io, PyObject *view,
      int *error)
{
    struct arguments a = {
        .handle = h->object,
        .view = view,
        .count = io->count,
        .offset = io->offset,
        .flags = io->flags,
    };

    call_state_reset ();
    call_state.handle = h;
    PyObject *result = callback_call (cb, &a);
    call_state.handle = NULL;
    *error = result ? 0 : exception_to_errno (cb, io);
    return result;
}

/* For callbacks whose result means nothing. */
static int
call_simply (enum callback cb, struct handle *h, struct io *io)
{
    int error;
    AUTO_REF PyObject *result = call (cb, h, io, NULL, &error);
    return error;
}

static void
debug_buffer (enum callback cb, const struct io *io)
{
    if (!config.debug_datapath)
        return;
    log_debug ("%s: buffer %p, %llu bytes, offset %llu", callback_name (cb),
               (void *) io->buf->data, (unsigned long long) io->count,
               (unsigned long long) io->offset);
}

/* Copies what version 1's pread returned. */
static int
take_data (PyObject *result, struct io *io)
{
    Py_buffer data;

    if (PyObject_GetBuffer (result, &data, PyBUF_SIMPLE) == -1) {
        PyErr_Clear ();
        callback_error (CB_PREAD,
                        "returned a %s; expected bytes or another object that "
                        "has the buffer protocol and is contiguous",
                        Py_TYPE (result)->tp_name);
        return EIO;
    }
    int error = 0;
    if ((uint64_t) data.len < io->count) {
        callback_error (CB_PREAD,
                        "returned %zd bytes, which is too small; expected %llu",
                        data.len, (unsigned long long) io->count);
        error = EIO;
    }
    else {
        memcpy (io->buf->data, data.buf, (size_t) io->count);
        stats_copied (io->count);
    }
    PyBuffer_Release (&data);
    return error;
}

static int
pread_v1 (struct handle *h, struct io *io)
{
    int error;
    AUTO_REF PyObject *result = call (CB_PREAD, h, io, NULL, &error);
    return result ? take_data (result, io) : error;
}

/* A script for version 1 that says it is for version 2 would read as zeroes. */
static void
warn_of_data (PyObject *result, PyObject *view)
{
    static bool reported;

    if (reported || result == view || !PyObject_CheckBuffer (result))
        return;
    reported = true;
    callback_warning (CB_PREAD,
                      "returned a %s, which is ignored; with API_VERSION 2 "
                      "pread fills the buffer that it gets (not reported "
                      "again)",
                      Py_TYPE (result)->tp_name);
}

/* Calls CB with a view of the request's buffer. */
static int
call_with_view (enum callback cb, struct handle *h, struct io *io,
                bool readonly)
{
    int error;
    PyObject *view
        = exporter_view (io->buf, (size_t) io->count, readonly);
    if (!view)
        return exception_to_errno (cb, io);
    PyObject *result = call (cb, h, io, view, &error);
    if (cb == CB_PREAD && result && result != Py_None)
        warn_of_data (result, view);
    Py_XDECREF (result);
    Py_DECREF (view);
    /* What a kept view does to the data from here on does not reach the
     * reply. */
    size_t keep = readonly || error ? 0 : (size_t) io->count;
    if (exporter_finish (io->buf, keep, cb) == -1)
        return error ? error : ENOMEM;
    return error;
}

int
python_pread (void *handle, struct io *io)
{
    debug_buffer (CB_PREAD, io);
    if (script_api_version == 1)
        return pread_v1 (handle, io);
    /* A script that fills only a part never sends what was there before. */
    memset (io->buf->data, 0, (size_t) io->count);
    return call_with_view (CB_PREAD, handle, io, false);
}

/* For --python-buffer: the old bridges' copy. */
static int
call_with_copy (struct handle *h, struct io *io)
{
    const char *data = (const char *) io->buf->data;
    Py_ssize_t n = (Py_ssize_t) io->count;
    int error;

    AUTO_REF PyObject *copy = config.python_buffer == BUFFER_BYTES
                                  ? PyBytes_FromStringAndSize (data, n)
                                  : PyByteArray_FromStringAndSize (data, n);
    if (!copy)
        return exception_to_errno (CB_PWRITE, io);
    stats_copied (io->count);
    AUTO_REF PyObject *result = call (CB_PWRITE, h, io, copy, &error);
    return error;
}

int
python_pwrite (void *handle, struct io *io)
{
    debug_buffer (CB_PWRITE, io);
    if (config.python_buffer != BUFFER_MEMORYVIEW)
        return call_with_copy (handle, io);
    return call_with_view (CB_PWRITE, handle, io, true);
}

int
python_flush (void *handle, struct io *io)
{
    return call_simply (CB_FLUSH, handle, io);
}

int
python_trim (void *handle, struct io *io)
{
    return call_simply (CB_TRIM, handle, io);
}

/* A script asks for the fallback with nbdkit.set_error, whether or not it then
 * raises. */
int
python_zero (void *handle, struct io *io)
{
    if (!callback_defined (CB_ZERO))
        return EOPNOTSUPP;
    int error = call_simply (CB_ZERO, handle, io);
    if (call_state.error == EOPNOTSUPP || call_state.error == ENOTSUP)
        return EOPNOTSUPP;
    return error;
}

int
python_cache (void *handle, struct io *io)
{
    return call_simply (CB_CACHE, handle, io);
}

/* One element of what extents returned. */
static int
add_extent (PyObject *element, struct extents *extents)
{
    unsigned long long v[3];
    bool good = PyTuple_Check (element) && PyTuple_GET_SIZE (element) == 3;

    for (int i = 0; good && i < 3; i++) {
        PyObject *o = PyTuple_GET_ITEM (element, i);
        good = PyLong_Check (o);
        if (!good)
            break;
        v[i] = PyLong_AsUnsignedLongLong (o);
        if (PyErr_Occurred ()) { /* negative, or huge */
            PyErr_Clear ();
            good = false;
        }
    }
    if (!good || v[2] > UINT32_MAX) {
        AUTO_REF PyObject *repr = PyObject_Repr (element);
        PyErr_Clear ();
        AUTO_FREE char *text = repr ? text_of (repr) : NULL;
        callback_error (CB_EXTENTS,
                        "%.200s is not an extent; expected a tuple (offset, "
                        "length, type) of integers that are not negative",
                        text ? text : "an element");
        return -1;
    }
    return extents_add (extents, v[0], v[1], (uint32_t) v[2]);
}

int
python_extents (void *handle, struct io *io)
{
    int error;

    /* can_extents without the function: all of it is data. */
    if (!callback_defined (CB_EXTENTS))
        return extents_add (io->extents, io->offset, io->count, 0) ? EIO : 0;

    AUTO_REF PyObject *result = call (CB_EXTENTS, handle, io, NULL, &error);
    if (!result)
        return error;
    AUTO_REF PyObject *iterator = PyObject_GetIter (result);
    if (!iterator)
        return exception_to_errno (CB_EXTENTS, io);
    call_state.handle = handle; /* a generator's body runs now */
    /* No more than is of interest: a generator may have no end. */
    while (!io->extents->closed) {
        AUTO_REF PyObject *element = PyIter_Next (iterator);
        if (!element)
            break;
        if (add_extent (element, io->extents) == -1) {
            error = EIO;
            break;
        }
    }
    if (PyErr_Occurred ())
        error = exception_to_errno (CB_EXTENTS, io);
    call_state.handle = NULL;
    return error;
}
