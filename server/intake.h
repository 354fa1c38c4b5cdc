/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receiving half of a connection: a read-ahead buffer, out of which
 * requests are cut.
 *
 * Where a client has several requests in flight, one recv brings in as many as
 * have arrived.  But read-ahead makes a copy of the first part of a large
 * payload, which shall go straight into the buffer that the back end will see.
 * So it has three steps: none at first and after a large payload; a little for
 * requests that come one by one; the whole buffer for those that come in
 * numbers.
 *
 * Only the thread that holds the connection's intake (see workers.h) may call
 * these; during the handshake that is the connection's thread.
 */
#ifndef NBDSPEC_INTAKE_H
#define NBDSPEC_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection;
struct request;

/* Payloads from this size up are received in place; smaller ones are copied
 * once, out of the read-ahead buffer. */
#define IN_PLACE_SIZE (32U << 10)

struct intake {
    uint8_t *buf; /* allocated when first needed */
    size_t start, end;
    size_t ahead;    /* how much more than what is needed a recv may bring */
    unsigned single; /* requests in a row that came alone */
    /* The handshake's time limit runs only while the client is waited for, not
     * while the plugin works. */
    bool limited;
    int64_t time_left; /* ns */
};

/* Waits for bytes within that limit.  -1: time is up (logged), or an error. */
int intake_wait (struct connection *c);

/* The handshake begins: a little read-ahead pays.  Transmission begins, or goes
 * on behind a large payload: none. */
void intake_expect_options (struct intake *in);
void intake_expect_payload (struct intake *in);

/* Exactly LEN bytes to DST, or to nowhere.  -1: the stream ended (EOF inside
 * what was asked for is an error like any other), failed, or timed out. */
int intake_read (struct connection *c, void *dst, size_t len);
int intake_skip (struct connection *c, uint64_t len);

/* What has been received and not yet used. */
size_t intake_pending (const struct intake *in);

enum intake_result {
    INTAKE_REQUEST, /* *r is complete, its payload received */
    INTAKE_NONE,    /* nothing complete in the buffer (intake_try only) */
    INTAKE_END,     /* DISC, end of the stream, or an error: it is over */
};

/* The next request, waiting for it; or only if it lies whole in the buffer.
 * A request that is refused on sight (request_validate) comes with r->error
 * set and its payload consumed. */
enum intake_result intake_next (struct connection *c, struct request *r);
enum intake_result intake_try (struct connection *c, struct request *r);

void intake_free (struct intake *in);

#endif
