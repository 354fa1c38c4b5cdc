/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module's functions that read what people write: sizes, booleans, delays,
 * probabilities, passwords.
 */
#include "bridge.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <termios.h>

#include "../size.h"

PyObject *
module_parse_size (PyObject *self, PyObject *args)
{
    const char *text, *why;

    (void) self;
    if (!PyArg_ParseTuple (args, "s:parse_size", &text))
        return NULL;
    int64_t size = size_parse (text, &why);
    if (size == -1)
        return PyErr_Format (PyExc_ValueError, "parse_size: '%s' %s", text,
                             why);
    return PyLong_FromLongLong (size);
}

PyObject *
module_parse_bool (PyObject *self, PyObject *args)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {
        { "1", true },   { "true", true },    { "t", true },
        { "yes", true }, { "y", true },       { "on", true },
        { "0", false },  { "false", false },  { "f", false },
        { "no", false }, { "n", false },      { "off", false },
    };
    const char *text;

    (void) self;
    if (!PyArg_ParseTuple (args, "s:parse_bool", &text))
        return NULL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp (text, words[i].word) == 0)
            return PyBool_FromLong (words[i].value);
    }
    return PyErr_Format (PyExc_ValueError,
                         "parse_bool: '%s': expected true, false, yes, no, "
                         "on, off, 1 or 0",
                         text);
}

/* A number as strtod reads it, but finite and not negative. */
static bool
parse_number (const char *text, double *n, char **end)
{
    *n = strtod (text, end);
    return *end != text && isfinite (*n) && !signbit (*n);
}

PyObject *
module_parse_delay (PyObject *self, PyObject *args)
{
    static const struct {
        const char *suffix;
        double seconds;
    } units[] = {
        { "", 1 },
        { "s", 1 },
        { "ms", 1e-3 },
        { "us", 1e-6 },
        { "\xce\xbc" "s", 1e-6 }, /* Greek mu */
        { "\xc2\xb5" "s", 1e-6 }, /* micro sign */
        { "ns", 1e-9 },
    };
    const char *what, *text;
    char *end;
    double n;

    (void) self;
    if (!PyArg_ParseTuple (args, "ss:parse_delay", &what, &text))
        return NULL;
    if (!parse_number (text, &n, &end))
        return PyErr_Format (PyExc_ValueError,
                             "%s: '%s' is not a delay; expected a number that "
                             "is not negative",
                             what, text);

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp (end, units[i].suffix) != 0)
            continue;
        double seconds = n * units[i].seconds;
        if (seconds > INT_MAX)
            return PyErr_Format (PyExc_ValueError,
                                 "%s: '%s' is more than %d seconds", what,
                                 text, INT_MAX);
        double whole = floor (seconds);
        long nanoseconds = lround ((seconds - whole) * 1e9);
        if (nanoseconds == 1000000000) {
            whole += 1;
            nanoseconds = 0;
        }
        if (n > 0 && whole == 0 && nanoseconds == 0)
            return PyErr_Format (PyExc_ValueError,
                                 "%s: '%s' is less than a nanosecond", what,
                                 text);
        return Py_BuildValue ("(ll)", (long) whole, nanoseconds);
    }
    return PyErr_Format (PyExc_ValueError,
                         "%s: '%s': expected a number with a suffix s, ms, us "
                         "or ns, or none (seconds)",
                         what, text);
}

PyObject *
module_parse_probability (PyObject *self, PyObject *args)
{
    const char *what, *text;
    char *end;
    double n, divisor;

    (void) self;
    if (!PyArg_ParseTuple (args, "ss:parse_probability", &what, &text))
        return NULL;
    if (parse_number (text, &n, &end)) {
        if (*end == '\0')
            return PyFloat_FromDouble (n);
        if (strcmp (end, "%") == 0)
            return PyFloat_FromDouble (n / 100);
        if ((*end == ':' || *end == '/')
            && parse_number (end + 1, &divisor, &end) && *end == '\0'
            && (n == 0 || isfinite (n / divisor)))
            return PyFloat_FromDouble (n == 0 ? 0 : n / divisor);
    }
    return PyErr_Format (PyExc_ValueError,
                         "%s: '%s' is not a probability; expected the form "
                         "0.1, 10%%, 1:10 or 1/10",
                         what, text);
}

/* The first line of FD, without its end, which is closed. */
static PyObject *
read_line (int fd, const char *name)
{
    AUTO_REF PyObject *file
        = PyFile_FromFd (fd, name, "rb", -1, NULL, NULL, NULL, 1);
    if (!file) {
        close (fd);
        return NULL;
    }
    AUTO_REF PyObject *line = PyObject_CallMethod (file, "readline", NULL);
    AUTO_REF PyObject *closed = line
                                    ? PyObject_CallMethod (file, "close", NULL)
                                    : NULL;
    if (!closed)
        return NULL;
    return PyObject_CallMethod (line, "rstrip", "y", "\r\n");
}

/* Asks on the terminal, which is not stdin: that may be the client's. */
static PyObject *
ask_password (void)
{
    struct termios old, quiet;
    int fd = open ("/dev/tty", O_RDWR | O_CLOEXEC);

    if (fd == -1 || tcgetattr (fd, &old) == -1) {
        if (fd != -1)
            close (fd);
        PyErr_SetString (PyExc_ValueError,
                         "read_password: there is no terminal to read a "
                         "password from; give +FILE");
        return NULL;
    }
    quiet = old;
    quiet.c_lflag &= ~(tcflag_t) ECHO;
    tcsetattr (fd, TCSAFLUSH, &quiet);
    dprintf (fd, "password: ");
    int copy = fcntl (fd, F_DUPFD_CLOEXEC, 3);
    PyObject *line = copy != -1 ? read_line (copy, "/dev/tty")
                                : PyErr_SetFromErrno (PyExc_OSError);
    dprintf (fd, "\n");
    tcsetattr (fd, TCSAFLUSH, &old);
    close (fd);
    return line;
}

PyObject *
module_read_password (PyObject *self, PyObject *args)
{
    const char *value;
    char *end;

    (void) self;
    if (!PyArg_ParseTuple (args, "s:read_password", &value))
        return NULL;
    if (value[0] == '+') {
        int fd = open (value + 1, O_RDONLY | O_CLOEXEC);
        if (fd == -1)
            return PyErr_SetFromErrnoWithFilename (PyExc_OSError, value + 1);
        return read_line (fd, value + 1);
    }
    if (value[0] != '-')
        return PyBytes_FromString (value);
    if (value[1] == '\0')
        return ask_password ();

    errno = 0;
    long fd = isdigit ((unsigned char) value[1])
                  ? strtol (value + 1, &end, 10)
                  : -1;
    if (fd == -1 || *end || errno || fd > INT_MAX)
        return PyErr_Format (PyExc_ValueError,
                             "read_password: '%s': expected -FD, a number "
                             "after the minus sign; a password that begins "
                             "with - or + must be in a file",
                             value);
    if (fd <= STDERR_FILENO)
        return PyErr_Format (PyExc_ValueError,
                             "read_password: '%s': stdin, stdout and stderr "
                             "cannot be used",
                             value);
    if (fcntl ((int) fd, F_GETFD) == -1)
        return PyErr_SetFromErrno (PyExc_OSError);
    return read_line ((int) fd, "password");
}
