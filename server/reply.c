/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Building replies.
 */
#include "connection.h"
#include "request.h"
#include "wire.h"

static void
add_part (struct request *r, void *base, size_t len)
{
    r->iov[r->n_iov++] = (struct iovec){ base, len };
}

int
reply_build (const struct connection *c, struct request *r)
{
    uint8_t *p = r->inline_bytes;

    (void) c;
    r->iov = r->inline_iov;
    r->n_iov = 0;
    p = put_be32 (p, NBD_SIMPLE_REPLY_MAGIC);
    p = put_be32 (p, r->error);
    put_be64 (p, r->cookie);
    add_part (r, r->inline_bytes, NBD_SIMPLE_REPLY_SIZE);
    if (r->type == NBD_CMD_READ && r->error == NBD_SUCCESS)
        add_part (r, r->io.buf->data, (size_t) r->length);
    return 0;
}
