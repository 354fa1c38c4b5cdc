/* SPDX-License-Identifier: BSD-3-Clause
 *
 * memory SIZE: a sparse RAM disk, shared by all connections.
 *
 * One anonymous mapping without reserved memory: the kernel already is a
 * sparse array.  Trimming gives whole pages back to it.  Which pages hold data
 * is kept beside it, a byte a page, set by writes and cleared by trims.
 * Overlapping requests in flight may mix, as on a real disk.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "disk.h"
#include "extents.h"
#include "log.h"
#include "wire.h"

#define PAGE UINT64_C (65536) /* the unit of allocation */

static uint8_t *memory;
static atomic_uchar *allocated; /* one for each PAGE */

static uint64_t
pages (void)
{
    return (uint64_t) disk_size / PAGE + 1;
}

static void *
map (uint64_t len)
{
    void *p;

    if (len > SIZE_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    p = mmap (NULL, (size_t) len, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int
memory_get_ready (void)
{
    memory = map (pages () * PAGE);
    allocated = map (pages ());
    if (!memory || !allocated) {
        log_error ("size %lld: cannot reserve address space: %m",
                   (long long) disk_size);
        return -1;
    }
    return 0;
}

static void
memory_unload (void)
{
    if (memory)
        munmap (memory, (size_t) (pages () * PAGE));
    if (allocated)
        munmap (allocated, (size_t) pages ());
}

/* Requests that overlap in time and place race here, as they do on a disk; what
 * comes of it is the client's affair.  The thread sanitizer cannot know that:
 * in its builds the memory is written where it does not look. */
#if defined __has_feature
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#ifdef __SANITIZE_THREAD__
__attribute__ ((no_sanitize ("thread"))) static void
memory_write (uint64_t offset, const uint8_t *data, uint64_t count)
{
    volatile uint8_t *to = memory + offset; /* so that this is no memcpy */

    for (uint64_t i = 0; i < count; i++)
        to[i] = data ? data[i] : 0;
}
#else
/* DATA is NULL for zeroes. */
static void
memory_write (uint64_t offset, const uint8_t *data, uint64_t count)
{
    if (data)
        memcpy (memory + offset, data, (size_t) count);
    else
        memset (memory + offset, 0, (size_t) count);
}
#endif

/* The reply is sent straight from the disk.  A write that comes in between
 * overlaps the read, whose reply is not out yet: either content is right. */
static int
memory_pread (void *handle, struct io *io)
{
    (void) handle;
    io->data = memory + io->offset;
    return 0;
}

static void
mark (uint64_t offset, uint64_t count, unsigned char value)
{
    for (uint64_t p = offset / PAGE; p <= (offset + count - 1) / PAGE; p++)
        atomic_store_explicit (&allocated[p], value, memory_order_release);
}

static int
memory_pwrite (void *handle, struct io *io)
{
    (void) handle;
    memory_write (io->offset, io->buf->data, io->count);
    mark (io->offset, io->count, 1);
    return 0;
}

/* Whole pages go back to the system, the ragged ends are overwritten.  A page
 * that is written to at the same time may lose that write, as the protocol
 * allows for overlapping requests.  A mark is cleared before the page is given
 * back, and set after it was written: so no page is reported as a hole for
 * good while it holds data (META-BASE-12). */
static int
memory_zero (void *handle, struct io *io)
{
    uint64_t end = io->offset + io->count;
    uint64_t first = (io->offset + PAGE - 1) / PAGE * PAGE;
    uint64_t last = end / PAGE * PAGE;

    (void) handle;
    if (end == (uint64_t) disk_size)
        last = (end + PAGE - 1) / PAGE * PAGE;
    if (!(io->flags & BACKEND_FLAG_MAY_TRIM) || first >= last) {
        memory_write (io->offset, NULL, io->count);
        mark (io->offset, io->count, 1);
        return 0;
    }
    memory_write (io->offset, NULL, first - io->offset);
    if (last < end)
        memory_write (last, NULL, end - last);
    mark (first, last - first, 0);
    if (madvise (memory + first, (size_t) (last - first), MADV_DONTNEED)
        == -1) {
        log_error ("memory: zero: madvise: %m");
        return EIO;
    }
    return 0;
}

static int
memory_trim (void *handle, struct io *io)
{
    struct io zero = *io;

    zero.flags |= BACKEND_FLAG_MAY_TRIM;
    return memory_zero (handle, &zero);
}

static int
memory_extents (void *handle, struct io *io)
{
    uint64_t at = io->offset / PAGE * PAGE, end = io->offset + io->count;

    (void) handle;
    while (at < end) {
        uint64_t from = at;
        unsigned char data = atomic_load (&allocated[at / PAGE]);

        do
            at += PAGE;
        while (at < end && atomic_load (&allocated[at / PAGE]) == data);
        if (extents_add (io->extents, from, at - from,
                         data ? 0 : NBD_STATE_HOLE | NBD_STATE_ZERO)
            == -1)
            return EIO;
    }
    return 0;
}

const struct backend backend_memory = {
    .name = "memory",
    .reads_in_place = true,
    .config = disk_config,
    .get_ready = memory_get_ready,
    .unload = memory_unload,
    .open = disk_open,
    .get_size = disk_get_size,
    .block_size = disk_block_size,
    .can = disk_can,
    .pread = memory_pread,
    .pwrite = memory_pwrite,
    .flush = disk_nothing,
    .trim = memory_trim,
    .zero = memory_zero,
    .cache = disk_nothing,
    .extents = memory_extents,
};
