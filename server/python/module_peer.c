/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module's functions about the client that the calling thread works for.
 */
#include "bridge.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "../connection.h"
#include "../log.h"
#include "../quit.h"
#include "../tls.h"

#ifndef SO_PEERSEC
#define SO_PEERSEC 31
#endif

static PyObject *
no_connection (const char *function)
{
    return PyErr_Format (PyExc_RuntimeError,
                         "%s: there is no client here (it works in callbacks "
                         "of a connection, on their own thread)",
                         function);
}

/* The name is there from open to close, as in nbdkit. */
PyObject *
module_export_name (PyObject *self, PyObject *unused)
{
    (void) self;
    (void) unused;
    const struct handle *h = call_state.handle;
    return h ? PyUnicode_FromString (h->name) : no_connection ("export_name");
}

PyObject *
module_is_tls (PyObject *self, PyObject *unused)
{
    (void) self;
    (void) unused;
    if (call_state.handle)
        return PyBool_FromLong (call_state.handle->tls);
    return current_connection ? PyBool_FromLong (current_connection->tls)
                              : no_connection ("is_tls");
}

/* The socket's peer, for a client on a Unix socket. */
static int
peer_credentials (const char *function, struct ucred *peer)
{
    const struct connection *c = current_connection;
    socklen_t size = sizeof *peer;

    if (!c) {
        no_connection (function);
        return -1;
    }
    struct sockaddr_storage address;
    socklen_t address_size = sizeof address;
    if (getsockname (c->stream.in, (struct sockaddr *) &address,
                     &address_size)
            == -1
        || address.ss_family != AF_UNIX
        || getsockopt (c->stream.in, SOL_SOCKET, SO_PEERCRED, peer, &size)
               == -1) {
        PyErr_Format (PyExc_RuntimeError,
                      "%s: the client is not connected by a Unix socket",
                      function);
        return -1;
    }
    return 0;
}

PyObject *
module_peer_pid (PyObject *self, PyObject *unused)
{
    struct ucred peer;

    (void) self;
    (void) unused;
    return peer_credentials ("peer_pid", &peer) == -1
               ? NULL
               : PyLong_FromLong (peer.pid);
}

PyObject *
module_peer_uid (PyObject *self, PyObject *unused)
{
    struct ucred peer;

    (void) self;
    (void) unused;
    return peer_credentials ("peer_uid", &peer) == -1
               ? NULL
               : PyLong_FromUnsignedLong (peer.uid);
}

PyObject *
module_peer_gid (PyObject *self, PyObject *unused)
{
    struct ucred peer;

    (void) self;
    (void) unused;
    return peer_credentials ("peer_gid", &peer) == -1
               ? NULL
               : PyLong_FromUnsignedLong (peer.gid);
}

PyObject *
module_peer_security_context (PyObject *self, PyObject *unused)
{
    const struct connection *c = current_connection;
    char label[4096];
    socklen_t size = sizeof label - 1;

    (void) self;
    (void) unused;
    if (!c)
        return no_connection ("peer_security_context");
    if (getsockopt (c->stream.in, SOL_SOCKET, SO_PEERSEC, label, &size) == -1)
        return PyErr_Format (PyExc_RuntimeError,
                             "peer_security_context: %s", strerror (errno));
    label[size] = '\0';
    return PyUnicode_DecodeFSDefault (label);
}

/* "" where there is no certificate. */
static PyObject *
peer_name (const char *function, char *(*get) (const struct stream *))
{
    const struct connection *c = current_connection;

    if (!c)
        return no_connection (function);
    AUTO_FREE char *name = get (&c->stream);
    if (!name)
        return PyErr_Format (PyExc_RuntimeError,
                             "%s: the certificate has no name that can be "
                             "read",
                             function);
    return PyUnicode_DecodeUTF8 (name, (Py_ssize_t) strlen (name),
                                 "surrogateescape");
}

PyObject *
module_peer_tls_dn (PyObject *self, PyObject *unused)
{
    (void) self;
    (void) unused;
    return peer_name ("peer_tls_dn", tls_peer_dn);
}

PyObject *
module_peer_tls_issuer_dn (PyObject *self, PyObject *unused)
{
    (void) self;
    (void) unused;
    return peer_name ("peer_tls_issuer_dn", tls_peer_issuer_dn);
}

PyObject *
module_disconnect (PyObject *self, PyObject *args)
{
    int force;

    (void) self;
    if (!PyArg_ParseTuple (args, "p:disconnect", &force))
        return NULL;
    if (current_connection)
        connection_disconnect (current_connection, force);
    else
        log_debug ("disconnect: there is no client here: ignored");
    Py_RETURN_NONE;
}

/* Waits until the time T of CLOCK_MONOTONIC, the server's end, or the client's.
 * Without the GIL.  0: it was the time. */
static int
wait_until (const struct timespec *t)
{
    const struct connection *c = current_connection;
    struct pollfd fds[2] = {
        { .fd = server_quit_fd (), .events = POLLIN },
        { .fd = c && c->stream.socket ? c->stream.in : -1,
          .events = POLLRDHUP },
    };

    for (;;) {
        struct timespec now, left;
        clock_gettime (CLOCK_MONOTONIC, &now);
        left.tv_sec = t->tv_sec - now.tv_sec;
        left.tv_nsec = t->tv_nsec - now.tv_nsec;
        if (left.tv_nsec < 0) {
            left.tv_nsec += 1000000000;
            left.tv_sec--;
        }
        if (left.tv_sec < 0)
            return 0;
        int n = ppoll (fds, 2, &left, NULL);
        if (n > 0 || (n == -1 && errno != EINTR))
            return -1;
    }
}

PyObject *
module_nanosleep (PyObject *self, PyObject *args)
{
    int seconds, nanoseconds, r;
    struct timespec t;

    (void) self;
    if (!PyArg_ParseTuple (args, "ii:nanosleep", &seconds, &nanoseconds))
        return NULL;
    if (seconds < 0 || nanoseconds < 0
        || seconds > INT_MAX - nanoseconds / 1000000000)
        return PyErr_Format (PyExc_ValueError,
                             "nanosleep: (%d, %d) is not a time from 0 to %d "
                             "seconds",
                             seconds, nanoseconds, INT_MAX);
    clock_gettime (CLOCK_MONOTONIC, &t);
    t.tv_sec += seconds + (t.tv_nsec + nanoseconds) / 1000000000;
    t.tv_nsec = (t.tv_nsec + nanoseconds) % 1000000000;

    Py_BEGIN_ALLOW_THREADS
    r = wait_until (&t);
    Py_END_ALLOW_THREADS
    if (r == -1)
        return PyErr_Format (PyExc_RuntimeError,
                             "nanosleep: woken because the server or the "
                             "connection ends");
    Py_RETURN_NONE;
}
