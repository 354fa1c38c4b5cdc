/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The callbacks of the plugin API, as one table, and the one function that
 * calls them.
 *
 * A function is looked up in __main__ by its interned name at every call, so
 * that a script can redefine or delete it at any time.
 */
#include "bridge.h"

#include <string.h>

#include "../log.h"
#include "../stats.h"

#define MAX_ARGUMENTS 4

/* Arguments in API version 1 and 2, one letter each: h handle, k key, v value,
 * r readonly, t is_tls, b buffer, c count, o offset, f flags, and m, a boolean
 * that is version 1's form of FLAG_MAY_TRIM. */
static const struct {
    const char *name, *v1, *v2;
} table[N_CALLBACKS] = {
    [CB_CONFIG] = { "config", "kv", "kv" },
    [CB_CONFIG_COMPLETE] = { "config_complete", "", "" },
    [CB_THREAD_MODEL] = { "thread_model", "", "" },
    [CB_GET_READY] = { "get_ready", "", "" },
    [CB_AFTER_FORK] = { "after_fork", "", "" },
    [CB_CLEANUP] = { "cleanup", "", "" },
    [CB_UNLOAD] = { "unload", "", "" },
    [CB_DUMP_PLUGIN] = { "dump_plugin", "", "" },
    [CB_PRECONNECT] = { "preconnect", "r", "r" },
    [CB_LIST_EXPORTS] = { "list_exports", "rt", "rt" },
    [CB_DEFAULT_EXPORT] = { "default_export", "rt", "rt" },
    [CB_OPEN] = { "open", "r", "r" },
    [CB_CLOSE] = { "close", "h", "h" },
    [CB_EXPORT_DESCRIPTION] = { "export_description", "h", "h" },
    [CB_GET_SIZE] = { "get_size", "h", "h" },
    [CB_BLOCK_SIZE] = { "block_size", "h", "h" },
    [CB_CAN_WRITE] = { "can_write", "h", "h" },
    [CB_CAN_ZERO] = { "can_zero", "h", "h" },
    [CB_CAN_FAST_ZERO] = { "can_fast_zero", "h", "h" },
    [CB_CAN_TRIM] = { "can_trim", "h", "h" },
    [CB_CAN_FUA] = { "can_fua", "h", "h" },
    [CB_CAN_FLUSH] = { "can_flush", "h", "h" },
    [CB_IS_ROTATIONAL] = { "is_rotational", "h", "h" },
    [CB_CAN_MULTI_CONN] = { "can_multi_conn", "h", "h" },
    [CB_CAN_CACHE] = { "can_cache", "h", "h" },
    [CB_CAN_EXTENTS] = { "can_extents", "h", "h" },
    [CB_PREAD] = { "pread", "hco", "hbof" },
    [CB_PWRITE] = { "pwrite", "hbo", "hbof" },
    [CB_FLUSH] = { "flush", "h", "hf" },
    [CB_TRIM] = { "trim", "hco", "hcof" },
    [CB_ZERO] = { "zero", "hcom", "hcof" },
    [CB_CACHE] = { "cache", "hcof", "hcof" },
    [CB_EXTENTS] = { "extents", "hcof", "hcof" },
};

static const enum stats_callback counters[N_CALLBACKS] = {
    [CB_PRECONNECT] = COUNT_PRECONNECT,
    [CB_LIST_EXPORTS] = COUNT_LIST_EXPORTS,
    [CB_DEFAULT_EXPORT] = COUNT_DEFAULT_EXPORT,
    [CB_OPEN] = COUNT_OPEN,
    [CB_CLOSE] = COUNT_CLOSE,
    [CB_PREAD] = COUNT_PREAD,
    [CB_PWRITE] = COUNT_PWRITE,
    [CB_FLUSH] = COUNT_FLUSH,
    [CB_TRIM] = COUNT_TRIM,
    [CB_ZERO] = COUNT_ZERO,
    [CB_CACHE] = COUNT_CACHE,
    [CB_EXTENTS] = COUNT_EXTENTS,
};

static PyObject *interned[N_CALLBACKS];

int
callbacks_init (void)
{
    for (int cb = 0; cb < N_CALLBACKS; cb++) {
        interned[cb] = PyUnicode_InternFromString (table[cb].name);
        if (!interned[cb])
            return -1;
    }
    return 0;
}

void
callbacks_free (void)
{
    for (int cb = 0; cb < N_CALLBACKS; cb++)
        Py_CLEAR (interned[cb]);
}

const char *
callback_name (enum callback cb)
{
    return table[cb].name;
}

/* A new reference, since the script may drop its own while the function runs;
 * NULL, with no exception, if there is nothing callable of that name. */
static inline PyObject *
find (enum callback cb)
{
    PyObject *f = PyDict_GetItemWithError (script_globals, interned[cb]);
    if (!f) {
        PyErr_Clear ();
        return NULL;
    }
    if (!PyCallable_Check (f)) {
        log_debug ("%s: the global %s is a %s, which cannot be called: "
                   "ignored",
                   script_name, table[cb].name, Py_TYPE (f)->tp_name);
        return NULL;
    }
    Py_INCREF (f);
    return f;
}

bool
callback_defined (enum callback cb)
{
    AUTO_REF PyObject *f = find (cb);
    return f != NULL;
}

/* A new reference to the argument that LETTER stands for. */
static inline PyObject *
make_argument (char letter, const struct arguments *a)
{
    PyObject *o;

    switch (letter) {
    case 'h':
        o = a->handle;
        break;
    case 'b':
        o = a->view;
        break;
    case 'k':
        o = a->key;
        break;
    case 'v':
        o = a->value;
        break;
    case 'c':
        return PyLong_FromUnsignedLongLong (a->count);
    case 'o':
        return PyLong_FromUnsignedLongLong (a->offset);
    case 'f':
        return PyLong_FromUnsignedLong (a->flags);
    case 'r':
        return PyBool_FromLong (a->readonly);
    case 't':
        return PyBool_FromLong (a->tls);
    default: /* 'm' */
        return PyBool_FromLong ((a->flags & BACKEND_FLAG_MAY_TRIM) != 0);
    }
    Py_INCREF (o);
    return o;
}

/* A script that forks in a callback and lets the child return from it would
 * have two processes answer on one socket. */
static void
end_forked_child (enum callback cb)
{
    dprintf (STDERR_FILENO,
             "python: error: %s: %s: error: a child process made by os.fork "
             "returned from the callback; it ends here (a child must end "
             "itself with os._exit)\n",
             script_name, table[cb].name);
    _exit (1);
}

PyObject *
callback_call (enum callback cb, const struct arguments *a)
{
    AUTO_REF PyObject *f = find (cb);
    if (!f) {
        PyErr_Format (PyExc_NotImplementedError,
                      "the script has no function %s", table[cb].name);
        return NULL;
    }

    const char *letters
        = script_api_version == 1 ? table[cb].v1 : table[cb].v2;
    /* The first place is for the callee, see the flag below. */
    PyObject *vector[1 + MAX_ARGUMENTS];
    PyObject **args = vector + 1;
    size_t n = 0;
    PyObject *result = NULL;

    for (; letters[n]; n++) {
        args[n] = make_argument (letters[n], a);
        if (!args[n])
            break;
    }
    if (!letters[n]) {
        stats_script_call (counters[cb]);
        result = PyObject_Vectorcall (
            f, args, n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    while (n > 0)
        Py_DECREF (args[--n]);
    if (__builtin_expect (interp_forked, 0))
        end_forked_child (cb);
    return result;
}

int
callback_run (enum callback cb)
{
    SCOPED_GIL ();
    if (!callback_defined (cb))
        return 0;
    AUTO_REF PyObject *result = callback_call (cb, &(struct arguments) { 0 });
    if (!result) {
        exception_log (callback_name (cb));
        interp_flush_stdout (); /* the server may end now, without more ado */
        return -1;
    }
    return 0;
}
