/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Doing what a request asks for.
 */
#include <errno.h>
#include <string.h>

#include "connection.h"
#include "request.h"
#include "stats.h"
#include "wire.h"

#define ZERO_CHUNK (UINT32_C (2) << 20)

static int
call (enum stats_callback count, int (*function) (void *, struct io *),
      void *handle, struct io *io)
{
    stats_callback (count);
    return function (handle, io);
}

static int
read_into_buffer (struct connection *c, struct request *r)
{
    if (!backend->reads_in_place) {
        r->io.buf = buffer_get ((size_t) r->length);
        if (!r->io.buf)
            return ENOMEM;
    }
    return call (COUNT_PREAD, backend->pread, c->export.handle, &r->io);
}

/* Writes zeroes where the back end cannot. */
static int
write_zeroes (struct connection *c, struct io *whole)
{
    struct io io = { .offset = whole->offset, .flags = whole->flags };
    uint64_t left = whole->count;
    int err = 0;

    io.flags &= BACKEND_FLAG_FUA;
    io.buf = buffer_get (left < ZERO_CHUNK ? (size_t) left : ZERO_CHUNK);
    if (!io.buf)
        return ENOMEM;
    memset (io.buf->data, 0, io.buf->capacity);
    while (left > 0 && err == 0) {
        io.count = left < ZERO_CHUNK ? left : ZERO_CHUNK;
        err = call (COUNT_PWRITE, backend->pwrite, c->export.handle, &io);
        io.offset += io.count;
        left -= io.count;
    }
    whole->error_text = io.error_text;
    buffer_put (io.buf);
    return err;
}

static int
zero (struct connection *c, struct request *r)
{
    int err = EOPNOTSUPP;

    if (!(r->flags & NBD_CMD_FLAG_NO_HOLE))
        r->io.flags |= BACKEND_FLAG_MAY_TRIM;
    if (c->export.can[CAN_ZERO])
        err = call (COUNT_ZERO, backend->zero, c->export.handle, &r->io);
    return err == EOPNOTSUPP ? write_zeroes (c, &r->io) : err;
}

static int
dispatch (struct connection *c, struct request *r)
{
    void *handle = c->export.handle;

    switch (r->type) {
    case NBD_CMD_READ:
        return read_into_buffer (c, r);
    case NBD_CMD_WRITE:
        return call (COUNT_PWRITE, backend->pwrite, handle, &r->io);
    case NBD_CMD_FLUSH:
        return call (COUNT_FLUSH, backend->flush, handle, &r->io);
    case NBD_CMD_TRIM:
        return call (COUNT_TRIM, backend->trim, handle, &r->io);
    case NBD_CMD_WRITE_ZEROES:
        return zero (c, r);
    default:
        return EINVAL;
    }
}

static bool
writes (const struct request *r)
{
    return r->type == NBD_CMD_WRITE || r->type == NBD_CMD_TRIM
           || r->type == NBD_CMD_WRITE_ZEROES;
}

void
request_perform (struct connection *c, struct request *r)
{
    bool fua = r->flags & NBD_CMD_FLAG_FUA && writes (r);
    int err;

    r->io.offset = r->offset;
    r->io.count = r->length;
    r->io.flags = 0;
    r->io.data = NULL;
    if (fua && c->export.can[CAN_FUA] == LEVEL_NATIVE)
        r->io.flags |= BACKEND_FLAG_FUA;
    err = dispatch (c, r);
    if (err == 0 && fua && c->export.can[CAN_FUA] == LEVEL_EMULATE)
        err = call (COUNT_FLUSH, backend->flush, c->export.handle, &r->io);
    r->error = request_error_from_errno (r, err);
}
