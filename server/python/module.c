/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module `nbdkit' that scripts import: nbdkit's as of version 1.48, and
 * error ().
 */
#include "bridge.h"

#include "../config.h"
#include "../quit.h"

static PyObject *
module_set_error (PyObject *self, PyObject *args)
{
    int error;

    (void) self;
    if (!PyArg_ParseTuple (args, "i:set_error", &error))
        return NULL;
    call_state.error = error;
    Py_RETURN_NONE;
}

static PyObject *
module_shutdown (PyObject *self, PyObject *unused)
{
    (void) self;
    (void) unused;
    server_quit ();
    Py_RETURN_NONE;
}

static PyObject *
module_stdio_safe (PyObject *self, PyObject *unused)
{
    (void) self;
    (void) unused;
    return PyBool_FromLong (!config.single);
}

static PyMethodDef methods[] = {
    { "debug", module_debug, METH_VARARGS,
      "debug(msg): print msg if the server is verbose (-v)." },
    { "debug_hexdiff", module_debug_hexdiff, METH_VARARGS,
      "debug_hexdiff(buf1, buf2, prefix, start): print where they differ (-v)."
    },
    { "debug_hexdump", module_debug_hexdump, METH_VARARGS,
      "debug_hexdump(buf, prefix, start): print buf in hexadecimal (-v)." },
    { "disconnect", module_disconnect, METH_VARARGS,
      "disconnect(force): end the client's connection; at once if force is "
      "true, otherwise after the requests that are under way." },
    { "export_name", module_export_name, METH_NOARGS,
      "export_name(): the export's name as the client gave it." },
    { "is_tls", module_is_tls, METH_NOARGS,
      "is_tls(): whether the client uses TLS." },
    { "name", module_name, METH_NOARGS,
      "name(): the server's name, as in its messages." },
    { "nanosleep", module_nanosleep, METH_VARARGS,
      "nanosleep(sec, nsec): sleep; raises when the server or the connection "
      "ends before." },
    { "parse_bool", module_parse_bool, METH_VARARGS,
      "parse_bool(str): 'yes', 'off' and the like as a bool." },
    { "parse_delay", module_parse_delay, METH_VARARGS,
      "parse_delay(what, str): '1.5', '20ms' and the like as (sec, nsec)." },
    { "parse_probability", module_parse_probability, METH_VARARGS,
      "parse_probability(what, str): '0.1', '10%', '1:10' as a float." },
    { "parse_size", module_parse_size, METH_VARARGS,
      "parse_size(str): '100M' and the like in bytes." },
    { "peer_gid", module_peer_gid, METH_NOARGS,
      "peer_gid(): group number of a client on a Unix socket." },
    { "peer_pid", module_peer_pid, METH_NOARGS,
      "peer_pid(): process number of a client on a Unix socket." },
    { "peer_security_context", module_peer_security_context, METH_NOARGS,
      "peer_security_context(): the client's label, such as SELinux's." },
    { "peer_tls_dn", module_peer_tls_dn, METH_NOARGS,
      "peer_tls_dn(): the distinguished name in the client's certificate." },
    { "peer_tls_issuer_dn", module_peer_tls_issuer_dn, METH_NOARGS,
      "peer_tls_issuer_dn(): that of the certificate's issuer." },
    { "peer_uid", module_peer_uid, METH_NOARGS,
      "peer_uid(): user number of a client on a Unix socket." },
    { "read_password", module_read_password, METH_VARARGS,
      "read_password(value): value, or what '-', '-FD' or '+FILE' name, as "
      "bytes." },
    { "set_error", module_set_error, METH_VARARGS,
      "set_error(err): the errno value for the exception that follows." },
    { "shutdown", module_shutdown, METH_NOARGS,
      "shutdown(): end the server, after the requests that are under way." },
    { "stdio_safe", module_stdio_safe, METH_NOARGS,
      "stdio_safe(): whether stdin and stdout are the user's at start-up." },
    { "timestamp", module_timestamp, METH_NOARGS,
      "timestamp(): the time, for messages." },
    { NULL, NULL, 0, NULL },
};

/* What nbdkit does not have; left out under --nbdkit-compat. */
static PyMethodDef own_methods[] = {
    { "error", module_error, METH_VARARGS,
      "error(msg): log msg; the client is told if the request fails." },
    { NULL, NULL, 0, NULL },
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "nbdkit",
    .m_doc = "What the server offers to a plugin written in Python.",
    .m_size = -1,
    .m_methods = methods,
};

static const struct {
    const char *name;
    long value;
} constants[] = {
    { "THREAD_MODEL_SERIALIZE_CONNECTIONS",
      THREAD_MODEL_SERIALIZE_CONNECTIONS },
    { "THREAD_MODEL_SERIALIZE_ALL_REQUESTS",
      THREAD_MODEL_SERIALIZE_ALL_REQUESTS },
    { "THREAD_MODEL_SERIALIZE_REQUESTS", THREAD_MODEL_SERIALIZE_REQUESTS },
    { "THREAD_MODEL_PARALLEL", THREAD_MODEL_PARALLEL },
    { "FLAG_MAY_TRIM", BACKEND_FLAG_MAY_TRIM },
    { "FLAG_FUA", BACKEND_FLAG_FUA },
    { "FLAG_REQ_ONE", BACKEND_FLAG_REQ_ONE },
    { "FLAG_FAST_ZERO", BACKEND_FLAG_FAST_ZERO },
    { "FUA_NONE", LEVEL_NONE },
    { "FUA_EMULATE", LEVEL_EMULATE },
    { "FUA_NATIVE", LEVEL_NATIVE },
    { "CACHE_NONE", LEVEL_NONE },
    { "CACHE_EMULATE", LEVEL_EMULATE },
    { "CACHE_NATIVE", LEVEL_NATIVE },
    { "EXTENT_HOLE", 1 },
    { "EXTENT_ZERO", 2 },
};

PyObject *
module_init (void)
{
    AUTO_REF PyObject *module = PyModule_Create (&definition);
    if (!module)
        return NULL;
    if (!config.nbdkit_compat
        && PyModule_AddFunctions (module, own_methods) == -1)
        return NULL;
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        if (PyModule_AddIntConstant (module, constants[i].name,
                                     constants[i].value)
            == -1)
            return NULL;
    }
    PyObject *done = module;
    Py_INCREF (done);
    return done;
}
