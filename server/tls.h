/* SPDX-License-Identifier: BSD-3-Clause
 *
 * TLS, by GnuTLS.  Without HAVE_GNUTLS no connection ever has a session, and
 * STARTTLS is refused.
 */
#ifndef NBDSPEC_TLS_H
#define NBDSPEC_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct connection;
struct stream;

/* Where root's certificates are looked for, unless said otherwise. */
#define TLS_ROOT_DIRECTORY "/etc/pki/nbdkit"

/* Loads what the command line names, at start-up, and settles config.tls: on
 * becomes off when there are no credentials.  Ends the process with status 1
 * when they are unusable, or missing though asked for. */
void tls_setup (void);

/* After -u took effect: what is read again for each client must be readable.
 * Ends the process with status 1 if it is not. */
void tls_check_access (void);

/* After STARTTLS was acknowledged: the handshake, within the handshake's time
 * limit.  0: all further bytes of the stream are TLS's.  -1 (logged): the
 * connection is over.  No byte may have been received ahead (OPT-STARTTLS-05);
 * the caller has seen to that. */
int tls_server_handshake (struct connection *c);

/* The distinguished name in the client's certificate, or its issuer's, as a
 * malloc'ed string; "" when the client gave none.  NULL: error (logged). */
char *tls_peer_dn (const struct stream *s);
char *tls_peer_issuer_dn (const struct stream *s);

/* For stream.c alone; as its functions of the same names. */
int tls_wait (struct stream *s, int timeout_ms);
ssize_t tls_recv (struct stream *s, void *buf, size_t len);
int tls_send (struct stream *s, struct iovec *iov, size_t n, bool more);

/* Tells the peer (close_notify), and frees the session. */
void tls_close (struct stream *s);

#endif
