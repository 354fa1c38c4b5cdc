/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a back end says about a range for BLOCK_STATUS: a list of extents that
 * follow one another, checked as they are added.
 */
#ifndef NBDSPEC_EXTENTS_H
#define NBDSPEC_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At most so many descriptors go into one reply (SR-35). */
#define MAX_EXTENTS (UINT32_C (1) << 20)

struct extent {
    uint64_t length;
    uint32_t type; /* NBD_STATE_* */
};

struct extents {
    uint64_t offset, end; /* the range asked for */
    uint64_t size;        /* of the export: nothing is said beyond it */
    bool one;             /* a single extent within the range is wanted */

    uint64_t next;    /* where the next one has to begin ... */
    bool begun;       /* ... once there was a first one */
    uint64_t covered; /* the list reaches from `offset' to here */
    bool closed;      /* nothing more can be of interest */
    struct extent *list;
    size_t count, capacity;
};

/* For COUNT bytes at OFFSET of an export of SIZE bytes. */
void extents_init (struct extents *x, uint64_t offset, uint64_t count,
                   uint64_t size, bool one);
void extents_free (struct extents *x);

/* Adds the back end's next extent.  The first may begin before the range,
 * each other one begins where its predecessor ended; what lies outside is cut
 * off, empty ones are skipped, equal neighbours become one.  -1, after
 * logging: the list is bad or there is no memory, and the request fails. */
int extents_add (struct extents *x, uint64_t offset, uint64_t length,
                 uint32_t type);

#endif
