/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The two directions of a connection's bytes: a socket, a pair of pipes (-s),
 * or TLS over either.  One thread at a time may receive and one may send; the
 * two may run at once.
 */
#ifndef NBDSPEC_STREAM_H
#define NBDSPEC_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct tls_session;

struct stream {
    int in, out; /* the same descriptor for a socket */
    bool socket; /* both are sockets */
    struct tls_session *tls; /* NULL: plain */
    /* For pipes, which know no shutdown: readable when no more is to be
     * received, and sent.  -1 for sockets. */
    int stop_in, stop_out;
    int send_limit; /* ms, for pipes; -1: none */
};

/* Takes over the descriptors, which stay the caller's after -1 (errno set). */
int stream_init (struct stream *s, int in, int out);

/* Waits until bytes can be received, for at most TIMEOUT_MS (-1: for ever).
 * 1 when they can (or the end has come), 0 at the time limit, -1 on error. */
int stream_wait (struct stream *s, int timeout_ms);

/* At least one byte and at most LEN; 0 at the end of the stream; -1 on error,
 * with errno set.  Waits for the first byte. */
ssize_t stream_recv (struct stream *s, void *buf, size_t len);

/* Sends all of the N parts (which it may change), waiting where it must.
 * MORE: further bytes follow at once.  -1 on error, with errno set. */
int stream_send (struct stream *s, struct iovec *iov, size_t n, bool more);

/* Sending gives up when it makes no headway for MS (0: never). */
void stream_limit_sending (struct stream *s, unsigned ms);

/* Makes a thread that waits in stream_recv return as at the end of the stream;
 * bytes that have already arrived may still be received. */
void stream_stop_receiving (struct stream *s);

/* Makes threads that wait in either direction return with an error. */
void stream_abort (struct stream *s);

/* Ends TLS properly (close_notify) where there is TLS, and closes. */
void stream_close (struct stream *s);

/* For TLS: the same below it. */
int stream_wait_plain (struct stream *s, int timeout_ms);
ssize_t stream_recv_plain (struct stream *s, void *buf, size_t len);
int stream_send_plain (struct stream *s, struct iovec *iov, size_t n,
                       bool more);

#endif
