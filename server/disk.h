/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the back ends in C have in common: one disk, of the size that the
 * command line gives, which can do everything.  Members for struct backend.
 */
#ifndef NBDSPEC_DISK_H
#define NBDSPEC_DISK_H

#include "backend.h"

extern int64_t disk_size; /* bytes */

int disk_config (int argc, char **argv);
int disk_open (bool readonly, bool tls, const char *name, void **handle);
int64_t disk_get_size (void *handle);
int disk_block_size (void *handle, uint32_t *minimum, uint32_t *preferred,
                     uint32_t *maximum);
int disk_can (void *handle, enum capability what);

/* For requests that need nothing done. */
int disk_nothing (void *handle, struct io *io);

#endif
