/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests as they come from the wire, and whether they may be performed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "connection.h"
#include "extents.h"
#include "log.h"
#include "meta.h"
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
    uint32_t magic = get_be32 (header);

    if (magic
        != (c->extended ? NBD_EXTENDED_REQUEST_MAGIC : NBD_REQUEST_MAGIC)) {
        log_client_error ("a request begins with %#x, which is no request's "
                          "magic number here",
                          magic); /* TX-08 */
        return -1;
    }
    r->flags = get_be16 (header + 4);
    r->type = get_be16 (header + 6);
    r->cookie = get_be64 (header + 8);
    r->offset = get_be64 (header + 16);
    if (c->extended) {
        r->length = get_be64 (header + 24);
        /* QEMU's client (11.1 still) does not set the flag on WRITE, whose
         * payload is there all the same. */
        r->payload = r->type == NBD_CMD_WRITE
                             || r->flags & NBD_CMD_FLAG_PAYLOAD_LEN
                         ? r->length
                         : 0;
    } else {
        r->length = get_be32 (header + 24);
        r->payload = r->type == NBD_CMD_WRITE ? r->length : 0;
    }
    return 0;
}

/* What validation finds: an error, and a text about it for the client. */
static uint32_t
refuse (struct request *r, uint32_t error, const char *why)
{
    log_debug ("request of type %u, offset %" PRIu64 ", length %" PRIu64
               ", flags %#x refused: %s",
               r->type, r->offset, r->length, r->flags, why);
    r->why = why;
    return error;
}

static bool
is_write_kind (const struct request *r)
{
    return r->type == NBD_CMD_WRITE || r->type == NBD_CMD_TRIM
           || r->type == NBD_CMD_WRITE_ZEROES;
}

/* BLOCK_STATUS whose payload says what is asked about. */
static bool
has_status_payload (const struct connection *c, const struct request *r)
{
    return c->extended && r->type == NBD_CMD_BLOCK_STATUS
           && r->flags & NBD_CMD_FLAG_PAYLOAD_LEN;
}

/* Does LENGTH bytes at OFFSET lie in the export?  Nothing is added up here
 * that could wrap. */
static bool
in_export (const struct export *e, uint64_t offset, uint64_t length)
{
    return length > 0 && offset <= e->size && length <= e->size - offset;
}

static uint32_t
check_range (const struct connection *c, struct request *r)
{
    switch (r->type) {
    case NBD_CMD_FLUSH:
        if (r->offset != 0 || r->length != 0)
            return refuse (r, NBD_EINVAL,
                           "FLUSH takes neither offset nor length");
        return NBD_SUCCESS;
    case NBD_CMD_WRITE:
    case NBD_CMD_WRITE_ZEROES:
        if (in_export (&c->export, r->offset, r->length))
            return NBD_SUCCESS;
        if (r->length == 0)
            return refuse (r, NBD_ENOSPC, "the length is 0");
        return refuse (r, NBD_ENOSPC, /* ERR-01, TX-ZERO-22 */
                       "the range goes beyond the end of the export");
    case NBD_CMD_BLOCK_STATUS:
        if (has_status_payload (c, r))
            return NBD_SUCCESS; /* the length is the payload's */
        /* fallthrough */
    case NBD_CMD_READ:
    case NBD_CMD_TRIM:
    case NBD_CMD_CACHE:
        if (in_export (&c->export, r->offset, r->length))
            return NBD_SUCCESS;
        if (r->length == 0)
            return refuse (r, NBD_EINVAL, "the length is 0");
        return refuse (r, NBD_EINVAL, /* ERR-03, TX-BLOCKSTATUS-17 */
                       "the range goes beyond the end of the export");
    default:
        return refuse (r, NBD_EINVAL, "unknown command"); /* ERR-07 */
    }
}

static uint32_t
check_flags (const struct connection *c, struct request *r)
{
    uint32_t allowed = NBD_CMD_FLAG_FUA;

    switch (r->type) {
    case NBD_CMD_READ:
        if (c->structured)
            allowed |= NBD_CMD_FLAG_DF;
        break;
    case NBD_CMD_WRITE:
        if (c->extended)
            allowed |= NBD_CMD_FLAG_PAYLOAD_LEN;
        break;
    case NBD_CMD_WRITE_ZEROES:
        allowed |= NBD_CMD_FLAG_NO_HOLE;
        if (c->export.can[CAN_FAST_ZERO])
            allowed |= NBD_CMD_FLAG_FAST_ZERO; /* TX-ZERO-19 */
        break;
    case NBD_CMD_BLOCK_STATUS:
        allowed |= NBD_CMD_FLAG_REQ_ONE;
        if (c->extended && c->meta.allocation)
            allowed |= NBD_CMD_FLAG_PAYLOAD_LEN;
        break;
    default:
        break;
    }
    if (r->flags & ~allowed)
        return refuse (r, NBD_EINVAL, /* ERR-08, ERR-09, XH-05 */
                       "a flag that this command does not take");
    if (r->flags & NBD_CMD_FLAG_FUA && c->export.can[CAN_FUA] == LEVEL_NONE)
        return refuse (r, NBD_EINVAL, /* TX-FUA-06 */
                       "FUA is not offered on this export");
    return NBD_SUCCESS;
}

/* Limits hold for those who were told of them; the rest are served as far as
 * the back end can (COMPAT-07). */
static uint32_t
check_block_sizes (const struct connection *c, struct request *r)
{
    const struct export *e = &c->export;
    bool data = r->type == NBD_CMD_READ || r->type == NBD_CMD_WRITE;

    if (data && r->length > MAX_REQUEST_SIZE)
        return refuse (r, NBD_EINVAL, "more than 64 MiB at once");
    if (!c->block_sizes_known || r->type == NBD_CMD_FLUSH
        || has_status_payload (c, r))
        return NBD_SUCCESS;
    if (data && r->length > e->maximum)
        return refuse (r, NBD_EINVAL,
                       "more at once than the maximum block size");
    /* The end of an export need not be aligned. */
    if (r->offset % e->minimum != 0
        || (r->length % e->minimum != 0 && r->length != e->size - r->offset))
        return refuse (r, NBD_EINVAL, /* SIZE-35 */
                       "not aligned to the minimum block size");
    return NBD_SUCCESS;
}

static uint32_t
check_offered (const struct connection *c, struct request *r)
{
    const int *can = c->export.can;

    switch (r->type) {
    case NBD_CMD_FLUSH:
        return can[CAN_FLUSH] ? NBD_SUCCESS
                              : refuse (r, NBD_EINVAL, "FLUSH is not offered");
    case NBD_CMD_TRIM:
        return can[CAN_TRIM] ? NBD_SUCCESS
                             : refuse (r, NBD_EINVAL, "TRIM is not offered");
    case NBD_CMD_CACHE:
        return can[CAN_CACHE] ? NBD_SUCCESS
                              : refuse (r, NBD_EINVAL, "CACHE is not offered");
    case NBD_CMD_BLOCK_STATUS:
        if (!c->structured || !c->meta.allocation)
            return refuse (r, NBD_EINVAL, /* META-03 */
                           "no metadata context was selected");
        if (has_status_payload (c, r)
            && r->length != STATUS_PAYLOAD_SIZE) /* XH-26 */
            return refuse (r, NBD_EINVAL,
                           "a payload that names other than the selected "
                           "context");
        return NBD_SUCCESS;
    default:
        return NBD_SUCCESS;
    }
}

uint32_t
request_validate (const struct connection *c, struct request *r)
{
    uint32_t error;

    if (atomic_load (&c->stopping))
        return refuse (r, NBD_ESHUTDOWN, "the server is shutting down");
    if (is_write_kind (r) && c->export.read_only)
        return refuse (r, NBD_EPERM, "the export is read-only"); /* ERR-04 */
    error = check_range (c, r);
    if (error == NBD_SUCCESS)
        error = check_flags (c, r);
    if (error == NBD_SUCCESS)
        error = check_block_sizes (c, r);
    if (error == NBD_SUCCESS)
        error = check_offered (c, r);
    return error;
}

uint32_t
request_validate_payload (const struct connection *c, struct request *r)
{
    const uint8_t *p;

    if (!has_status_payload (c, r))
        return NBD_SUCCESS;
    p = r->io.buf->data;
    if (get_be32 (p + 8) != META_ALLOCATION_ID) /* XH-26 */
        return refuse (r, NBD_EINVAL, "a context that was not selected");
    r->length = get_be64 (p);
    if (!in_export (&c->export, r->offset, r->length)) /* XH-29 */
        return refuse (r, NBD_EINVAL,
                       "the range goes beyond the end of the export");
    return NBD_SUCCESS;
}

uint32_t
request_error_from_errno (const struct request *r, int err)
{
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
        return NBD_ENOSPC; /* ERR-02 */
    case ESHUTDOWN:
        return NBD_ESHUTDOWN;
    case ENOTSUP:
#if EOPNOTSUPP != ENOTSUP
    case EOPNOTSUPP:
#endif
        return r->type == NBD_CMD_WRITE_ZEROES /* ERR-06, TX-ZERO-14 */
                       && r->flags & NBD_CMD_FLAG_FAST_ZERO
                   ? NBD_ENOTSUP
                   : NBD_EINVAL;
    case EOVERFLOW:
        return r->type == NBD_CMD_READ /* ERR-05 */
                       && r->flags & NBD_CMD_FLAG_DF
                   ? NBD_EOVERFLOW
                   : NBD_EINVAL;
    default:
        return NBD_EINVAL;
    }
}

void
request_clear (struct request *r)
{
    buffer_put (r->io.buf);
    if (r->io.extents) {
        extents_free (r->io.extents);
        free (r->io.extents);
    }
    free (r->io.error_text);
    free (r->extra);
    r->io = (struct io){ 0 };
    r->extra = NULL;
    r->why = NULL;
    r->error = NBD_SUCCESS;
    r->iov = NULL;
    r->n_iov = 0;
}
