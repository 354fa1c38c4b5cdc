/* SPDX-License-Identifier: BSD-3-Clause
 *
 * See disk.h.
 */
#include "disk.h"
#include "size.h"
#include "wire.h"

int64_t disk_size;

int
disk_config (int argc, char **argv)
{
    return size_from_words (argc, argv, &disk_size);
}

int
disk_open (bool readonly, bool tls, const char *name, void **handle)
{
    (void) readonly, (void) tls, (void) name;
    *handle = NULL;
    return 0;
}

int64_t
disk_get_size (void *handle)
{
    (void) handle;
    return disk_size;
}

int
disk_block_size (void *handle, uint32_t *minimum, uint32_t *preferred,
                 uint32_t *maximum)
{
    (void) handle;
    *minimum = 1;
    *preferred = 4096;
    *maximum = MAX_REQUEST_SIZE;
    return 1;
}

int
disk_can (void *handle, enum capability what)
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

int
disk_nothing (void *handle, struct io *io)
{
    (void) handle, (void) io;
    return 0;
}
