/* SPDX-License-Identifier: BSD-3-Clause
 *
 * NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT.  There is one
 * context, base:allocation, and its id is META_ALLOCATION_ID.
 */
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "config.h"
#include "connection.h"
#include "log.h"
#include "meta.h"
#include "options.h"
#include "wire.h"

/* To ask for more is not sensible when there is one context (OPT-META-14). */
#define MAX_QUERIES 4096U

static const char allocation[] = "base:allocation";

/* The contexts that a request's queries ask for. */
struct query {
    char *export_name;
    uint32_t count;  /* queries */
    bool allocation; /* one of them is base:allocation ... */
    bool wildcard;   /* ... or base: */
};

static void
query_free (struct query *q)
{
    free (q->export_name);
}

/* One query, from FIELD on.  What has another name, in any namespace, is
 * passed over (META-BASE-03, OPT-META-06). */
static const char *
parse_query (struct field *field, struct query *q)
{
    const char *fault;
    AUTO_FREE char *text = field_string (field, &fault);

    if (!text)
        return fault;
    if (strcmp (text, allocation) == 0)
        q->allocation = true;
    if (strcmp (text, "base:") == 0)
        q->wildcard = true;
    return NULL;
}

/* -1: refused, and answered. */
static int
parse (struct negotiation *n, struct query *q)
{
    struct field field = { .at = n->data, .left = n->length };
    const char *fault = NULL;
    uint32_t i;

    q->export_name = field_string (&field, &fault);
    if (!q->export_name) {
        answer_error (&n->answer, NBD_REP_ERR_INVALID, "the export name %s",
                      fault);
        return -1;
    }
    if (!field_u32 (&field, &q->count)) {
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "the number of queries is cut short");
        return -1;
    }
    /* Each query has a length at least; a count that cannot be true is
     * malformed, not too big. */
    if (q->count > field.left / 4) {
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "there are fewer queries than the option says");
        return -1;
    }
    if (q->count > MAX_QUERIES) {
        answer_error (&n->answer, NBD_REP_ERR_TOO_BIG,
                      "%u queries are too many", q->count);
        return -1;
    }
    for (i = 0; i < q->count && !fault; i++)
        fault = parse_query (&field, q);
    if (fault) {
        answer_error (&n->answer, NBD_REP_ERR_INVALID, "query %u %s", i, fault);
        return -1;
    }
    if (field.left != 0) {
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "%u bytes follow the last query", field.left);
        return -1;
    }
    return 0;
}

static void
answer_context (struct answer *a, uint32_t id)
{
    answer_begin (a, NBD_REP_META_CONTEXT);
    answer_u32 (a, id);
    answer_bytes (a, allocation, strlen (allocation));
    answer_end (a);
}

static bool
switched_off (struct negotiation *n)
{
    if (!config.no_meta_contexts)
        return false;
    answer_error (&n->answer, NBD_REP_ERR_UNSUP,
                  "metadata contexts are switched off");
    return true;
}

enum outcome
option_list_meta_context (struct negotiation *n)
{
    CLEANUP (query_free) struct query q = { 0 };

    /* Allowed without structured replies, as by nbdkit (OPT-META-02). */
    if (switched_off (n) || parse (n, &q) == -1)
        return HAGGLE;
    if (options_open_ahead (n, q.export_name) == -1) {
        options_refuse_export (n); /* OPT-META-32 */
        return HAGGLE;
    }
    /* What cannot be selected is not listed (OPT-META-12). */
    if (!config.no_structured_replies
        && (q.count == 0 || q.wildcard || q.allocation))
        answer_context (&n->answer, 0); /* OPT-META-10, -17 */
    answer_ack (&n->answer);
    return HAGGLE;
}

void
meta_forget (struct meta *meta)
{
    free (meta->export_name);
    meta->export_name = NULL;
    meta->allocation = false;
}

enum outcome
option_set_meta_context (struct negotiation *n)
{
    struct meta *meta = &n->c->meta;
    CLEANUP (query_free) struct query q = { 0 };
    const char *name;

    if (switched_off (n))
        return HAGGLE;
    if (!n->c->structured) { /* OPT-META-20 */
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "structured replies come first");
        return HAGGLE;
    }
    if (parse (n, &q) == -1)
        return HAGGLE;
    name = options_open_ahead (n, q.export_name) == 0
               ? options_canonical_name (n, q.export_name)
               : NULL;
    if (name)
        meta->export_name = strdup (name);
    if (!meta->export_name) {
        options_refuse_export (n);
        return HAGGLE;
    }
    if (q.allocation) { /* a wildcard selects nothing (META-BASE-01) */
        meta->allocation = true;
        answer_context (&n->answer, META_ALLOCATION_ID);
    }
    answer_ack (&n->answer);
    return HAGGLE;
}
