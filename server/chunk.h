/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Building replies that consist of chunks.
 */
#ifndef NBDSPEC_CHUNK_H
#define NBDSPEC_CHUNK_H

#include <stddef.h>
#include <stdint.h>

struct connection;
struct request;

/* The largest header of a chunk with the fixed part of its payload. */
#define MAX_CHUNK_HEADER (NBD_EXTENDED_REPLY_SIZE + 12)

/* Reads from this size up are searched for zeroes. */
#define SPARSE_FROM (32U << 10)

/* Appends to R's reply. */
void reply_add_part (struct request *r, const void *base, size_t len);

/* Puts the header of a chunk of C's kind, with LENGTH bytes of payload, and
 * returns the place behind it. */
uint8_t *chunk_put_header (const struct connection *c, const struct request *r,
                           uint8_t *p, uint16_t flags, uint16_t type,
                           uint64_t length);

/* The reply to a successful READ as one data chunk ... */
void chunk_build_read (const struct connection *c, struct request *r);

/* ... or, in sparse.c, as data and holes.  -1: no memory. */
int sparse_build (const struct connection *c, struct request *r);

#endif
