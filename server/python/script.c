/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The script: read, run as __main__, and checked.
 */
#include "bridge.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>

#include "../config.h"
#include "../log.h"

const char *script_name = "python";
PyObject *script_globals;
int script_api_version = 1;

/* The whole of FILE, which may be a pipe, as bytes.  NULL: errno is set. */
static PyObject *
read_file (const char *file)
{
    AUTO_CLOSE int fd = open (file, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return NULL;

    AUTO_FREE char *text = NULL;
    size_t length = 0, size = 0;
    for (;;) {
        if (length == size) {
            size = size ? size * 2 : 65536;
            char *bigger = realloc (text, size);
            if (!bigger)
                return NULL;
            text = bigger;
        }
        ssize_t n = read (fd, text + length, size - length);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1)
            return NULL;
        if (n == 0) {
            errno = ENOMEM; /* should the next step fail */
            PyObject *bytes
                = PyBytes_FromStringAndSize (text, (Py_ssize_t) length);
            if (!bytes)
                PyErr_Clear ();
            return bytes;
        }
        length += (size_t) n;
    }
}

/* Calls the function NAME of a module. */
static PyObject *
call_in (const char *module, const char *name, PyObject *args)
{
    AUTO_REF PyObject *m = PyImport_ImportModule (module);
    AUTO_REF PyObject *f = m ? PyObject_GetAttrString (m, name) : NULL;
    return f ? PyObject_CallObject (f, args) : NULL;
}

/* sys.path[0]: the directory of the script, as when python3 runs it. */
static int
add_directory (const char *file)
{
    char resolved[PATH_MAX];
    const char *directory = "";
    if (realpath (file, resolved))
        directory = dirname (resolved);

    PyObject *path = PySys_GetObject ("path"); /* borrowed */
    AUTO_REF PyObject *entry = PyUnicode_DecodeFSDefault (directory);
    if (!entry || !path || !PyList_Check (path))
        return entry ? 0 : -1;
    return PyList_Insert (path, 0, entry);
}

static int
run (const char *file, PyObject *source)
{
    AUTO_REF PyObject *name = PyUnicode_DecodeFSDefault (file);
    PyObject *main_module = PyImport_AddModule ("__main__"); /* borrowed */
    if (!name || !main_module)
        return -1;
    script_globals = PyModule_GetDict (main_module);
    Py_INCREF (script_globals);
    if (PyDict_SetItemString (script_globals, "__file__", name) == -1
        || PyDict_SetItemString (script_globals, "__cached__", Py_None) == -1
        || (!config.nbdkit_compat && add_directory (file) == -1))
        return -1;

    /* compile() takes bytes, and with them a coding line and a mark. */
    AUTO_REF PyObject *args
        = Py_BuildValue ("(OOsiO)", source, name, "exec", 0, Py_True);
    AUTO_REF PyObject *code
        = args ? call_in ("builtins", "compile", args) : NULL;
    if (!code)
        return -1;
    AUTO_REF PyObject *result
        = PyEval_EvalCode (code, script_globals, script_globals);
    return result ? 0 : -1;
}

static int
check_required (void)
{
    static const enum callback required[] = { CB_OPEN, CB_GET_SIZE, CB_PREAD };
    char missing[64] = "";

    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        if (callback_defined (required[i]))
            continue;
        if (missing[0])
            strcat (missing, ", ");
        strcat (missing, callback_name (required[i]));
    }
    if (!missing[0])
        return 0;
    log_error ("%s: the script must define the functions open, get_size and "
               "pread; not found, or not callable: %s",
               script_name, missing);
    return -1;
}

static int
check_api_version (void)
{
    PyObject *version /* borrowed */
        = PyDict_GetItemString (script_globals, "API_VERSION");
    if (!version)
        return 0;
    if (!PyLong_Check (version)) {
        log_error ("%s: API_VERSION must be the integer 1 or 2, not a %s",
                   script_name, Py_TYPE (version)->tp_name);
        return -1;
    }
    int overflow;
    long n = PyLong_AsLongAndOverflow (version, &overflow);
    if (overflow || n < 1 || n > 2) {
        AUTO_REF PyObject *shown = PyObject_Repr (version);
        AUTO_FREE char *text = shown ? text_of (shown) : NULL;
        PyErr_Clear ();
        log_error ("%s: API_VERSION is %s; this server knows 1 and 2",
                   script_name, text ? text : "too large");
        return -1;
    }
    script_api_version = (int) n;
    return 0;
}

int
script_load (const char *file)
{
    script_name = file;
    AUTO_REF PyObject *source = read_file (file);
    if (!source) {
        log_error ("%s: the script cannot be read: %s", file,
                   strerror (errno));
        return -1;
    }
    if (run (file, source) == -1) {
        if (PyErr_ExceptionMatches (PyExc_SystemExit))
            exception_log ("the script called sys.exit");
        else if (exception_log_syntax (file) == -1)
            exception_log ("running this script");
        return -1;
    }
    if (check_api_version () == -1 || check_required () == -1)
        return -1;
    return 0;
}

PyObject *
script_docstring (const char *file)
{
    AUTO_REF PyObject *source = read_file (file);
    AUTO_REF PyObject *parse_args = source ? PyTuple_Pack (1, source) : NULL;
    AUTO_REF PyObject *tree
        = parse_args ? call_in ("ast", "parse", parse_args) : NULL;
    AUTO_REF PyObject *doc_args = tree ? PyTuple_Pack (1, tree) : NULL;
    PyObject *doc
        = doc_args ? call_in ("ast", "get_docstring", doc_args) : NULL;
    PyErr_Clear ();
    if (doc == Py_None)
        Py_CLEAR (doc);
    return doc;
}
