/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The callbacks of a connection that carry no data.
 *
 * nbdkit refuses some wrong results without a word, and takes others for
 * something that the script did not mean.  Here every one is named in the log.
 */
#include "bridge.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "../config.h"
#include "../export.h"
#include "../log.h"
#include "../text.h"

#define MAX_EXPORTS 10000 /* nbdkit's limit */

/* Which callbacks have had their odd results reported: a client that connects
 * again and again does not fill the log. */
static bool reported[N_CALLBACKS];

/* "1 (int)"; for messages. */
static char *
describe (PyObject *o)
{
    AUTO_REF PyObject *repr = PyObject_Repr (o);
    if (!repr)
        PyErr_Clear ();
    AUTO_FREE char *text = repr ? text_of (repr) : NULL;
    char *all;

    if (asprintf (&all, "%.200s (%s)", text ? text : "something",
                  Py_TYPE (o)->tp_name)
        == -1)
        return NULL;
    return all;
}

static void
wrong_result (enum callback cb, PyObject *result, const char *expected)
{
    AUTO_FREE char *text = describe (result);
    callback_error (cb, "returned %s; expected %s", text ? text : "something",
                    expected);
}

static void
odd_result (enum callback cb, PyObject *result, const char *expected,
            const char *taken_for)
{
    if (reported[cb])
        return;
    reported[cb] = true;
    AUTO_FREE char *text = describe (result);
    callback_warning (
        cb, "returned %s; expected %s; taken for %s (not reported again)",
        text ? text : "something", expected, taken_for);
}

/* Calls CB; an exception is logged. */
static PyObject *
call (enum callback cb, const struct arguments *a)
{
    PyObject *result = callback_call (cb, a);
    if (!result)
        exception_log (callback_name (cb));
    return result;
}

static PyObject *
call_with_handle (enum callback cb, struct handle *h)
{
    call_state.handle = h;
    PyObject *result = call (cb, &(struct arguments) { .handle = h->object });
    call_state.handle = NULL;
    return result;
}

/* A string or bytes as a string of the wire; malloc'ed, NULL if it is none
 * (logged). */
static char *
wire_string (enum callback cb, PyObject *o)
{
    const char *s, *fault;
    Py_ssize_t n;

    if (PyUnicode_Check (o)) {
        s = PyUnicode_AsUTF8AndSize (o, &n);
        if (!s) {
            PyErr_Clear ();
            wrong_result (cb, o, "text without lone surrogates");
            return NULL;
        }
    }
    else if (PyBytes_Check (o)) {
        s = PyBytes_AS_STRING (o);
        n = PyBytes_GET_SIZE (o);
    }
    else {
        wrong_result (cb, o, "str or bytes");
        return NULL;
    }
    fault = text_fault (s, (size_t) n);
    if (fault) {
        callback_error (cb, "returned a string that %s", fault);
        return NULL;
    }
    char *copy = strdup (s);
    if (!copy)
        callback_error (cb, "no memory");
    return copy;
}

int
python_preconnect (bool readonly)
{
    if (!callback_defined (CB_PRECONNECT))
        return 0;
    AUTO_REF PyObject *result
        = call (CB_PRECONNECT, &(struct arguments) { .readonly = readonly });
    return result ? 0 : -1;
}

/* One element of what list_exports returned: NAME or (NAME, DESCRIPTION). */
static int
add_export (PyObject *element, struct export_list *list)
{
    PyObject *name = element, *description = NULL;
    AUTO_FREE char *n = NULL, *d = NULL;

    if (PyTuple_Check (element)) {
        if (PyTuple_GET_SIZE (element) != 2) {
            wrong_result (CB_LIST_EXPORTS, element,
                          "a name, or a tuple of a name and a description");
            return -1;
        }
        name = PyTuple_GET_ITEM (element, 0);
        description = PyTuple_GET_ITEM (element, 1);
    }
    n = wire_string (CB_LIST_EXPORTS, name);
    if (!n)
        return -1;
    if (description && !(d = wire_string (CB_LIST_EXPORTS, description)))
        return -1;
    return export_list_add (list, n, d);
}

int
python_list_exports (bool readonly, bool tls, struct export_list *list)
{
    if (!callback_defined (CB_LIST_EXPORTS)) {
        list->use_default = true; /* which is asked for once a connection */
        return 0;
    }

    AUTO_REF PyObject *result = call (
        CB_LIST_EXPORTS,
        &(struct arguments) { .readonly = readonly, .tls = tls });
    if (!result)
        return -1;
    AUTO_REF PyObject *iterator = PyObject_GetIter (result);
    if (!iterator) {
        PyErr_Clear ();
        wrong_result (CB_LIST_EXPORTS, result, "a list or another iterable");
        return -1;
    }
    for (size_t i = 0;; i++) {
        AUTO_REF PyObject *element = PyIter_Next (iterator);
        if (!element)
            break;
        if (i == MAX_EXPORTS) {
            callback_error (CB_LIST_EXPORTS, "more than %d exports",
                            MAX_EXPORTS);
            return -1;
        }
        if (add_export (element, list) == -1)
            return -1;
    }
    if (PyErr_Occurred ()) {
        exception_log (callback_name (CB_LIST_EXPORTS));
        return -1;
    }
    return 0;
}

char *
python_default_export (bool readonly, bool tls)
{
    if (!callback_defined (CB_DEFAULT_EXPORT))
        return strdup ("");
    AUTO_REF PyObject *result = call (
        CB_DEFAULT_EXPORT,
        &(struct arguments) { .readonly = readonly, .tls = tls });
    return result ? wire_string (CB_DEFAULT_EXPORT, result) : NULL;
}

int
python_open (bool readonly, bool tls, const char *name, void **handle)
{
    struct handle *h = calloc (1, sizeof *h);
    if (!h || !(h->name = strdup (name))) {
        free (h);
        callback_error (CB_OPEN, "no memory");
        return -1;
    }
    h->tls = tls;
    call_state.handle = h;
    h->object = call (CB_OPEN, &(struct arguments) { .readonly = readonly });
    call_state.handle = NULL;
    if (!h->object) {
        free (h->name);
        free (h);
        return -1;
    }
    *handle = h;
    return 0;
}

void
python_close (void *handle)
{
    struct handle *h = handle;

    if (callback_defined (CB_CLOSE)) {
        AUTO_REF PyObject *result = call_with_handle (CB_CLOSE, h);
    }
    Py_DECREF (h->object);
    free (h->name);
    free (h);
}

char *
python_export_description (void *handle)
{
    if (!callback_defined (CB_EXPORT_DESCRIPTION))
        return NULL;
    AUTO_REF PyObject *result
        = call_with_handle (CB_EXPORT_DESCRIPTION, handle);
    return result ? wire_string (CB_EXPORT_DESCRIPTION, result) : NULL;
}

int64_t
python_get_size (void *handle)
{
    AUTO_REF PyObject *result = call_with_handle (CB_GET_SIZE, handle);
    if (!result)
        return -1;
    int overflow = 0;
    long long n = PyLong_Check (result)
                      ? PyLong_AsLongLongAndOverflow (result, &overflow)
                      : -1;
    if (n < 0 || overflow) {
        wrong_result (CB_GET_SIZE, result,
                      "an integer from 0 to 2**63 - 1, the size in bytes");
        return -1;
    }
    return n;
}

/* Whether the values are possible is for export.c to say. */
int
python_block_size (void *handle, uint32_t *minimum, uint32_t *preferred,
                   uint32_t *maximum)
{
    uint32_t v[3] = { 0, 0, 0 };

    if (!callback_defined (CB_BLOCK_SIZE))
        return 0;
    AUTO_REF PyObject *result = call_with_handle (CB_BLOCK_SIZE, handle);
    if (!result)
        return -1;
    bool good = PyTuple_Check (result) && PyTuple_GET_SIZE (result) == 3;
    for (int i = 0; good && i < 3; i++) {
        PyObject *o = PyTuple_GET_ITEM (result, i);
        unsigned long n
            = PyLong_Check (o) ? PyLong_AsUnsignedLong (o) : ULONG_MAX;
        if (PyErr_Occurred ()) /* negative, or huge */
            PyErr_Clear ();
        good = n <= UINT32_MAX;
        v[i] = (uint32_t) n;
    }
    if (!good) {
        wrong_result (CB_BLOCK_SIZE, result,
                      "a tuple (minimum, preferred, maximum) of three "
                      "integers from 0 to 2**32 - 1");
        return -1;
    }
    if (v[0] == 0 && v[1] == 0 && v[2] == 0)
        return 0;
    *minimum = v[0];
    *preferred = v[1];
    *maximum = v[2];
    return 1;
}

/* Capabilities in the order of enum capability: the callback that is asked,
 * and the function whose presence decides if there is none. */
static const struct {
    enum callback ask, function;
} capabilities[N_CAPABILITIES] = {
    [CAN_WRITE] = { CB_CAN_WRITE, CB_PWRITE },
    [CAN_ZERO] = { CB_CAN_ZERO, CB_ZERO },
    [CAN_FAST_ZERO] = { CB_CAN_FAST_ZERO, N_CALLBACKS },
    [CAN_TRIM] = { CB_CAN_TRIM, CB_TRIM },
    [CAN_FUA] = { CB_CAN_FUA, CB_FLUSH },
    [CAN_FLUSH] = { CB_CAN_FLUSH, CB_FLUSH },
    [IS_ROTATIONAL] = { CB_IS_ROTATIONAL, N_CALLBACKS },
    [CAN_MULTI_CONN] = { CB_CAN_MULTI_CONN, N_CALLBACKS },
    [CAN_CACHE] = { CB_CAN_CACHE, CB_CACHE },
    [CAN_EXTENTS] = { CB_CAN_EXTENTS, CB_EXTENTS },
};

static int
can_by_default (struct handle *h, enum capability what)
{
    bool there = capabilities[what].function != N_CALLBACKS
                 && callback_defined (capabilities[what].function);
    switch (what) {
    case CAN_FAST_ZERO:
        return !h->can_zero;
    case CAN_FUA:
        return there ? LEVEL_EMULATE : LEVEL_NONE;
    case CAN_CACHE:
        return there ? LEVEL_NATIVE : LEVEL_NONE;
    default:
        return there;
    }
}

static int
truth (enum callback cb, PyObject *result)
{
    if (PyBool_Check (result) || config.nbdkit_compat)
        return result == Py_True;
    int value = PyObject_IsTrue (result);
    if (value == -1)
        exception_log (callback_name (cb));
    else
        odd_result (cb, result, "a bool", value ? "True" : "False");
    return value;
}

/* 0, 1 or 2; what nbdkit does with a higher number is done here too. */
static int
level (enum callback cb, PyObject *result)
{
    static const char *expected = "0 (none), 1 (emulate) or 2 (native)";
    int overflow = 0;
    long n = PyLong_Check (result)
                 ? PyLong_AsLongAndOverflow (result, &overflow)
                 : -1;

    if (n < 0 || n > INT_MAX || overflow) {
        wrong_result (cb, result, expected);
        return -1;
    }
    if (n > LEVEL_NATIVE) {
        n = cb == CB_CAN_FUA ? LEVEL_EMULATE : LEVEL_NATIVE;
        odd_result (cb, result, expected, n == LEVEL_NATIVE ? "2" : "1");
    }
    return (int) n;
}

/* Version 1 has no way to tell pwrite about FUA: what claims to do it by
 * itself would lose it, so the server flushes. */
static int
fua_of_version_1 (void)
{
    bool flush = callback_defined (CB_FLUSH);

    if (!reported[CB_CAN_FUA]) {
        reported[CB_CAN_FUA] = true;
        callback_warning (CB_CAN_FUA,
                          "returned FUA_NATIVE, but functions of API version "
                          "1 are not told about FUA: %s (not reported again)",
                          flush ? "the server flushes instead"
                                : "and there is no function flush, so FUA is "
                                  "not offered");
    }
    return flush ? LEVEL_EMULATE : LEVEL_NONE;
}

int
python_can (void *handle, enum capability what)
{
    struct handle *h = handle;
    enum callback cb = capabilities[what].ask;
    int value;

    if (!callback_defined (cb))
        value = can_by_default (h, what);
    else {
        AUTO_REF PyObject *result = call_with_handle (cb, h);
        if (!result)
            return -1;
        value = what == CAN_FUA || what == CAN_CACHE ? level (cb, result)
                                                     : truth (cb, result);
    }
    if (what == CAN_FUA && value == LEVEL_NATIVE && script_api_version == 1)
        value = fua_of_version_1 ();
    if (what == CAN_ZERO)
        h->can_zero = value == 1;
    return value;
}
