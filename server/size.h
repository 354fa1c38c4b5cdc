/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sizes in words: "512", "64k", "1G", "100s".
 */
#ifndef NBDSPEC_SIZE_H
#define NBDSPEC_SIZE_H

#include <stdint.h>

/* Base 10, optional leading blanks and '+', an optional suffix: b k m g t p e
 * (powers of 1024, either case) or s (512).  Bytes, or -1 with *WHY set to
 * what is wrong with the text (a constant). */
int64_t size_parse (const char *text, const char **why);

/* The parameters of a back end that takes just a size, as the only word or as
 * size=WORD.  -1: logged. */
int size_from_words (int argc, char **argv, int64_t *size);

#endif
