/* SPDX-License-Identifier: BSD-3-Clause
 *
 * null SIZE: reads are zeroes, writes are dropped.  The engine by itself, the
 * upper bound in every benchmark.
 */
#include <errno.h>
#include <string.h>

#include "backend.h"
#include "extents.h"
#include "log.h"
#include "size.h"
#include "wire.h"

static int64_t size;

static int
null_config (int argc, char **argv)
{
    return size_from_words (argc, argv, &size);
}

static int
null_open (bool readonly, bool tls, const char *name, void **handle)
{
    (void) readonly, (void) tls, (void) name;
    *handle = NULL;
    return 0;
}

static int64_t
null_get_size (void *handle)
{
    (void) handle;
    return size;
}

static int
null_block_size (void *handle, uint32_t *minimum, uint32_t *preferred,
                 uint32_t *maximum)
{
    (void) handle;
    *minimum = 1;
    *preferred = 4096;
    *maximum = MAX_REQUEST_SIZE;
    return 1;
}

static int
null_can (void *handle, enum capability what)
{
    (void) handle;
    switch (what) {
    case CAN_FUA:
    case CAN_CACHE:
        return LEVEL_NATIVE;
    case IS_ROTATIONAL:
        return 0;
    default:
        return 1;
    }
}

static int
null_pread (void *handle, struct io *io)
{
    static uint8_t zeroes[MAX_REQUEST_SIZE]; /* not const: it would be in the file */

    (void) handle;
    io->data = zeroes;
    return 0;
}

static int
null_drop (void *handle, struct io *io)
{
    (void) handle, (void) io;
    return 0;
}

static int
null_extents (void *handle, struct io *io)
{
    (void) handle;
    return extents_add (io->extents, 0, (uint64_t) size,
                        NBD_STATE_HOLE | NBD_STATE_ZERO)
               ? EIO
               : 0;
}

const struct backend backend_null = {
    .name = "null",
    .reads_in_place = true,
    .config = null_config,
    .open = null_open,
    .get_size = null_get_size,
    .block_size = null_block_size,
    .can = null_can,
    .pread = null_pread,
    .pwrite = null_drop,
    .flush = null_drop,
    .trim = null_drop,
    .zero = null_drop,
    .cache = null_drop,
    .extents = null_extents,
};
