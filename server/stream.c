/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tls.h"

/* What one system call takes. */
#define MAX_IOV 1024U

/* How often drop_received looks. */
#define MAX_DROPPED 256U

static bool
is_socket (int fd)
{
    int type;
    socklen_t len = sizeof type;

    return getsockopt (fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

/* A socket that was handed over may not: it is waited for like a pipe. */
static bool
blocks (int fd)
{
    int flags = fcntl (fd, F_GETFL);

    return flags == -1 || !(flags & O_NONBLOCK);
}

static void
close_stops (struct stream *s)
{
    if (s->stop_in >= 0)
        close (s->stop_in);
    if (s->stop_out >= 0)
        close (s->stop_out);
}

int
stream_init (struct stream *s, int in, int out)
{
    s->in = in;
    s->out = out;
    s->tls = NULL;
    s->socket = is_socket (in) && is_socket (out) && blocks (in);
    s->stop_in = s->stop_out = s->send_limit = -1;
    if (s->socket)
        return 0;
    s->stop_in = eventfd (0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->stop_out = eventfd (0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stop_in >= 0 && s->stop_out >= 0)
        return 0;
    close_stops (s);
    return -1;
}

/* 1: FD is ready, 0: time limit, -1: error, ESHUTDOWN when STOP is readable
 * and FD is not. */
static int
wait_ready (int fd, short events, int stop, int timeout_ms)
{
    struct pollfd pfd[2] = { { .fd = fd, .events = events },
                             { .fd = stop, .events = POLLIN } };
    int r;

    do
        r = poll (pfd, 2, timeout_ms);
    while (r == -1 && errno == EINTR);
    if (r <= 0 || pfd[0].revents != 0)
        return r > 0 ? 1 : r;
    errno = ESHUTDOWN;
    return -1;
}

int
stream_wait_plain (struct stream *s, int timeout_ms)
{
    int r = wait_ready (s->in, POLLIN, s->stop_in, timeout_ms);

    return r == -1 && errno == ESHUTDOWN ? 1 : r;
}

static ssize_t
recv_pipe (struct stream *s, void *buf, size_t len)
{
    if (wait_ready (s->in, POLLIN, s->stop_in, -1) == -1)
        return errno == ESHUTDOWN ? 0 : -1;
    return read (s->in, buf, len);
}

ssize_t
stream_recv_plain (struct stream *s, void *buf, size_t len)
{
    ssize_t r;

    do
        r = s->socket ? recv (s->in, buf, len, 0) : recv_pipe (s, buf, len);
    while (r == -1 && (errno == EINTR || (errno == EAGAIN && !s->socket)));
    return r;
}

/* A pipe that is ready takes PIPE_BUF bytes without blocking. */
static ssize_t
send_pipe (struct stream *s, const struct iovec *iov)
{
    size_t len = iov->iov_len < PIPE_BUF ? iov->iov_len : PIPE_BUF;

    int r = wait_ready (s->out, POLLOUT, s->stop_out, s->send_limit);

    if (r != 1) {
        errno = r == 0 ? EAGAIN : errno;
        return -1;
    }
    return write (s->out, iov->iov_base, len);
}

static ssize_t
send_socket (struct stream *s, struct iovec *iov, size_t n, bool more)
{
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };

    if (n > MAX_IOV) {
        msg.msg_iovlen = MAX_IOV;
        more = true;
    }
    return sendmsg (s->out, &msg, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
}

int
stream_send_plain (struct stream *s, struct iovec *iov, size_t n, bool more)
{
    while (n > 0) {
        ssize_t r;

        if (iov->iov_len == 0) {
            iov++;
            n--;
            continue;
        }
        r = s->socket ? send_socket (s, iov, n, more) : send_pipe (s, iov);
        if (r == -1 && errno == EINTR)
            continue;
        if (r == -1)
            return -1;
        while (n > 0 && (size_t) r >= iov->iov_len) {
            r -= (ssize_t) iov->iov_len;
            iov++;
            n--;
        }
        if (n > 0) {
            iov->iov_base = (char *) iov->iov_base + r;
            iov->iov_len -= (size_t) r;
        }
    }
    return 0;
}

/* -------- Plain or TLS. -------- */

int
stream_wait (struct stream *s, int timeout_ms)
{
    if (s->tls != NULL)
        return tls_wait (s, timeout_ms);
    return stream_wait_plain (s, timeout_ms);
}

ssize_t
stream_recv (struct stream *s, void *buf, size_t len)
{
    if (s->tls != NULL)
        return tls_recv (s, buf, len);
    return stream_recv_plain (s, buf, len);
}

int
stream_send (struct stream *s, struct iovec *iov, size_t n, bool more)
{
    if (s->tls != NULL)
        return tls_send (s, iov, n, more);
    return stream_send_plain (s, iov, n, more);
}

/* -------- Limits and ends. -------- */

void
stream_limit_sending (struct stream *s, unsigned ms)
{
    struct timeval tv = { .tv_sec = (time_t) (ms / 1000),
                          .tv_usec = (suseconds_t) (ms % 1000) * 1000 };

    if (s->socket)
        setsockopt (s->out, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    else
        s->send_limit = ms > 0 ? (int) ms : -1;
}

void
stream_stop_receiving (struct stream *s)
{
    if (s->socket)
        shutdown (s->in, SHUT_RD);
    else
        eventfd_write (s->stop_in, 1);
}

void
stream_abort (struct stream *s)
{
    if (s->socket) {
        shutdown (s->out, SHUT_RDWR);
        shutdown (s->in, SHUT_RDWR);
    } else {
        eventfd_write (s->stop_in, 1);
        eventfd_write (s->stop_out, 1);
    }
}

/* What the client has sent and nobody will read makes close a reset, which
 * the client may take for a failure of what came before. */
static void
drop_received (struct stream *s)
{
    char dropped[4096];
    ssize_t r;
    unsigned n = 0;

    do
        r = recv (s->in, dropped, sizeof dropped, MSG_DONTWAIT);
    while (r > 0 && ++n < MAX_DROPPED);
}

void
stream_close (struct stream *s)
{
    if (s->tls != NULL)
        tls_close (s);
    if (s->socket)
        drop_received (s);
    close_stops (s);
    if (s->out != s->in)
        close (s->out);
    close (s->in);
}
