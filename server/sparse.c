/* SPDX-License-Identifier: BSD-3-Clause
 *
 * READ replies that leave runs of zeroes out.
 *
 * Data is looked at in blocks of 4 KiB, so that chunks begin and end at
 * multiples of 512 (TX-READ-13); nearly all blocks with data show it in their
 * first bytes.  A run counts from one block up, and from a 64th of the reply,
 * so that there are few chunks (SR-08).
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "chunk.h"
#include "connection.h"
#include "request.h"
#include "wire.h"

#define BLOCK 4096U
#define MAX_HOLES 64U

struct run {
    size_t start, end;
};

static bool
is_zero (const uint8_t *p, size_t n)
{
    static const uint8_t zeroes[16];

    if (n <= sizeof zeroes)
        return memcmp (p, zeroes, n) == 0;
    return memcmp (p, zeroes, sizeof zeroes) == 0
           && memcmp (p, p + sizeof zeroes, n - sizeof zeroes) == 0;
}

/* Fills HOLES and returns their number. */
static size_t
find_holes (const struct request *r, struct run *holes)
{
    const uint8_t *data = request_data (r);
    size_t length = (size_t) r->length;
    size_t least = length / MAX_HOLES > BLOCK ? length / MAX_HOLES : BLOCK;
    size_t at = 0, end = BLOCK - (size_t) (r->offset % BLOCK), n = 0;
    size_t zeroes_from = 0; /* the run that ends at AT began here */

    while (at < length) {
        if (end > length)
            end = length;
        if (!is_zero (data + at, end - at)) {
            if (at - zeroes_from >= least)
                holes[n++] = (struct run){ zeroes_from, at };
            zeroes_from = end;
        }
        at = end;
        end += BLOCK;
    }
    if (length - zeroes_from >= least)
        holes[n++] = (struct run){ zeroes_from, length };
    return n;
}

struct builder {
    const struct connection *c;
    struct request *r;
    uint8_t *headers; /* that are not yet part of the reply begin here */
    uint8_t *next;    /* and the next one goes here */
};

/* The chunk's header, and what comes with it in a hole's payload. */
static void
put_chunk (struct builder *b, uint16_t type, struct run run)
{
    bool data = type == NBD_REPLY_TYPE_OFFSET_DATA;
    size_t length = run.end - run.start;
    uint16_t flags =
        run.end == b->r->length ? NBD_REPLY_FLAG_DONE : 0; /* SR-12, -13 */

    b->next = chunk_put_header (b->c, b->r, b->next, flags, type,
                                data ? 8 + length : 12);
    b->next = put_be64 (b->next, b->r->offset + run.start);
    if (!data)
        b->next = put_be32 (b->next, (uint32_t) length);
}

/* Headers that follow one another are one part. */
static void
flush_headers (struct builder *b)
{
    if (b->next != b->headers)
        reply_add_part (b->r, b->headers, (size_t) (b->next - b->headers));
    b->headers = b->next;
}

static void
add_data (struct builder *b, struct run run)
{
    if (run.start == run.end)
        return; /* SR-20 */
    put_chunk (b, NBD_REPLY_TYPE_OFFSET_DATA, run);
    flush_headers (b);
    reply_add_part (b->r, request_data (b->r) + run.start, run.end - run.start);
}

/* Memory for the parts and headers of a reply with N holes: each has data
 * before it, and there may be data behind the last. */
static int
make_room (struct builder *b, size_t n)
{
    struct request *r = b->r;
    size_t chunks = 2 * n + 1, parts = 2 * n + 2;
    size_t parts_size = parts * sizeof (struct iovec);

    r->extra = malloc (parts_size + chunks * MAX_CHUNK_HEADER);
    if (!r->extra)
        return -1;
    r->iov = r->extra;
    b->headers = b->next = (uint8_t *) r->extra + parts_size;
    return 0;
}

int
sparse_build (const struct connection *c, struct request *r)
{
    struct run holes[MAX_HOLES];
    size_t n = find_holes (r, holes), i, at = 0;
    struct builder b = { .c = c, .r = r };

    if (n == 0) {
        chunk_build_read (c, r);
        return 0;
    }
    if (make_room (&b, n) == -1)
        return -1;
    for (i = 0; i < n; i++) {
        add_data (&b, (struct run){ at, holes[i].start });
        put_chunk (&b, NBD_REPLY_TYPE_OFFSET_HOLE, holes[i]);
        at = holes[i].end;
    }
    add_data (&b, (struct run){ at, (size_t) r->length });
    flush_headers (&b);
    return 0;
}
