/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Replies to options.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "connection.h"
#include "log.h"
#include "wire.h"

#define REPLY_HEADER_SIZE                                                      \
    20U /* magic 8, option 4, type 4, length 4 (HS-14)                         \
         */

/* Room for LEN more bytes, or NULL. */
static uint8_t *
extend (struct answer *a, size_t len)
{
    size_t capacity = a->capacity;
    uint8_t *bytes;

    if (a->failed)
        return NULL;
    if (len > a->capacity - a->used) {
        while (len > capacity - a->used)
            capacity = capacity ? 2 * capacity : 512;
        bytes = realloc (a->bytes, capacity);
        if (!bytes) {
            a->failed = true;
            return NULL;
        }
        a->bytes = bytes;
        a->capacity = capacity;
    }
    bytes = a->bytes + a->used;
    a->used += len;
    return bytes;
}

void
answer_bytes (struct answer *a, const void *bytes, size_t len)
{
    uint8_t *p = extend (a, len);

    if (p && len > 0)
        memcpy (p, bytes, len);
}

void
answer_u16 (struct answer *a, uint16_t v)
{
    uint8_t *p = extend (a, 2);

    if (p)
        put_be16 (p, v);
}

void
answer_u32 (struct answer *a, uint32_t v)
{
    uint8_t *p = extend (a, 4);

    if (p)
        put_be32 (p, v);
}

void
answer_u64 (struct answer *a, uint64_t v)
{
    uint8_t *p = extend (a, 8);

    if (p)
        put_be64 (p, v);
}

void
answer_begin (struct answer *a, uint32_t type)
{
    a->begun = a->used;
    answer_u64 (a, NBD_OPTION_REPLY_MAGIC);
    answer_u32 (a, a->option);
    answer_u32 (a, type);
    answer_u32 (a, 0); /* the length: answer_end knows it */
}

void
answer_end (struct answer *a)
{
    size_t length;

    if (a->failed)
        return;
    length = a->used - a->begun - REPLY_HEADER_SIZE;
    put_be32 (a->bytes + a->begun + REPLY_HEADER_SIZE - 4, (uint32_t) length);
}

void
answer_ack (struct answer *a)
{
    answer_begin (a, NBD_REP_ACK);
    answer_end (a);
}

void
answer_error (struct answer *a, uint32_t type, const char *fmt, ...)
{
    char text[256]; /* STR-02 */
    va_list args;

    va_start (args, fmt);
    vsnprintf (text, sizeof text, fmt, args);
    va_end (args);
    log_debug ("option %u refused: %s", a->option, text);

    answer_begin (a, type);
    answer_bytes (a, text, strlen (text));
    answer_end (a);
}

void
answer_clear (struct answer *a)
{
    a->used = 0;
}

int
answer_send (struct answer *a, struct connection *c)
{
    struct iovec part = { .iov_base = a->bytes, .iov_len = a->used };

    if (a->failed) {
        log_error ("no memory for the replies to option %u", a->option);
        return -1;
    }
    if (a->used == 0)
        return 0;
    a->used = 0;
    return conn_send (c, &part, 1);
}

void
answer_free (struct answer *a)
{
    free (a->bytes);
    a->bytes = NULL;
    a->used = a->capacity = 0;
}
