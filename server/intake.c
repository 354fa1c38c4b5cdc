/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Receiving, see intake.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "connection.h"
#include "log.h"
#include "pace.h"
#include "request.h"
#include "stats.h"
#include "wire.h"

#define READ_AHEAD (256U << 10)

/* Brings a small request whole, and shows whether more are behind it. */
#define LITTLE_AHEAD (4U << 10)

/* So many in a row that come alone, and the client is taken to do one after
 * the other; so many without a large payload, and none is expected. */
#define SINGLES 16
#define SMALL_ONES 4

size_t
intake_pending (const struct intake *in)
{
    return in->end - in->start;
}

int
intake_wait (struct connection *c)
{
    struct intake *in = &c->intake;
    int64_t before = pace_now ();
    int r;

    if (!in->limited)
        return 0;
    r = stream_wait (&c->stream, (int) ((in->time_left + 999999) / 1000000));
    in->time_left -= pace_now () - before;
    if (in->time_left < 0)
        in->time_left = 0;
    if (r == 0) {
        log_client_error ("the client did not finish its handshake within %u "
                          "seconds (--timeout)",
                          config.timeout);
        errno = ETIMEDOUT;
    }
    return r == 1 ? 0 : -1;
}

/* One recv.  -1: error or end of the stream. */
static ssize_t
receive (struct connection *c, void *dst, size_t len)
{
    ssize_t n;

    if (intake_wait (c) == -1)
        return -1;
    n = stream_recv (&c->stream, dst, len);
    if (n > 0) {
        stats_received ((uint64_t) n);
        return n;
    }
    if (n == -1)
        log_debug ("receiving: %m");
    return -1;
}

static int
make_buffer (struct intake *in)
{
    if (!in->buf && !(in->buf = malloc (READ_AHEAD))) {
        log_error ("no memory for a connection's buffer");
        return -1;
    }
    return 0;
}

/* Makes N contiguous bytes available at buf + start. */
static int
fill (struct connection *c, size_t n)
{
    struct intake *in = &c->intake;

    if (make_buffer (in) == -1)
        return -1;
    if (in->start == in->end)
        in->start = in->end = 0;
    if (in->start + n > READ_AHEAD) {
        memmove (in->buf, in->buf + in->start, intake_pending (in));
        in->end -= in->start;
        in->start = 0;
    }
    while (intake_pending (in) < n) {
        size_t room = READ_AHEAD - in->end;
        size_t wanted = n - intake_pending (in) + in->ahead;
        ssize_t r = receive (c, in->buf + in->end,
                             wanted < room ? wanted : room);

        if (r == -1)
            return -1;
        in->end += (size_t) r;
    }
    return 0;
}

/* Up to LEN bytes out of the buffer; DST may be NULL. */
static size_t
take_buffered (struct intake *in, void *dst, size_t len)
{
    size_t n = intake_pending (in);

    if (n > len)
        n = len;
    if (dst && n)
        memcpy (dst, in->buf + in->start, n);
    in->start += n;
    return n;
}

int
intake_read (struct connection *c, void *dst, size_t len)
{
    uint8_t *at = dst;
    size_t done = take_buffered (&c->intake, at, len);

    while (done < len) {
        ssize_t r;

        /* Small pieces through the buffer, so that one recv brings several. */
        if (len - done < IN_PLACE_SIZE) {
            if (fill (c, len - done) == -1)
                return -1;
            done += take_buffered (&c->intake, at + done, len - done);
            continue;
        }
        r = receive (c, at + done, len - done);
        if (r == -1)
            return -1;
        done += (size_t) r;
    }
    return 0;
}

int
intake_skip (struct connection *c, uint64_t len)
{
    struct intake *in = &c->intake;

    len -= take_buffered (in, NULL,
                          len < READ_AHEAD ? (size_t) len : READ_AHEAD);
    while (len > 0) {
        ssize_t r;

        if (make_buffer (in) == -1)
            return -1;
        r = receive (c, in->buf,
                     len < READ_AHEAD ? (size_t) len : READ_AHEAD);
        if (r == -1)
            return -1;
        len -= (uint64_t) r;
    }
    return 0;
}

void
intake_expect_options (struct intake *in)
{
    in->ahead = LITTLE_AHEAD;
}

void
intake_expect_payload (struct intake *in)
{
    in->ahead = 0;
    in->single = 0;
}

/* Receives the tail of an in-place payload, of which DONE bytes are there. */
static int
read_in_place (struct connection *c, struct request *r, size_t done)
{
    size_t len = (size_t) r->payload;

    while (done < len) {
        ssize_t n = receive (c, r->io.buf->data + done, len - done);

        if (n == -1)
            return -1;
        done += (size_t) n;
    }
    intake_expect_payload (&c->intake);
    return 0;
}

/* The payload of a request that will be performed: into its buffer. */
static int
take_payload (struct connection *c, struct request *r)
{
    size_t len = (size_t) r->payload, copied;

    r->io.buf = buffer_get (len);
    if (!r->io.buf) {
        r->error = NBD_ENOMEM;
        return intake_skip (c, len);
    }
    if (len < IN_PLACE_SIZE) {
        stats_copied (len);
        return intake_read (c, r->io.buf->data, len);
    }
    copied = take_buffered (&c->intake, r->io.buf->data, len);
    stats_copied (copied);
    return read_in_place (c, r, copied);
}

/* R's header has just been taken out of the buffer. */
static void
adapt_read_ahead (struct connection *c, const struct request *r)
{
    struct intake *in = &c->intake;

    if (intake_pending (in) >= r->payload + request_header_size (c)) {
        in->ahead = READ_AHEAD;
        in->single = 0;
    } else if (++in->single >= (in->ahead ? SINGLES : SMALL_ONES)) {
        in->ahead = LITTLE_AHEAD;
    }
}

/* A header lies in the buffer, and unless the request is large or refused its
 * payload, too. */
static enum intake_result
cut_request (struct connection *c, struct request *r)
{
    struct intake *in = &c->intake;

    if (request_parse (c, in->buf + in->start, r) == -1)
        return INTAKE_END;
    in->start += request_header_size (c);
    if (r->type == NBD_CMD_DISC)
        return INTAKE_END;
    adapt_read_ahead (c, r);

    r->error = request_validate (c, r);
    if (r->payload == 0)
        return INTAKE_REQUEST;
    if (r->error == NBD_SUCCESS)
        return take_payload (c, r) == -1 ? INTAKE_END : INTAKE_REQUEST;
    if (r->payload > MAX_PAYLOAD_SKIPPED) {
        log_client_error ("a refused request has a payload of %llu bytes: "
                          "closing the connection",
                          (unsigned long long) r->payload);
        return INTAKE_END;
    }
    return intake_skip (c, r->payload) == -1 ? INTAKE_END : INTAKE_REQUEST;
}

enum intake_result
intake_next (struct connection *c, struct request *r)
{
    if (fill (c, request_header_size (c)) == -1) {
        if (intake_pending (&c->intake))
            log_client_error ("the client left in the middle of a request");
        return INTAKE_END;
    }
    return cut_request (c, r);
}

enum intake_result
intake_try (struct connection *c, struct request *r)
{
    struct intake *in = &c->intake;
    struct request head;

    if (intake_pending (in) < request_header_size (c))
        return INTAKE_NONE;
    if (request_parse (c, in->buf + in->start, &head) == -1)
        return INTAKE_END;
    if (head.payload > intake_pending (in) - request_header_size (c))
        return INTAKE_NONE;
    return cut_request (c, r);
}

void
intake_free (struct intake *in)
{
    free (in->buf);
    in->buf = NULL;
}
