/* SPDX-License-Identifier: BSD-3-Clause
 *
 * See size.h.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "size.h"

/* The power of two that a suffix stands for, or -1. */
static int
suffix_shift (char c)
{
    static const char suffixes[] = "bkmgtpe";
    const char *at;

    if (c == '\0')
        return 0;
    if (c == 's' || c == 'S')
        return 9;
    at = strchr (suffixes, tolower ((unsigned char) c));
    return at ? 10 * (int) (at - suffixes) : -1;
}

int64_t
size_parse (const char *text, const char **why)
{
    char *end;
    long long n;
    int shift;

    *why = "is not a number";
    errno = 0;
    n = strtoll (text, &end, 10);
    if (end == text)
        return -1;
    *why = "is too large";
    if (errno == ERANGE && n > 0)
        return -1;
    *why = "is negative";
    if (n < 0)
        return -1;
    *why = "has an unknown suffix (b k m g t p e s are known)";
    shift = suffix_shift (*end);
    if (shift == -1 || (*end && end[1]))
        return -1;
    *why = "is too large";
    if (n > INT64_MAX >> shift)
        return -1;
    return (int64_t) n << shift;
}

int
size_from_words (int argc, char **argv, int64_t *size)
{
    const char *word, *why;

    if (argc != 1) {
        log_error ("expected one parameter, the size of the disk");
        return -1;
    }
    word = strncmp (argv[0], "size=", 5) == 0 ? argv[0] + 5 : argv[0];
    *size = size_parse (word, &why);
    if (*size == -1) {
        log_error ("size '%s' %s", word, why);
        return -1;
    }
    return 0;
}
