/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The replies to one option, gathered so that one call sends them all.
 *
 * A lack of memory is remembered; answer_send reports it, nobody else needs
 * to look.
 */
#ifndef NBDSPEC_ANSWER_H
#define NBDSPEC_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"

struct connection;

struct answer {
    uint32_t option; /* repeated in each reply (HS-15) */
    uint8_t *bytes;
    size_t used, capacity;
    size_t begun; /* where the reply being written starts */
    bool failed;
};

/* One reply: its type, then any number of parts, then its end. */
void answer_begin (struct answer *a, uint32_t type);
void answer_bytes (struct answer *a, const void *bytes, size_t len);
void answer_u16 (struct answer *a, uint16_t v);
void answer_u32 (struct answer *a, uint32_t v);
void answer_u64 (struct answer *a, uint64_t v);
void answer_end (struct answer *a);

/* Final replies.  The text of an error is for people: short, and free of what
 * the client sent, which need not be fit to be shown. */
void answer_ack (struct answer *a);
void answer_error (struct answer *a, uint32_t type, const char *fmt, ...)
    PRINTF_LIKE (3, 4);

/* Drops what was gathered: an error takes its place. */
void answer_clear (struct answer *a);

/* Sends what was gathered, and clears it. */
int answer_send (struct answer *a, struct connection *c);

void answer_free (struct answer *a);

#endif
