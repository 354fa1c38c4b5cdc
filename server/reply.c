/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Building replies.
 */
#include "connection.h"
#include "request.h"
#include "wire.h"

static void
add_part (struct request *r, const void *base, size_t len)
{
    r->iov[r->n_iov++] = (struct iovec){ (void *) base, len };
}

static void
build_simple (struct request *r)
{
    uint8_t *p = r->inline_bytes;

    p = put_be32 (p, NBD_SIMPLE_REPLY_MAGIC);
    p = put_be32 (p, r->error);
    put_be64 (p, r->cookie);
    add_part (r, r->inline_bytes, NBD_SIMPLE_REPLY_SIZE);
}

static uint8_t *
put_chunk_header (uint8_t *p, const struct request *r, uint16_t type,
                  uint32_t length)
{
    p = put_be32 (p, NBD_STRUCTURED_REPLY_MAGIC);
    p = put_be16 (p, NBD_REPLY_FLAG_DONE);
    p = put_be16 (p, type);
    p = put_be64 (p, r->cookie);
    return put_be32 (p, length);
}

static void
build_structured (struct request *r)
{
    uint8_t *p = r->inline_bytes;

    if (r->error) {
        p = put_chunk_header (p, r, NBD_REPLY_TYPE_ERROR, 6);
        p = put_be32 (p, r->error);
        p = put_be16 (p, 0);
    } else if (r->type == NBD_CMD_READ) {
        p = put_chunk_header (p, r, NBD_REPLY_TYPE_OFFSET_DATA,
                              (uint32_t) r->length + 8);
        p = put_be64 (p, r->offset);
    } else {
        p = put_chunk_header (p, r, NBD_REPLY_TYPE_NONE, 0);
    }
    add_part (r, r->inline_bytes, (size_t) (p - r->inline_bytes));
}

int
reply_build (const struct connection *c, struct request *r)
{
    r->iov = r->inline_iov;
    r->n_iov = 0;
    if (c->structured)
        build_structured (r);
    else
        build_simple (r);
    if (r->type == NBD_CMD_READ && r->error == NBD_SUCCESS)
        add_part (r, request_data (r), (size_t) r->length);
    return 0;
}
