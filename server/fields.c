/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Taking an option's data apart.
 */
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "text.h"
#include "wire.h"

bool
field_u16 (struct field *f, uint16_t *v)
{
    if (f->left < 2)
        return false;
    *v = get_be16 (f->at);
    f->at += 2;
    f->left -= 2;
    return true;
}

bool
field_u32 (struct field *f, uint32_t *v)
{
    if (f->left < 4)
        return false;
    *v = get_be32 (f->at);
    f->at += 4;
    f->left -= 4;
    return true;
}

char *
field_string (struct field *f, const char **fault)
{
    uint32_t length;
    char *s;

    if (!field_u32 (f, &length) || length > f->left) {
        *fault = "is cut short";
        return NULL;
    }
    *fault = text_fault (f->at, length);
    if (*fault)
        return NULL;
    s = strndup ((const char *) f->at, length);
    if (!s) {
        *fault = "does not fit into memory";
        return NULL;
    }
    f->at += length;
    f->left -= length;
    return s;
}
