/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One request, from its header to its reply.
 */
#ifndef NBDSPEC_REQUEST_H
#define NBDSPEC_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "backend.h"

struct connection;

/* Enough for the headers of a simple reply, a read in one chunk, or an error
 * without text; longer ones are malloc'ed. */
#define REPLY_INLINE_IOV 4
#define REPLY_INLINE_BYTES 96

/* The payload of a BLOCK_STATUS request: the length it is about and one
 * context's id, for there is one context. */
#define STATUS_PAYLOAD_SIZE 12U

struct request {
    /* As received. */
    uint16_t flags, type;
    uint64_t cookie, offset, length;
    uint64_t payload; /* bytes that follow the header */

    uint32_t error;  /* an enum nbd_error; what goes to the client ... */
    const char *why; /* ... with this text, or NULL; io.error_text beats it */
    struct io io;    /* io.buf is the request's: data read, or to be written */

    /* The reply, built by reply_build: its bytes in order. */
    struct iovec *iov;
    size_t n_iov;
    struct iovec inline_iov[REPLY_INLINE_IOV];
    uint8_t inline_bytes[REPLY_INLINE_BYTES];
    void *extra; /* malloc'ed memory that iov points into, or NULL */

    struct request *next; /* in a queue or free list */
    size_t footprint;     /* memory held until sent; outgo.c's */
};

/* Size of a request header on C, in bytes. */
uint32_t request_header_size (const struct connection *c);

/* Reads a header.  Sets everything under "as received".  -1: the magic is
 * wrong, the connection is over. */
int request_parse (const struct connection *c, const uint8_t *header,
                   struct request *r);

/* The one place where requests are checked, in the order of the table in
 * docs/requirements.md.  An enum nbd_error, with r->why set; NBD_SUCCESS: may
 * be performed. */
uint32_t request_validate (const struct connection *c, struct request *r);

/* Checks what a request's payload asks for (BLOCK_STATUS with a payload), and
 * puts the length it is about into r->length. */
uint32_t request_validate_payload (const struct connection *c,
                                   struct request *r);

/* perform.c: does what R asks for, within a backend bracket, and sets r->error
 * (and r->io.error_text). R has been validated; io.buf is there for READ and
 * WRITE. */
void request_perform (struct connection *c, struct request *r);

/* The error number to send for a back end's errno (reference: ERR rows). */
uint32_t request_error_from_errno (const struct request *r, int err);

/* reply.c: fills in the reply of R (everything is known). -1: no memory. */
int reply_build (const struct connection *c, struct request *r);

/* What a READ has read. */
static inline const uint8_t *
request_data (const struct request *r)
{
    return r->io.data ? r->io.data : r->io.buf->data;
}

/* Frees what R owns, apart from itself. */
void request_clear (struct request *r);

#endif
