/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bytes through a TLS session; see tls_internal.h for the locking.
 */
#ifdef HAVE_GNUTLS

#include "tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "log.h"
#include "pace.h"
#include "stream.h"
#include "tls_internal.h"

/* For the last words to a client that does not read. */
#define CLOSE_TIMEOUT_MS 1000

/* -------- Sending. -------- */

int
tls_flush (struct stream *s, struct tls_session *t, bool more)
{
    struct iovec iov;
    size_t size;
    int r;

    pthread_mutex_lock (&t->lock);
    iov = (struct iovec){ t->out, t->out_len };
    size = t->out_size;
    t->out = NULL;
    t->out_len = t->out_size = 0;
    pthread_mutex_unlock (&t->lock);
    if (iov.iov_len == 0) {
        free (iov.iov_base);
        return 0;
    }

    AUTO_FREE uint8_t *memory = iov.iov_base;
    r = stream_send_plain (s, &iov, 1, false);
    /* Kept for the next time, unless it is large and the last: the session
     * may be idle. */
    SCOPED_LOCK (&t->lock);
    if (t->out == NULL && (more || size < FLUSH_SIZE)) {
        t->out = memory;
        t->out_size = size;
        memory = NULL;
    }
    return r;
}

/* Encrypts at most a record's worth.  *COLLECTED: bytes that wait for the
 * network then. */
static ssize_t
encrypt (struct tls_session *t, const void *p, size_t len, size_t *collected)
{
    SCOPED_LOCK (&t->lock);
    ssize_t r;

    do
        r = gnutls_record_send (t->session, p,
                                len < RECORD_SIZE ? len : RECORD_SIZE);
    while (r == GNUTLS_E_INTERRUPTED || r == GNUTLS_E_AGAIN);
    *collected = t->out_len;
    return r;
}

static int
send_bytes (struct stream *s, const uint8_t *p, size_t len)
{
    while (len > 0) {
        size_t collected;
        ssize_t r = encrypt (s->tls, p, len, &collected);

        if (r < 0) {
            log_debug ("TLS: sending: %s", gnutls_strerror ((int) r));
            errno = s->tls->out_failed ? ENOMEM : EIO;
            return -1;
        }
        p += r;
        len -= (size_t) r;
        if (collected >= FLUSH_SIZE && tls_flush (s, s->tls, true) == -1)
            return -1;
    }
    return 0;
}

/* Takes up to ROOM bytes off the parts. */
static size_t
gather (struct iovec **iov, size_t *n, uint8_t *dst, size_t room)
{
    size_t done = 0;

    while (*n > 0 && done < room) {
        size_t part = (*iov)->iov_len;

        if (part > room - done)
            part = room - done;
        memcpy (dst + done, (*iov)->iov_base, part);
        done += part;
        (*iov)->iov_base = (uint8_t *) (*iov)->iov_base + part;
        (*iov)->iov_len -= part;
        if ((*iov)->iov_len == 0) {
            (*iov)++;
            (*n)--;
        }
    }
    return done;
}

int
tls_send (struct stream *s, struct iovec *iov, size_t n, bool more)
{
    uint8_t record[RECORD_SIZE];

    while (n > 0) {
        size_t len = iov->iov_len;

        if (len == 0) {
            iov++;
            n--;
        } else if (len >= RECORD_SIZE) { /* whole records, as they lie there */
            len -= n > 1 ? len % RECORD_SIZE : 0;
            if (send_bytes (s, iov->iov_base, len) == -1)
                return -1;
            iov->iov_base = (uint8_t *) iov->iov_base + len;
            iov->iov_len -= len;
        } else { /* headers and small parts fill a record together */
            len = gather (&iov, &n, record, sizeof record);
            if (send_bytes (s, record, len) == -1)
                return -1;
        }
    }
    return more ? 0 : tls_flush (s, s->tls, false);
}

/* -------- Receiving. -------- */

/* What decrypt and fill_in say. */
enum { TLS_END = 0, TLS_ERROR = -1, TLS_WANTS_MORE = -2 };

/* A record that was no data, such as a key update, ends a call as the lack of
 * bytes does. */
static bool
is_to_repeat (const struct tls_session *t, size_t before, ssize_t r)
{
    return r == GNUTLS_E_INTERRUPTED || r == GNUTLS_E_WARNING_ALERT_RECEIVED
           || (r == GNUTLS_E_AGAIN && t->in_start > before
               && t->in_start < t->in_end);
}

/* Decrypts out of what has arrived; as many records as fit. */
static ssize_t
decrypt (struct tls_session *t, uint8_t *buf, size_t len)
{
    SCOPED_LOCK (&t->lock);
    size_t done = 0, before;
    ssize_t r;

    do {
        before = t->in_start;
        r = gnutls_record_recv (t->session, buf + done, len - done);
        if (r > 0)
            done += (size_t) r;
    } while ((r > 0 && done < len) || is_to_repeat (t, before, r));
    /* After an end or an error GnuTLS says the same the next time. */
    if (done > 0)
        return (ssize_t) done;
    if (r == GNUTLS_E_AGAIN)
        return t->in_over ? TLS_END : TLS_WANTS_MORE;
    if (r == 0 || (r == GNUTLS_E_PREMATURE_TERMINATION && t->in_over))
        return TLS_END;
    log_client_error ("TLS: receiving: %s", gnutls_strerror ((int) r));
    errno = EPROTO;
    return TLS_ERROR;
}

/* Brings in what the network has, waiting for it.  TLS_ERROR: errno is set. */
static int
fill_in (struct stream *s)
{
    struct tls_session *t = s->tls;
    ssize_t r;

    /* decrypt has taken all there was before it wanted more. */
    r = stream_recv_plain (s, t->in, sizeof t->in);
    if (r == -1)
        return TLS_ERROR;
    t->in_start = 0;
    t->in_end = (size_t) r;
    if (r == 0)
        t->in_over = true; /* no close_notify is needed: NBD has its own end */
    return 0;
}

ssize_t
tls_recv (struct stream *s, void *buf, size_t len)
{
    struct tls_session *t = s->tls;

    if (t->plain_start < t->plain_end) {
        size_t n = t->plain_end - t->plain_start;

        if (n > len)
            n = len;
        memcpy (buf, t->plain + t->plain_start, n);
        t->plain_start += n;
        return (ssize_t) n;
    }
    for (;;) {
        ssize_t r = decrypt (t, buf, len);

        if (r != TLS_WANTS_MORE)
            return r;
        if (fill_in (s) == TLS_ERROR)
            return -1;
    }
}

/* Part of a record is not a byte to be received, so one is decrypted to see. */
int
tls_wait (struct stream *s, int timeout_ms)
{
    struct tls_session *t = s->tls;
    int64_t end = pace_now () / 1000000 + timeout_ms;

    if (t->plain_start < t->plain_end)
        return 1;
    if (t->plain == NULL && (t->plain = malloc (RECORD_SIZE)) == NULL)
        return -1;
    for (;;) {
        ssize_t r = decrypt (t, t->plain, RECORD_SIZE);
        int64_t left = end - pace_now () / 1000000;
        int ready;

        if (r != TLS_WANTS_MORE) {
            t->plain_start = 0;
            t->plain_end = r > 0 ? (size_t) r : 0;
            return 1; /* an end or error will be there for tls_recv */
        }
        ready = stream_wait_plain (s, timeout_ms == -1 ? -1
                                      : left > 0       ? (int) left
                                                       : 0);
        if (ready != 1)
            return ready;
        if (fill_in (s) == TLS_ERROR)
            return -1;
    }
}

/* -------- The end. -------- */

void
tls_close (struct stream *s)
{
    struct tls_session *t = s->tls;

    stream_limit_sending (s, CLOSE_TIMEOUT_MS);
    gnutls_bye (t->session, GNUTLS_SHUT_WR);
    tls_flush (s, t, false);
    tls_session_free (t);
    s->tls = NULL;
}

void
tls_session_free (struct tls_session *t)
{
    gnutls_deinit (t->session);
    pthread_mutex_destroy (&t->lock);
    free (t->out);
    free (t->plain);
    free (t);
}

#endif
