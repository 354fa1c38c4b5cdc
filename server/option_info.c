/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Choosing an export: NBD_OPT_INFO, NBD_OPT_GO, NBD_OPT_EXPORT_NAME.
 */
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "connection.h"
#include "export.h"
#include "log.h"
#include "options.h"
#include "text.h"
#include "wire.h"

#define EXPORT_NAME_PADDING 124

/* Drops a selection of contexts that was made for another export
 * (OPT-META-29). */
static void
settle_contexts (struct connection *c)
{
    if (c->meta.allocation && strcmp (c->meta.export_name, c->export.name) != 0)
        c->meta.allocation = false;
}

static void
answer_export (struct answer *a, const struct connection *c)
{
    answer_begin (a, NBD_REP_INFO);
    answer_u16 (a, NBD_INFO_EXPORT);
    answer_u64 (a, c->export.size);
    answer_u16 (a, export_flags (c, &c->export));
    answer_end (a);
}

static void
answer_text (struct answer *a, uint16_t info, const char *text)
{
    answer_begin (a, NBD_REP_INFO);
    answer_u16 (a, info);
    answer_bytes (a, text, strlen (text));
    answer_end (a);
}

/* One item that was asked for.  -1: the back end failed. */
static int
answer_item (struct answer *a, struct connection *c, uint16_t info)
{
    AUTO_FREE char *description = NULL;

    switch (info) {
    case NBD_INFO_NAME:
        answer_text (a, info, c->export.name);
        return 0;
    case NBD_INFO_DESCRIPTION:
        description = export_ask_description (&c->export);
        if (description)
            answer_text (a, info, description);
        return 0;
    case NBD_INFO_BLOCK_SIZE:
        if (export_ask_block_size (&c->export) == -1)
            return -1;
        if (!c->export.has_block_size)
            return 0;
        answer_begin (a, NBD_REP_INFO);
        answer_u16 (a, info);
        answer_u32 (a, c->export.minimum);
        answer_u32 (a, c->export.preferred);
        answer_u32 (a, c->export.maximum);
        answer_end (a);
        return 0;
    default: /* EXPORT comes unasked; others are ignored (OPT-INFO-07) */
        return 0;
    }
}

/* ITEMS: what the client wants to know, two bytes each. */
static int
answer_items (struct answer *a, struct connection *c, struct field items)
{
    uint32_t seen = 0; /* each at most once (INFO-01) */
    uint16_t info;

    answer_export (a, c); /* OPT-INFO-14 */
    while (field_u16 (&items, &info)) {
        if (info > NBD_INFO_BLOCK_SIZE || seen & (UINT32_C (1) << info))
            continue;
        seen |= UINT32_C (1) << info;
        if (answer_item (a, c, info) == -1)
            return -1;
    }
    return 0;
}

/* The name asked for, malloc'ed, and the items; or NULL: refused. */
static char *
parse (struct negotiation *n, struct field *items)
{
    const char *fault;
    AUTO_FREE char *name = NULL;
    char *result;
    uint16_t count;

    *items = (struct field){ .at = n->data, .left = n->length };
    name = field_string (items, &fault);
    if (!name) {
        answer_error (&n->answer, NBD_REP_ERR_INVALID, "the export name %s",
                      fault);
        return NULL;
    }
    if (!field_u16 (items, &count) || items->left != 2 * (uint32_t) count) {
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "the option's length does not fit its content");
        return NULL;
    }
    result = name;
    name = NULL;
    return result;
}

/* INFO and GO, up to the final reply.  -1: refused, nothing is open. */
static int
choose (struct negotiation *n)
{
    struct connection *c = n->c;
    struct field items;
    AUTO_FREE char *name = parse (n, &items);

    if (!name)
        return -1;
    if (options_open (n, name) == -1) {
        options_refuse_export (n);
        return -1;
    }
    if (answer_items (&n->answer, c, items) == -1) {
        export_close (&c->export);
        answer_clear (&n->answer);
        options_refuse_export (n);
        return -1;
    }
    return 0;
}

enum outcome
option_info (struct negotiation *n)
{
    if (choose (n) == 0) {
        export_close (&n->c->export);
        answer_ack (&n->answer);
    }
    return HAGGLE;
}

enum outcome
option_go (struct negotiation *n)
{
    struct connection *c = n->c;

    if (choose (n) == -1)
        return HAGGLE;
    settle_contexts (c);
    c->block_sizes_known = c->export.has_block_size;
    answer_ack (&n->answer);
    return TRANSMIT;
}

enum outcome
option_export_name (struct negotiation *n)
{
    static const uint8_t padding[EXPORT_NAME_PADDING];
    struct connection *c = n->c;
    const char *fault = text_fault (n->data, n->length);
    AUTO_FREE char *name = NULL;

    if (c->extended)
        fault = "came after extended headers were agreed on";
    if (fault) {
        log_client_error ("EXPORT_NAME %s", fault);
        return DROP;
    }
    name = n->length > 0 ? strndup ((const char *) n->data, n->length)
                         : strdup (""); /* OPT-EXPORT-03 */
    if (!name || options_open (n, name) == -1)
        return DROP; /* OPT-EXPORT-01 */

    settle_contexts (c);
    answer_u64 (&n->answer, c->export.size); /* OPT-EXPORT-02 */
    answer_u16 (&n->answer, export_flags (c, &c->export));
    if (!c->no_zeroes)
        answer_bytes (&n->answer, padding, sizeof padding);
    return TRANSMIT;
}
