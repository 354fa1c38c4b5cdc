/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Doing what a request asks for, with what the back end has.  What it lacks is
 * made up for in pieces: zeroes are written, caching is reading, FUA is a
 * flush.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "extents.h"
#include "log.h"
#include "request.h"
#include "stats.h"
#include "wire.h"

/* Small enough for memory and for a prompt end of the server, large enough for
 * a back end that pays for each. */
#define PIECE (UINT32_C (4) << 20)

typedef int data_callback (void *handle, struct io *io);

static int
call (enum stats_callback count, data_callback *function, struct connection *c,
      struct io *io)
{
    if (!function) {
        /* Claimed by `can', but not there. */
        log_error ("a capability is claimed without the function for it");
        return EIO;
    }
    stats_callback (count);
    return function (c->export.handle, io);
}

static void
set_error_text (struct io *io, char *text)
{
    free (io->error_text);
    io->error_text = text;
}

static int
read_data (struct connection *c, struct request *r)
{
    if (!backend->reads_in_place) {
        r->io.buf = buffer_get ((size_t) r->length);
        if (!r->io.buf)
            return ENOMEM;
    }
    return call (COUNT_PREAD, backend->pread, c, &r->io);
}

/* Calls FUNCTION for WHOLE in pieces, each with BUF. */
static int
in_pieces (enum stats_callback count, data_callback *function,
           struct connection *c, struct io *whole, struct buffer *buf)
{
    struct io io = { .offset = whole->offset, .buf = buf };
    uint64_t left = whole->count;
    const uint8_t *zeroes = NULL;
    int err = 0;

    while (left > 0 && err == 0) {
        if (atomic_load (&c->stopping))
            return ESHUTDOWN;
        io.count = left < PIECE ? left : PIECE;
        io.flags = whole->flags & BACKEND_FLAG_FUA;
        /* A plugin that keeps a view of the buffer keeps its memory, too, and
         * the buffer has other memory from then on. */
        if (count == COUNT_PWRITE && zeroes != buf->data) {
            memset (buf->data, 0, (size_t) io.count);
            zeroes = buf->data;
        }
        err = call (count, function, c, &io);
        io.offset += io.count;
        left -= io.count;
    }
    set_error_text (whole, io.error_text);
    return err;
}

static int
with_buffer (enum stats_callback count, data_callback *function,
             struct connection *c, struct io *whole)
{
    size_t size = whole->count < PIECE ? (size_t) whole->count : PIECE;
    struct buffer *buf = buffer_get (size);
    int err = buf ? in_pieces (count, function, c, whole, buf) : ENOMEM;

    buffer_put (buf);
    return err;
}

static int
zero (struct connection *c, struct request *r)
{
    struct io *io = &r->io;
    bool fast = r->flags & NBD_CMD_FLAG_FAST_ZERO;
    int err = EOPNOTSUPP;

    if (!(r->flags & NBD_CMD_FLAG_NO_HOLE))
        io->flags |= BACKEND_FLAG_MAY_TRIM;
    if (fast)
        io->flags |= BACKEND_FLAG_FAST_ZERO;
    if (c->export.can[CAN_ZERO])
        err = call (COUNT_ZERO, backend->zero, c, io);
    if (err != EOPNOTSUPP && err != ENOTSUP)
        return err;
    if (fast)
        return EOPNOTSUPP; /* writing is what would not be fast: TX-ZERO-04 */
    set_error_text (io, NULL);
    err = with_buffer (COUNT_PWRITE, backend->pwrite, c, io);
    return err;
}

static int
cache (struct connection *c, struct request *r)
{
    if (c->export.can[CAN_CACHE] == LEVEL_NATIVE)
        return call (COUNT_CACHE, backend->cache, c, &r->io);
    return with_buffer (COUNT_PREAD, backend->pread, c, &r->io);
}

static int
block_status (struct connection *c, struct request *r)
{
    struct extents *x = malloc (sizeof *x);
    struct io *io = &r->io;
    bool one = r->flags & NBD_CMD_FLAG_REQ_ONE;
    int err = 0;

    if (!x)
        return ENOMEM;
    extents_init (x, io->offset, io->count, c->export.size, one);
    io->extents = x;
    if (one)
        io->flags |= BACKEND_FLAG_REQ_ONE;

    if (c->export.can[CAN_EXTENTS])
        err = call (COUNT_EXTENTS, backend->extents, c, io);
    else if (extents_add (x, io->offset, io->count, 0) == -1)
        err = ENOMEM;
    if (err == 0 && x->count == 0) { /* TX-BLOCKSTATUS-06 */
        log_error ("extents: the list says nothing about the range that was "
                   "asked for");
        err = EINVAL;
    }
    return err;
}

static bool
writes (const struct request *r)
{
    return r->type == NBD_CMD_WRITE || r->type == NBD_CMD_TRIM
           || r->type == NBD_CMD_WRITE_ZEROES;
}

static int
dispatch (struct connection *c, struct request *r)
{
    switch (r->type) {
    case NBD_CMD_READ:
        return read_data (c, r);
    case NBD_CMD_WRITE:
        return call (COUNT_PWRITE, backend->pwrite, c, &r->io);
    case NBD_CMD_FLUSH:
        return call (COUNT_FLUSH, backend->flush, c, &r->io);
    case NBD_CMD_TRIM:
        return call (COUNT_TRIM, backend->trim, c, &r->io);
    case NBD_CMD_CACHE:
        return cache (c, r);
    case NBD_CMD_WRITE_ZEROES:
        return zero (c, r);
    case NBD_CMD_BLOCK_STATUS:
        return block_status (c, r);
    default:
        return EINVAL; /* request_validate lets no other through */
    }
}

/* FUA for a back end that has none of its own. */
static int
flush_after (struct connection *c, struct request *r)
{
    struct io flush = { 0 };
    int err = call (COUNT_FLUSH, backend->flush, c, &flush);

    set_error_text (&r->io, flush.error_text);
    return err;
}

void
request_perform (struct connection *c, struct request *r)
{
    /* On what writes nothing FUA means nothing (TX-FUA-05). */
    bool fua = r->flags & NBD_CMD_FLAG_FUA && writes (r);
    int err;

    r->error = request_validate_payload (c, r);
    if (r->error != NBD_SUCCESS)
        return;
    r->io.offset = r->offset;
    r->io.count = r->length;
    r->io.flags = 0;
    r->io.data = NULL;
    if (fua && c->export.can[CAN_FUA] == LEVEL_NATIVE)
        r->io.flags |= BACKEND_FLAG_FUA;
    err = dispatch (c, r);
    if (err == 0 && fua && c->export.can[CAN_FUA] == LEVEL_EMULATE)
        err = flush_after (c, r);
    r->error = request_error_from_errno (r, err);
    if (r->error == NBD_EINVAL)
        r->why = "the back end did not do it"; /* the log has the reason */
}
