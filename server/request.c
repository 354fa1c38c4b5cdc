/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading and checking requests.
 */
#include <errno.h>
#include <stdlib.h>

#include "connection.h"
#include "log.h"
#include "request.h"
#include "wire.h"

uint32_t
request_header_size (const struct connection *c)
{
    return c->extended ? NBD_EXTENDED_REQUEST_SIZE : NBD_REQUEST_SIZE;
}

int
request_parse (const struct connection *c, const uint8_t *header,
               struct request *r)
{
    (void) c;
    if (get_be32 (header) != NBD_REQUEST_MAGIC) {
        log_client_error ("request magic 0x%08x where 0x%08x was expected: "
                          "closing the connection",
                          get_be32 (header), NBD_REQUEST_MAGIC);
        return -1;
    }
    r->flags = get_be16 (header + 4);
    r->type = get_be16 (header + 6);
    r->cookie = get_be64 (header + 8);
    r->offset = get_be64 (header + 16);
    r->length = get_be32 (header + 24);
    r->payload = r->type == NBD_CMD_WRITE ? r->length : 0;
    return 0;
}

static uint32_t
range_error (const struct request *r)
{
    return r->type == NBD_CMD_WRITE || r->type == NBD_CMD_WRITE_ZEROES
               ? NBD_ENOSPC
               : NBD_EINVAL;
}

uint32_t
request_validate (const struct connection *c, const struct request *r)
{
    const struct export *e = &c->export;
    uint16_t allowed = NBD_CMD_FLAG_FUA;

    switch (r->type) {
    case NBD_CMD_WRITE:
    case NBD_CMD_TRIM:
    case NBD_CMD_WRITE_ZEROES:
        if (e->read_only)
            return NBD_EPERM;
        break;
    default:
        break;
    }

    switch (r->type) {
    case NBD_CMD_READ:
    case NBD_CMD_WRITE:
    case NBD_CMD_TRIM:
    case NBD_CMD_WRITE_ZEROES:
        if (r->length == 0 || r->offset > e->size
            || r->length > e->size - r->offset)
            return range_error (r);
        break;
    case NBD_CMD_FLUSH:
        if (r->offset || r->length)
            return NBD_EINVAL;
        break;
    default:
        return NBD_EINVAL;
    }

    if (r->type == NBD_CMD_WRITE_ZEROES)
        allowed |= NBD_CMD_FLAG_NO_HOLE;
    if (r->flags & ~allowed)
        return NBD_EINVAL;
    if (r->flags & NBD_CMD_FLAG_FUA && e->can[CAN_FUA] == LEVEL_NONE)
        return NBD_EINVAL;
    if ((r->type == NBD_CMD_READ || r->type == NBD_CMD_WRITE)
        && r->length > MAX_REQUEST_SIZE)
        return NBD_EINVAL;
    if ((r->type == NBD_CMD_FLUSH && !e->can[CAN_FLUSH])
        || (r->type == NBD_CMD_TRIM && !e->can[CAN_TRIM]))
        return NBD_EINVAL;
    return NBD_SUCCESS;
}

uint32_t
request_error_from_errno (const struct request *r, int err)
{
    (void) r;
    switch (err) {
    case 0:
        return NBD_SUCCESS;
    case EPERM:
    case EROFS:
        return NBD_EPERM;
    case EIO:
        return NBD_EIO;
    case ENOMEM:
        return NBD_ENOMEM;
    case ENOSPC:
    case EFBIG:
    case EDQUOT:
        return NBD_ENOSPC;
    case ESHUTDOWN:
        return NBD_ESHUTDOWN;
    default:
        return NBD_EINVAL;
    }
}

void
request_clear (struct request *r)
{
    buffer_put (r->io.buf);
    free (r->io.error_text);
    free (r->extra);
    if (r->iov != r->inline_iov)
        free (r->iov);
    r->io.buf = NULL;
    r->io.error_text = NULL;
    r->extra = NULL;
    r->iov = NULL;
    r->n_iov = 0;
}
