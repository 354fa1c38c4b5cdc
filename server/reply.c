/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Building replies: which kind, and all but the chunks of a sparse read
 * (sparse.c).
 */
#include <stdlib.h>
#include <string.h>

#include "chunk.h"
#include "connection.h"
#include "extents.h"
#include "meta.h"
#include "request.h"
#include "text.h"
#include "wire.h"

/* A longer text says nothing that the log does not say better (STR-02). */
#define MAX_ERROR_TEXT 256U

/* A descriptor of 32 bits reaches at most so far; a multiple of all minimum
 * block sizes (TX-BLOCKSTATUS-09, -10). */
#define MAX_STATUS_LENGTH UINT32_C (0xffff0000)

void
reply_add_part (struct request *r, const void *base, size_t len)
{
    /* Nothing is written through a part of a reply. */
    r->iov[r->n_iov++] = (struct iovec){ (void *) (uintptr_t) base, len };
}

uint8_t *
chunk_put_header (const struct connection *c, const struct request *r,
                  uint8_t *p, uint16_t flags, uint16_t type, uint64_t length)
{
    p = put_be32 (p, c->extended ? NBD_EXTENDED_REPLY_MAGIC
                                 : NBD_STRUCTURED_REPLY_MAGIC);
    p = put_be16 (p, flags);
    p = put_be16 (p, type);
    p = put_be64 (p, r->cookie); /* TX-04, XH-08 */
    if (!c->extended)
        return put_be32 (p, (uint32_t) length);
    p = put_be64 (p, r->offset); /* XH-07 */
    return put_be64 (p, length);
}

/* The whole reply, in one chunk whose payload is PAYLOAD bytes behind what
 * the caller puts where the result points to. */
static uint8_t *
put_only_header (const struct connection *c, struct request *r, uint16_t type,
                 uint64_t length)
{
    return chunk_put_header (c, r, r->inline_bytes, NBD_REPLY_FLAG_DONE, type,
                             length);
}

static void
add_inline (struct request *r, const uint8_t *end)
{
    reply_add_part (r, r->inline_bytes, (size_t) (end - r->inline_bytes));
}

static void
build_simple (struct request *r)
{
    uint8_t *p = r->inline_bytes;

    p = put_be32 (p, NBD_SIMPLE_REPLY_MAGIC);
    p = put_be32 (p, r->error);
    add_inline (r, put_be64 (p, r->cookie));
    if (r->type == NBD_CMD_READ && r->error == NBD_SUCCESS)
        reply_add_part (r, request_data (r), (size_t) r->length);
}

static const char *
error_text (const struct request *r)
{
    if (r->io.error_text)
        return r->io.error_text;
    if (r->why)
        return r->why;
    switch (r->error) {
    case NBD_EPERM:
        return "not permitted";
    case NBD_EIO:
        return "input or output failed";
    case NBD_ENOMEM:
        return "no memory";
    case NBD_ENOSPC:
        return "no space left";
    case NBD_EOVERFLOW:
        return "too large";
    case NBD_ENOTSUP:
        return "zeroing is not fast here";
    case NBD_ESHUTDOWN:
        return "the server is shutting down";
    default:
        return "invalid request";
    }
}

static void
build_error (const struct connection *c, struct request *r)
{
    const char *text = error_text (r);
    size_t length = text_cut (text, strlen (text), MAX_ERROR_TEXT);
    uint8_t *p = put_only_header (c, r, NBD_REPLY_TYPE_ERROR, 6 + length);

    p = put_be32 (p, r->error);
    add_inline (r, put_be16 (p, (uint16_t) length));
    reply_add_part (r, text, length); /* which lives as long as R */
}

void
chunk_build_read (const struct connection *c, struct request *r)
{
    uint8_t *p =
        put_only_header (c, r, NBD_REPLY_TYPE_OFFSET_DATA, 8 + r->length);

    add_inline (r, put_be64 (p, r->offset));
    reply_add_part (r, request_data (r), (size_t) r->length);
}

/* How many of the extents fit: into the limit on their number, into a payload
 * that the client was told is the largest (SR-18), and, with 32 bits, up to
 * the first that has to be cut, for what follows would not be next to it. */
static size_t
count_extents (const struct connection *c, const struct extents *x)
{
    size_t size = c->extended ? 16 : 8, n = x->count, i;

    if (c->block_sizes_known) {
        size_t room = (c->export.maximum - 8) / size;

        if (n > room)
            n = room;
    }
    if (!c->extended)
        for (i = 0; i < n; i++)
            if (x->list[i].length > MAX_STATUS_LENGTH)
                return i + 1;
    return n;
}

static int
build_block_status (const struct connection *c, struct request *r)
{
    const struct extents *x = r->io.extents;
    size_t n = count_extents (c, x), i;
    size_t size = (c->extended ? 16 : 8) * n;
    uint8_t *p, *status;

    status = r->extra = malloc (size);
    if (!status)
        return -1;
    if (c->extended) {
        p = put_only_header (c, r, NBD_REPLY_TYPE_BLOCK_STATUS_EXT, 8 + size);
        p = put_be32 (p, META_ALLOCATION_ID);
        add_inline (r, put_be32 (p, (uint32_t) n));
    } else {
        p = put_only_header (c, r, NBD_REPLY_TYPE_BLOCK_STATUS, 4 + size);
        add_inline (r, put_be32 (p, META_ALLOCATION_ID));
    }
    for (i = 0; i < n; i++) {
        uint64_t length = x->list[i].length;

        if (c->extended) {
            status = put_be64 (status, length);
            status = put_be64 (status, x->list[i].type);
        } else {
            if (length > MAX_STATUS_LENGTH)
                length = MAX_STATUS_LENGTH;
            status = put_be32 (status, (uint32_t) length);
            status = put_be32 (status, x->list[i].type);
        }
    }
    reply_add_part (r, r->extra, size);
    return 0;
}

static int
build_chunks (const struct connection *c, struct request *r)
{
    if (r->error != NBD_SUCCESS) {
        build_error (c, r); /* SR-03, SR-04 */
        return 0;
    }
    switch (r->type) {
    case NBD_CMD_READ:
        if (r->length >= SPARSE_FROM && !(r->flags & NBD_CMD_FLAG_DF))
            return sparse_build (c, r);
        chunk_build_read (c, r);
        return 0;
    case NBD_CMD_BLOCK_STATUS:
        return build_block_status (c, r);
    default:
        if (c->extended) /* XH-06 */
            add_inline (r, put_only_header (c, r, NBD_REPLY_TYPE_NONE, 0));
        else
            build_simple (r); /* shorter, and allowed: TX-11 */
        return 0;
    }
}

int
reply_build (const struct connection *c, struct request *r)
{
    r->iov = r->inline_iov;
    r->n_iov = 0;
    if (c->structured)
        return build_chunks (c, r);
    build_simple (r);
    return 0;
}
