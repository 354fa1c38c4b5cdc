/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A server built without GnuTLS: there is no TLS, and it says so.
 */
#ifndef HAVE_GNUTLS

#include "tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "log.h"

void
tls_setup (void)
{
    if (config.tls == TLS_REQUIRE || (config.tls_asked && config.tls == TLS_ON))
        log_fatal ("--tls: this server was built without GnuTLS");
    config.tls = TLS_OFF;
}

void
tls_check_access (void)
{
}

/* No stream has a session: the functions below are never called. */

int
tls_server_handshake (struct connection *c)
{
    (void) c;
    return -1;
}

char *
tls_peer_dn (const struct stream *s)
{
    (void) s;
    return strdup ("");
}

char *
tls_peer_issuer_dn (const struct stream *s)
{
    (void) s;
    return strdup ("");
}

int
tls_wait (struct stream *s, int timeout_ms)
{
    (void) s;
    (void) timeout_ms;
    return -1;
}

ssize_t
tls_recv (struct stream *s, void *buf, size_t len)
{
    (void) s;
    (void) buf;
    (void) len;
    return -1;
}

int
tls_send (struct stream *s, struct iovec *iov, size_t n, bool more)
{
    (void) s;
    (void) iov;
    (void) n;
    (void) more;
    return -1;
}

void
tls_close (struct stream *s)
{
    (void) s;
}

#endif
