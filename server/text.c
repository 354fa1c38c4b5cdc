/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Strings of the protocol.
 */
#include <stdint.h>
#include <string.h>

#include "text.h"
#include "wire.h"

/* The length of the UTF-8 character at P, of which LEN > 0 bytes are there; 0
 * if it is none.  Overlong forms, surrogates and what lies beyond U+10FFFF
 * are none. */
static size_t
character (const uint8_t *p, size_t len)
{
    size_t n, i;
    uint8_t low = 0x80, high = 0xbf; /* bounds of the second byte */

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        n = 2;
    else if (p[0] >= 0xe0 && p[0] <= 0xef)
        n = 3;
    else if (p[0] >= 0xf0 && p[0] <= 0xf4)
        n = 4;
    else
        return 0;
    if (p[0] == 0xe0)
        low = 0xa0;
    if (p[0] == 0xed)
        high = 0x9f;
    if (p[0] == 0xf0)
        low = 0x90;
    if (p[0] == 0xf4)
        high = 0x8f;

    if (len < n || p[1] < low || p[1] > high)
        return 0;
    for (i = 2; i < n; i++)
        if (p[i] < 0x80 || p[i] > 0xbf)
            return 0;
    return n;
}

size_t
text_cut (const void *bytes, size_t len, size_t max)
{
    const uint8_t *p = bytes;
    size_t at = 0, n;

    while (at < len) {
        n = character (p + at, len - at);
        if (n == 0 || n > max - at)
            break;
        at += n;
    }
    return at;
}

const char *
text_fault (const void *bytes, size_t len)
{
    if (len > NBD_MAX_STRING)
        return "is longer than 4096 bytes";
    if (len > 0 && memchr (bytes, 0, len))
        return "contains a NUL byte";
    if (text_cut (bytes, len, len) != len)
        return "is not UTF-8";
    return NULL;
}
