/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Exceptions: into the log, and into what the client is told.
 *
 * PyErr_Print is never used: it keeps the traceback in sys.last_traceback,
 * and with it every frame and the request's buffer.  Here an exception is
 * dropped as soon as its text has been made.
 */
#include "bridge.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../config.h"
#include "../log.h"

__thread struct call_state call_state;

static PyObject *format_exception;

/* traceback.format_exception, or NULL.  Imported when first needed: with what
 * it imports itself it takes a megabyte. */
static PyObject *
formatter (void)
{
    if (format_exception)
        return format_exception;
    AUTO_REF PyObject *module = PyImport_ImportModule ("traceback");
    PyObject *found =
        module ? PyObject_GetAttrString (module, "format_exception") : NULL;
    if (!found)
        PyErr_Clear ();
    if (format_exception) /* another thread was faster: importing lets it run */
        Py_XDECREF (found);
    else
        format_exception = found;
    return format_exception;
}

void
errors_free (void)
{
    Py_CLEAR (format_exception);
}

/* The exception that is set, as one object that has its traceback; NULL only
 * where even that could not be made. */
static PyObject *
take_exception (void)
{
#if PY_VERSION_HEX >= 0x030c0000
    return PyErr_GetRaisedException ();
#else
    PyObject *type, *value, *trace;
    PyErr_Fetch (&type, &value, &trace);
    PyErr_NormalizeException (&type, &value, &trace);
    if (value && trace && PyException_SetTraceback (value, trace) == -1)
        PyErr_Clear ();
    Py_XDECREF (type);
    Py_XDECREF (trace);
    return value;
#endif
}

/* Would a terminal act on it, or a string end there?  What a client sends may
 * come back in an exception's text, which has lines. */
static bool
is_control (unsigned char c)
{
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
}

/* Lone surrogates, which nothing that leaves the process may contain, are
 * written as escapes; control characters likewise. */
char *
text_of (PyObject *str)
{
    AUTO_REF PyObject *bytes =
        PyUnicode_Check (str)
            ? PyUnicode_AsEncodedString (str, "utf-8", "backslashreplace")
            : NULL;
    if (!bytes || !PyBytes_Check (bytes)) {
        PyErr_Clear ();
        return strdup ("(text that cannot be shown)");
    }

    const char *from = PyBytes_AS_STRING (bytes);
    size_t length = (size_t) PyBytes_GET_SIZE (bytes), controls = 0;
    for (size_t i = 0; i < length; i++)
        controls += is_control ((unsigned char) from[i]);

    char *text = malloc (length + 3 * controls + 1), *to = text;
    if (!text)
        return NULL;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char) from[i];

        if (is_control (c))
            to += sprintf (to, "\\x%02x", c);
        else
            *to++ = from[i];
    }
    *to = '\0';
    return text;
}

/* "TYPE: TEXT", whatever the exception's own methods do. */
static char *
short_text (PyObject *exception)
{
    const char *type = Py_TYPE (exception)->tp_name;
    AUTO_REF PyObject *str = PyObject_Str (exception);
    if (!str)
        PyErr_Clear ();
    AUTO_FREE char *text = str ? text_of (str) : NULL;
    char *all;

    if (str && text && text[0] == '\0')
        return strdup (type);
    if (asprintf (&all, "%s: %s", type, text ? text : "(its __str__ failed)")
        == -1)
        return NULL;
    return all;
}

/* The lines of the traceback, as nbdkit joins them: with a blank. */
static char *
full_text (PyObject *exception)
{
    AUTO_REF PyObject *trace = PyException_GetTraceback (exception);
    AUTO_REF PyObject *lines = NULL, *blank = NULL, *joined = NULL;

    PyObject *format = formatter ();
    if (format)
        lines = PyObject_CallFunctionObjArgs (
            format, (PyObject *) Py_TYPE (exception), exception,
            trace ? trace : Py_None, NULL);
    if (lines)
        blank = PyUnicode_FromString (" ");
    if (blank)
        joined = PyUnicode_Join (blank, lines);
    if (!joined) {
        PyErr_Clear ();
        return short_text (exception);
    }
    char *text = text_of (joined);
    if (text) {
        size_t n = strlen (text);
        while (n > 0 && text[n - 1] == '\n')
            text[--n] = '\0';
    }
    return text;
}

static void
log_exception (const char *what, PyObject *exception)
{
    AUTO_FREE char *text = exception ? full_text (exception) : NULL;

    log_error ("%s: %s: error: %s", script_name, what,
               text ? text : "an exception, and no memory to show it");
}

void
exception_log (const char *what)
{
    AUTO_REF PyObject *exception = take_exception ();
    log_exception (what, exception);
}

/* The exception's attribute NAME as text, or NULL. */
static char *
attribute_text (PyObject *exception, const char *name)
{
    AUTO_REF PyObject *value = PyObject_GetAttrString (exception, name);
    AUTO_REF PyObject *str = value ? PyObject_Str (value) : NULL;
    if (!str)
        PyErr_Clear ();
    return str ? text_of (str) : NULL;
}

int
exception_log_syntax (const char *file)
{
    if (!PyErr_ExceptionMatches (PyExc_SyntaxError))
        return -1;
    AUTO_REF PyObject *exception = take_exception ();
    AUTO_FREE char *name = attribute_text (exception, "filename");
    AUTO_FREE char *line = attribute_text (exception, "lineno");
    AUTO_FREE char *message = attribute_text (exception, "msg");

    if (name && line && message && strcmp (name, file) == 0)
        log_error ("%s: line %s: %s: %s", file, line,
                   Py_TYPE (exception)->tp_name, message);
    else
        log_exception ("running this script", exception);
    return 0;
}

/* Malloc'ed, or NULL. */
static char *
format (const char *fmt, va_list args)
{
    char *text;

    return vasprintf (&text, fmt, args) == -1 ? NULL : text;
}

void
callback_error (enum callback cb, const char *fmt, ...)
{
    va_list args;

    va_start (args, fmt);
    AUTO_FREE char *text = format (fmt, args);
    va_end (args);
    log_error ("%s: %s: error: %s", script_name, callback_name (cb),
               text ? text : "no memory");
}

void
callback_warning (enum callback cb, const char *fmt, ...)
{
    va_list args;

    va_start (args, fmt);
    AUTO_FREE char *text = format (fmt, args);
    va_end (args);
    log_warning ("%s: %s: %s", script_name, callback_name (cb),
                 text ? text : "no memory");
}

/* ssl.SSLError, socket.herror and socket.gaierror are OSErrors whose errno is
 * a number of another library. */
static bool
foreign_number (PyObject *exception)
{
    AUTO_REF PyObject *module =
        PyObject_GetAttrString ((PyObject *) Py_TYPE (exception), "__module__");
    if (!module)
        PyErr_Clear ();
    return module && PyUnicode_Check (module)
           && (PyUnicode_CompareWithASCIIString (module, "ssl") == 0
               || PyUnicode_CompareWithASCIIString (module, "socket") == 0);
}

/* The errno of an OSError that means the same to every client; 0: none. */
static int
os_error (enum callback cb, PyObject *exception)
{
    if (!PyObject_TypeCheck (exception, (PyTypeObject *) PyExc_OSError)
        || foreign_number (exception))
        return 0;
    AUTO_REF PyObject *number = PyObject_GetAttrString (exception, "errno");
    if (!number || !PyLong_Check (number)) {
        PyErr_Clear ();
        return 0;
    }
    long n = PyLong_AsLong (number);
    if (n == -1)
        PyErr_Clear ();

    switch (n) {
    case EPERM:
    case EACCES:
    case EROFS:
        return EPERM;
    case ENOMEM:
        return ENOMEM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return ENOSPC;
    case EOPNOTSUPP:
#if ENOTSUP != EOPNOTSUPP
    case ENOTSUP:
#endif
        return cb == CB_ZERO ? EOPNOTSUPP : 0;
    default:
        return 0;
    }
}

/* What the client may be told in words: what the script says for it, the
 * system's words, or with --error-text the exception's own. */
static char *
client_text (PyObject *exception)
{
    if (call_state.text) {
        char *text = call_state.text;
        call_state.text = NULL;
        return text;
    }
    if (config.error_text)
        return short_text (exception);
    if (!PyObject_TypeCheck (exception, (PyTypeObject *) PyExc_OSError))
        return NULL;

    AUTO_REF PyObject *words = PyObject_GetAttrString (exception, "strerror");
    if (!words)
        PyErr_Clear ();
    if (!words || !PyUnicode_Check (words))
        return NULL;
    return text_of (words);
}

int
exception_to_errno (enum callback cb, struct io *io)
{
    AUTO_REF PyObject *exception = take_exception ();
    int error = call_state.error;

    if (!exception) {
        log_exception (callback_name (cb), NULL);
        return ENOMEM;
    }
    if (error <= 0)
        error = config.nbdkit_compat ? 0 : os_error (cb, exception);
    /* The beginning of a fallback is no failure. */
    if (cb != CB_ZERO || error != EOPNOTSUPP) {
        log_exception (callback_name (cb), exception);
        if (!config.nbdkit_compat)
            io->error_text = client_text (exception);
    }
    return error > 0 ? error : EIO;
}
