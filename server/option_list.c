/* SPDX-License-Identifier: BSD-3-Clause
 *
 * NBD_OPT_LIST.
 */
#include <string.h>

#include "connection.h"
#include "export.h"
#include "log.h"
#include "options.h"
#include "text.h"
#include "wire.h"

#define OPTIONS_PER_EXPORT 32U

/* What a back end lists must not become a broken reply. */
static void
add_entry (struct answer *a, const struct export_entry *e)
{
    size_t length = strlen (e->name);
    const char *fault = text_fault (e->name, length);
    const char *text_is_bad = NULL;

    if (fault) {
        log_error ("list_exports: a name %s: it is left out", fault);
        return;
    }
    if (e->description)
        text_is_bad = text_fault (e->description, strlen (e->description));
    if (text_is_bad)
        log_error ("list_exports: the description of \"%s\" %s: it is left out",
                   e->name, text_is_bad);

    answer_begin (a, NBD_REP_SERVER);
    answer_u32 (a, (uint32_t) length);
    answer_bytes (a, e->name, length);
    if (e->description && !text_is_bad)
        answer_bytes (a, e->description, strlen (e->description));
    answer_end (a);
}

/* -1: the back end failed. */
static int
fill (struct negotiation *n)
{
    const char *name;

    if (export_list_fill (n->c, &n->list) == -1)
        return -1;
    if (!n->list.use_default)
        return 0;
    name = options_canonical_name (n, "");
    return name ? export_list_add (&n->list, name, NULL) : -1;
}

enum outcome
option_list (struct negotiation *n)
{
    size_t i;

    if (n->length != 0) { /* OPT-LIST-04 */
        answer_error (&n->answer, NBD_REP_ERR_INVALID, "LIST takes no data");
        return HAGGLE;
    }
    if (!n->listed) {
        if (fill (n) == -1) {
            export_list_free (&n->list);
            answer_error (&n->answer, NBD_REP_ERR_PLATFORM,
                          "the exports cannot be listed");
            return HAGGLE;
        }
        n->listed = true;
        /* Each of them may be asked about. */
        n->budget += (unsigned) n->list.count * OPTIONS_PER_EXPORT;
    }
    for (i = 0; i < n->list.count; i++)
        add_entry (&n->answer, &n->list.entries[i]);
    answer_ack (&n->answer);
    return HAGGLE;
}
