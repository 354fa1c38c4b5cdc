/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A TLS session between the files tls_*.c.
 *
 * GnuTLS lets one thread send and one receive at the same time only as long
 * as nothing else happens: no key update, no alert.  A client decides about
 * these, so the session has a lock.  Nobody waits for the network with the
 * lock held: GnuTLS is given the bytes that have arrived already, and what it
 * sends is collected, and written without the lock.
 */
#ifndef NBDSPEC_TLS_INTERNAL_H
#define NBDSPEC_TLS_INTERNAL_H

#ifdef HAVE_GNUTLS

#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A TLS record's plaintext and its size on the wire, at most. */
#define RECORD_SIZE 16384U
#define WIRE_RECORD_SIZE (RECORD_SIZE + 512U)

/* So much is collected before it is written. */
#define FLUSH_SIZE (64U << 10)

struct tls_session {
    gnutls_session_t session;
    pthread_mutex_t lock;

    /* From the network, not yet decrypted; the receiver's. */
    size_t in_start, in_end;
    bool in_over; /* the peer sends no more */

    /* For the network; guarded by the lock. */
    uint8_t *out;
    size_t out_len, out_size;
    bool out_failed; /* no memory */

    /* Decrypted by tls_wait, not yet received; the receiver's. */
    uint8_t *plain;
    size_t plain_start, plain_end;

    uint8_t in[2 * WIRE_RECORD_SIZE];
};

struct stream;

/* tls.c: writes what GnuTLS has left in T->out, all of it.  The caller is the
 * only one who sends; MORE: it will go on at once. */
int tls_flush (struct stream *s, struct tls_session *t, bool more);
void tls_session_free (struct tls_session *t);

/* tls_credentials.c: credentials and priorities for a new session.  An error
 * code of GnuTLS. */
int tls_configure_session (gnutls_session_t session);

#endif
#endif
