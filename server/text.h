/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What may be put into a string field of the protocol.
 */
#ifndef NBDSPEC_TEXT_H
#define NBDSPEC_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* NULL, or why these bytes are no string of the protocol: too long (STR-03),
 * a NUL byte (STR-01), not UTF-8 (STR-04). */
const char *text_fault (const void *bytes, size_t len);

/* The length of the longest beginning of BYTES that is whole UTF-8 characters
 * and at most MAX bytes long. */
size_t text_cut (const void *bytes, size_t len, size_t max);

#endif
