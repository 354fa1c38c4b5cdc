/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The buffer pool: page-aligned memory for request data, last in first out, so
 * that a buffer is still in the processor's cache when it is used again.
 *
 * A buffer can have an owner, which is the Python bridge's exporter object for
 * it: made once, kept as long as the buffer lives.  The pool knows nothing of
 * Python and never calls into it; its lock is a leaf, which may be taken with
 * the GIL held.
 */
#ifndef NBDSPEC_BUFFER_H
#define NBDSPEC_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct buffer {
    uint8_t *data;       /* page-aligned */
    size_t capacity;     /* bytes at data, a size class of the pool */
    void *owner;         /* the bridge's exporter object, or NULL */
    struct buffer *next; /* in the pool */
};

/* A buffer with room for LEN bytes (LEN > 0); its content is undefined.
 * Returns NULL when there is no memory. */
struct buffer *buffer_get (size_t len);

/* Back into the pool.  NULL is allowed. */
void buffer_put (struct buffer *b);

/* Takes B's memory out of it and gives B new memory of the same capacity, with
 * undefined content.  The caller has the old memory from now on, and gives it
 * back with buffer_memory_free.  Returns NULL, with B unchanged, when there is
 * no memory. */
uint8_t *buffer_swap_memory (struct buffer *b);
void buffer_memory_free (uint8_t *data, size_t capacity);

/* Calls DROP for the owner of each buffer in the pool and forgets it.  Called
 * once, at the end, when no request is under way. */
void buffer_forget_owners (void (*drop) (void *owner));

/* Frees what the pool keeps. */
void buffer_pool_free (void);

#endif
