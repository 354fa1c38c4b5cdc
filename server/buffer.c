/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The buffer pool, see buffer.h.
 *
 * Memory comes in classes, each four times the one below, and is mapped, not
 * malloc'ed, from 128 KiB up, so that what the pool gives up goes back to the
 * system.  The pool keeps at most KEEP_BYTES of unused memory, of the classes
 * that were asked for last: a few large requests must not leave the small ones
 * without a pool.  A struct buffer itself is never freed while the server runs:
 * its owner can only be let go of under the GIL, which the pool does not know.
 * There are never more of them than there were requests at once.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "buffer.h"
#include "cleanup.h"

#define KEEP_BYTES ((size_t) 32 << 20)
#define MAP_FROM ((size_t) 128 << 10)
#define HUGE_PAGE ((size_t) 2 << 20)
#define PAGE ((size_t) 4096)

/* 4 KiB, 16 KiB, ... 64 MiB. */
#define N_CLASSES 8

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *pool[N_CLASSES]; /* with memory of that class */
static struct buffer *bare;            /* without memory */
static size_t kept;                    /* bytes in pool */
static uint64_t gets, last_get[N_CLASSES];

static unsigned
class_of (size_t len)
{
    unsigned class = 0;

    while (class < N_CLASSES - 1 && PAGE << (2 * class) < len)
        class++;
    return class;
}

static size_t
class_size (unsigned class)
{
    return PAGE << (2 * class);
}

static uint8_t *
memory_new (size_t capacity)
{
    void *p;

    if (capacity < MAP_FROM)
        return aligned_alloc (PAGE, capacity);
    p = mmap (NULL, capacity, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (capacity >= HUGE_PAGE)
        madvise (p, capacity, MADV_HUGEPAGE); /* a hint: failing is fine */
    return p;
}

void
buffer_memory_free (uint8_t *data, size_t capacity)
{
    if (capacity < MAP_FROM)
        free (data);
    else if (data)
        munmap (data, capacity);
}

static struct buffer *
pop (struct buffer **list)
{
    struct buffer *b = *list;

    if (b)
        *list = b->next;
    return b;
}

static void
push (struct buffer **list, struct buffer *b)
{
    b->next = *list;
    *list = b;
}

struct buffer *
buffer_get (size_t len)
{
    unsigned class = class_of (len);
    struct buffer *b;

    if (len > class_size (class))
        return NULL;
    {
        SCOPED_LOCK (&pool_lock);
        last_get[class] = ++gets;
        b = pop (&pool[class]);
        if (b) {
            kept -= b->capacity;
            return b;
        }
        b = pop (&bare);
    }
    if (!b && !(b = calloc (1, sizeof *b)))
        return NULL;
    b->capacity = class_size (class);
    b->data = memory_new (b->capacity);
    if (!b->data) {
        buffer_put (b);
        return NULL;
    }
    return b;
}

/* With pool_lock held: a buffer of the class that was asked for longest ago,
 * and longer ago than class MINE.  NULL: there is none. */
static struct buffer *
least_wanted (unsigned mine)
{
    unsigned least = mine;

    for (unsigned i = 0; i < N_CLASSES; i++)
        if (pool[i] && last_get[i] < last_get[least])
            least = i;
    return least == mine ? NULL : pop (&pool[least]);
}

/* With pool_lock held: B into the pool.  Returns the buffers whose memory the
 * pool has no room for. */
static struct buffer *
keep (struct buffer *b)
{
    unsigned class = class_of (b->capacity);
    struct buffer *surplus = NULL, *other;

    if (!b->data || b->capacity > KEEP_BYTES) {
        push (&surplus, b);
        return surplus;
    }
    while (kept + b->capacity > KEEP_BYTES && (other = least_wanted (class))) {
        kept -= other->capacity;
        push (&surplus, other);
    }
    if (kept + b->capacity > KEEP_BYTES) {
        push (&surplus, b);
    } else {
        kept += b->capacity;
        push (&pool[class], b);
    }
    return surplus;
}

void
buffer_put (struct buffer *b)
{
    struct buffer *surplus;

    if (!b)
        return;
    {
        SCOPED_LOCK (&pool_lock);
        surplus = keep (b);
    }
    while ((b = pop (&surplus))) {
        buffer_memory_free (b->data, b->capacity);
        b->data = NULL;
        b->capacity = 0;
        SCOPED_LOCK (&pool_lock);
        push (&bare, b);
    }
}

uint8_t *
buffer_swap_memory (struct buffer *b)
{
    uint8_t *old = b->data, *fresh = memory_new (b->capacity);

    if (!fresh)
        return NULL;
    b->data = fresh;
    return old;
}

static void
forget_owners (struct buffer *list, void (*drop) (void *owner))
{
    for (; list; list = list->next) {
        if (list->owner)
            drop (list->owner);
        list->owner = NULL;
    }
}

void
buffer_forget_owners (void (*drop) (void *owner))
{
    for (unsigned i = 0; i < N_CLASSES; i++)
        forget_owners (pool[i], drop);
    forget_owners (bare, drop);
}

static void
free_list (struct buffer **list)
{
    struct buffer *b;

    while ((b = pop (list))) {
        buffer_memory_free (b->data, b->capacity);
        free (b);
    }
}

void
buffer_pool_free (void)
{
    for (unsigned i = 0; i < N_CLASSES; i++)
        free_list (&pool[i]);
    free_list (&bare);
    kept = 0;
}
