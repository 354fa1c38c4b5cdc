/* SPDX-License-Identifier: BSD-3-Clause
 *
 * From STARTTLS to a session, and who the client is.
 */
#ifdef HAVE_GNUTLS

#include <errno.h>
#include <gnutls/x509.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "config.h"
#include "connection.h"
#include "intake.h"
#include "log.h"
#include "stream.h"
#include "tls.h"
#include "tls_internal.h"

/* -------- GnuTLS' transport: what has arrived, what is to be sent. -------- */

static ssize_t
pull (gnutls_transport_ptr_t p, void *buf, size_t len)
{
    struct tls_session *t = p;
    size_t n = t->in_end - t->in_start;

    if (n == 0) {
        gnutls_transport_set_errno (t->session, EAGAIN);
        return -1;
    }
    if (n > len)
        n = len;
    memcpy (buf, t->in + t->in_start, n);
    t->in_start += n;
    return (ssize_t) n;
}

static int
pull_ready (gnutls_transport_ptr_t p, unsigned ms)
{
    const struct tls_session *t = p;

    (void) ms;
    return t->in_start < t->in_end;
}

/* Room for LEN more bytes in T->out. */
static int
reserve (struct tls_session *t, size_t len)
{
    size_t size = t->out_size > 0 ? t->out_size : 1024;
    uint8_t *p;

    /* A whole record: more of them are likely to come. */
    if (len > RECORD_SIZE && size < FLUSH_SIZE)
        size = FLUSH_SIZE + WIRE_RECORD_SIZE;
    while (size - t->out_len < len)
        size *= 2;
    if (size == t->out_size)
        return 0;
    p = realloc (t->out, size);
    if (p == NULL)
        return -1;
    t->out = p;
    t->out_size = size;
    return 0;
}

static ssize_t
push (gnutls_transport_ptr_t p, const giovec_t *iov, int n)
{
    struct tls_session *t = p;
    size_t total = 0;

    for (int i = 0; i < n; i++)
        total += iov[i].iov_len;
    if (reserve (t, total) == -1) {
        t->out_failed = true;
        gnutls_transport_set_errno (t->session, EIO);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        memcpy (t->out + t->out_len, iov[i].iov_base, iov[i].iov_len);
        t->out_len += iov[i].iov_len;
    }
    return (ssize_t) total;
}

/* -------- The handshake. -------- */

static struct tls_session *
session_new (void)
{
    struct tls_session *t = malloc (sizeof *t);
    int r;

    if (t == NULL)
        return NULL;
    /* Not the whole of it: pages that an idle session never uses are free. */
    memset (t, 0, offsetof (struct tls_session, in));
    r = gnutls_init (&t->session, GNUTLS_SERVER | GNUTLS_NONBLOCK
                                      | GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS);
    if (r == 0 && (r = tls_configure_session (t->session)) < 0)
        gnutls_deinit (t->session);
    if (r < 0) {
        log_error ("TLS: %s", gnutls_strerror (r));
        free (t);
        return NULL;
    }
    pthread_mutex_init (&t->lock, NULL);
    gnutls_transport_set_ptr (t->session, t);
    gnutls_transport_set_pull_function (t->session, pull);
    gnutls_transport_set_pull_timeout_function (t->session, pull_ready);
    gnutls_transport_set_vec_push_function (t->session, push);
    return t;
}

/* Waits for the client's next bytes, if all have been taken. */
static int
receive_more (struct connection *c, struct tls_session *t)
{
    ssize_t r;

    if (t->in_start < t->in_end)
        return 0;
    if (intake_wait (c) == -1)
        return -1;
    r = stream_recv_plain (&c->stream, t->in, sizeof t->in);
    if (r == 0)
        errno = ECONNRESET;
    if (r <= 0)
        return -1;
    t->in_start = 0;
    t->in_end = (size_t) r;
    return 0;
}

/* One step: 1 if there is more to do, 0 when it is done, -1 (logged). */
static int
step (struct connection *c, struct tls_session *t)
{
    int r = gnutls_handshake (t->session);
    bool fatal = r < 0 && gnutls_error_is_fatal (r);

    if (fatal) {
        log_client_error ("TLS: handshake: %s", gnutls_strerror (r));
        gnutls_alert_send_appropriate (t->session, r);
    }
    if (tls_flush (&c->stream, t, false) == -1
        || (r == GNUTLS_E_AGAIN && receive_more (c, t) == -1)) {
        log_client_error ("TLS: handshake: %m");
        return -1;
    }
    return fatal ? -1 : r != GNUTLS_E_SUCCESS;
}

int
tls_server_handshake (struct connection *c)
{
    struct tls_session *t = session_new ();
    int r;

    if (t == NULL)
        return -1;
    do
        r = step (c, t);
    while (r == 1);
    if (r == -1) {
        tls_session_free (t);
        return -1;
    }
    c->stream.tls = t; /* from here on the stream's bytes are TLS's */
    if (log_verbose) {
        char *text = gnutls_session_get_desc (t->session);

        log_debug ("TLS session: %s", text != NULL ? text : "");
        gnutls_free (text);
    }
    return 0;
}

/* -------- Names. -------- */

typedef int get_dn_function (gnutls_x509_crt_t, gnutls_datum_t *, unsigned);

static char *
peer_name (const struct stream *s, get_dn_function *get_dn)
{
    const gnutls_datum_t *list = NULL;
    gnutls_datum_t dn = { NULL, 0 };
    gnutls_x509_crt_t crt;
    unsigned n = 0;
    char *name;
    int r;

    if (s->tls != NULL) {
        SCOPED_LOCK (&s->tls->lock);
        if (gnutls_certificate_type_get2 (s->tls->session, GNUTLS_CTYPE_PEERS)
            == GNUTLS_CRT_X509)
            list = gnutls_certificate_get_peers (s->tls->session, &n);
    }
    if (list == NULL || n == 0)
        return strdup ("");
    r = gnutls_x509_crt_init (&crt);
    if (r < 0) {
        log_error ("TLS: %s", gnutls_strerror (r));
        return NULL;
    }
    r = gnutls_x509_crt_import (crt, &list[0], GNUTLS_X509_FMT_DER);
    if (r == 0)
        r = get_dn (crt, &dn, 0);
    gnutls_x509_crt_deinit (crt);
    if (r < 0) {
        log_error ("TLS: the client's certificate: %s", gnutls_strerror (r));
        return NULL;
    }
    name = strndup ((const char *) dn.data, dn.size);
    gnutls_free (dn.data);
    return name;
}

char *
tls_peer_dn (const struct stream *s)
{
    return peer_name (s, gnutls_x509_crt_get_dn3);
}

char *
tls_peer_issuer_dn (const struct stream *s)
{
    return peer_name (s, gnutls_x509_crt_get_issuer_dn3);
}

#endif
