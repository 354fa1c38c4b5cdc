/* SPDX-License-Identifier: BSD-3-Clause
 *
 * null SIZE: reads are zeroes, writes are dropped.  The engine by itself, the
 * upper bound in every benchmark.
 */
#include <errno.h>

#include "disk.h"
#include "extents.h"
#include "wire.h"

static int
null_pread (void *handle, struct io *io)
{
    /* Were it const, it would be part of the program file. */
    static uint8_t zeroes[MAX_REQUEST_SIZE];

    (void) handle;
    io->data = zeroes;
    return 0;
}

static int
null_extents (void *handle, struct io *io)
{
    (void) handle;
    return extents_add (io->extents, 0, (uint64_t) disk_size,
                        NBD_STATE_HOLE | NBD_STATE_ZERO)
               ? EIO
               : 0;
}

const struct backend backend_null = {
    .name = "null",
    .reads_in_place = true,
    .config = disk_config,
    .open = disk_open,
    .get_size = disk_get_size,
    .block_size = disk_block_size,
    .can = disk_can,
    .pread = null_pread,
    .pwrite = disk_nothing,
    .flush = disk_nothing,
    .trim = disk_nothing,
    .zero = disk_nothing,
    .cache = disk_nothing,
    .extents = null_extents,
};
