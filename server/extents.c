/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lists of extents.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "extents.h"
#include "log.h"
#include "wire.h"

void
extents_init (struct extents *x, uint64_t offset, uint64_t count, uint64_t size,
              bool one)
{
    memset (x, 0, sizeof *x);
    x->offset = offset;
    x->end = offset + count; /* the request was validated: no wrap */
    x->size = size;
    x->one = one;
    x->covered = offset;
}

void
extents_free (struct extents *x)
{
    free (x->list);
    x->list = NULL;
    x->count = x->capacity = 0;
}

static int
append (struct extents *x, uint64_t length, uint32_t type)
{
    if (x->count == x->capacity) {
        size_t capacity = x->capacity ? 2 * x->capacity : 16;
        struct extent *list = realloc (x->list, capacity * sizeof *list);

        if (!list) {
            log_error ("extents: no memory for %zu extents", capacity);
            return -1;
        }
        x->list = list;
        x->capacity = capacity;
    }
    x->list[x->count++] = (struct extent){ .length = length, .type = type };
    return 0;
}

/* Takes over what lies between the place that the list has reached and END. */
static int
extend (struct extents *x, uint64_t end, uint32_t type)
{
    uint64_t length;
    struct extent *last = x->count ? &x->list[x->count - 1] : NULL;

    if (end > x->size)
        end = x->size;
    if (x->one && end > x->end)
        end = x->end; /* SR-32 */
    if (end <= x->covered)
        return 0;
    length = end - x->covered;

    if (last && last->type == type) {
        last->length += length; /* TX-BLOCKSTATUS-07 */
    } else if (last
               && (x->one || x->covered >= x->end || x->count == MAX_EXTENTS)) {
        /* Only the last extent may reach beyond the range: another one that
         * begins at its end would break the sum rule (SR-33). */
        x->closed = true;
        return 0;
    } else if (append (x, length, type) == -1) {
        return -1;
    }
    x->covered = end;
    if (x->covered >= x->size || (x->one && x->covered >= x->end))
        x->closed = true;
    return 0;
}

int
extents_add (struct extents *x, uint64_t offset, uint64_t length, uint32_t type)
{
    uint64_t end = length > UINT64_MAX - offset ? UINT64_MAX : offset + length;

    if (length == 0)
        return 0;
    if (x->begun && offset != x->next) {
        log_error ("extents: an extent at offset %" PRIu64
                   " does not follow its predecessor, which ends at %" PRIu64,
                   offset, x->next);
        return -1;
    }
    if (!x->begun && offset > x->offset) {
        log_error ("extents: the first extent begins at offset %" PRIu64
                   ", after %" PRIu64 " which was asked for",
                   offset, x->offset);
        return -1;
    }
    x->begun = true;
    x->next = end;
    if (x->closed)
        return 0;
    /* Only the two bits that base:allocation defines (META-BASE-10). */
    return extend (x, end, type & (NBD_STATE_HOLE | NBD_STATE_ZERO));
}
