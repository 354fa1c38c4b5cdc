/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The object behind the memoryview that a callback is handed.
 *
 * memoryview.release does not protect memory: slices of the view go on reading
 * it.  So each buffer of the pool has an object of this type, made once, that
 * every view of the buffer refers to.  After a callback its reference count
 * tells whether anything of the script's still does: a view, a frame, buf.obj.
 * If so, object and memory part from the buffer and live as long as they are
 * referred to; the buffer gets other memory.
 */
#include "bridge.h"

#include <string.h>

#include "../stats.h"

struct exporter {
    PyObject_HEAD
    uint8_t *data;
    size_t length;     /* of the present request */
    size_t capacity;   /* of the memory at data */
    Py_ssize_t views;  /* for the message */
    bool readonly;
    bool detached; /* the memory is this object's own */
};

static int
get_buffer (PyObject *self, Py_buffer *view, int flags)
{
    struct exporter *e = (struct exporter *) self;

    if (PyBuffer_FillInfo (view, self, e->data, (Py_ssize_t) e->length,
                           e->readonly, flags)
        == -1)
        return -1;
    e->views++;
    return 0;
}

static void
release_buffer (PyObject *self, Py_buffer *view)
{
    (void) view;
    ((struct exporter *) self)->views--;
}

static void
deallocate (PyObject *self)
{
    struct exporter *e = (struct exporter *) self;

    if (e->detached)
        buffer_memory_free (e->data, e->capacity);
    PyObject_Free (self);
}

static PyBufferProcs as_buffer = {
    .bf_getbuffer = get_buffer,
    .bf_releasebuffer = release_buffer,
};

static PyTypeObject exporter_type = {
    PyVarObject_HEAD_INIT (NULL, 0)
    .tp_name = "nbdkit.buffer",
    .tp_doc = "The memory of one request's data; look at it through a "
              "memoryview.",
    .tp_basicsize = sizeof (struct exporter),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = deallocate,
    .tp_as_buffer = &as_buffer,
};

int
exporter_init (void)
{
    return PyType_Ready (&exporter_type);
}

PyObject *
exporter_view (struct buffer *b, size_t len, bool readonly)
{
    struct exporter *e = b->owner;

    if (__builtin_expect (!e, 0)) {
        e = PyObject_New (struct exporter, &exporter_type);
        if (!e)
            return NULL;
        e->views = 0;
        e->detached = false;
        b->owner = e;
    }
    e->data = b->data;
    e->capacity = b->capacity;
    e->length = len;
    e->readonly = readonly;
    return PyMemoryView_FromObject ((PyObject *) e);
}

static void
report_kept (enum callback cb, Py_ssize_t views)
{
    static bool reported;

    stats_view_kept ();
    if (reported)
        return;
    reported = true;
    callback_warning (cb,
                      "the script still refers to its buffer after the "
                      "callback (views: %zd); this server keeps the memory "
                      "for it, others do not (not reported again)",
                      views);
}

int
exporter_finish (struct buffer *b, size_t keep, enum callback cb)
{
    struct exporter *e = b->owner;

    if (__builtin_expect (Py_REFCNT (e) == 1, 1))
        return 0;

    size_t capacity = b->capacity;
    uint8_t *memory = buffer_swap_memory (b);
    bool swapped = memory != NULL;
    if (!swapped) {
        /* What the script looks at stays valid all the same; the buffer goes
         * back to the pool empty. */
        memory = b->data;
        b->data = NULL;
        b->capacity = 0;
    }
    else if (keep > 0) {
        memcpy (b->data, memory, keep);
        stats_copied (keep);
    }
    b->owner = NULL;
    e->data = memory;
    e->capacity = capacity;
    e->detached = true;
    report_kept (cb, e->views);
    Py_DECREF (e);
    if (!swapped)
        callback_error (cb, "no memory for a buffer in place of the one that "
                            "the script keeps");
    return swapped ? 1 : -1;
}

void
exporter_drop (void *owner)
{
    Py_DECREF ((PyObject *) owner);
}
