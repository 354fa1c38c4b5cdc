/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The list of exports.
 */
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "connection.h"
#include "export.h"
#include "log.h"
#include "stats.h"

int
export_list_add (struct export_list *l, const char *name,
                 const char *description)
{
    struct export_entry e = { 0 };

    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 8;
        struct export_entry *entries =
            realloc (l->entries, capacity * sizeof *entries);

        if (!entries)
            return -1;
        l->entries = entries;
        l->capacity = capacity;
    }
    e.name = strdup (name);
    if (description)
        e.description = strdup (description);
    if (!e.name || (description && !e.description)) {
        free (e.name);
        free (e.description);
        return -1;
    }
    l->entries[l->count++] = e;
    return 0;
}

void
export_list_free (struct export_list *l)
{
    size_t i;

    for (i = 0; i < l->count; i++) {
        free (l->entries[i].name);
        free (l->entries[i].description);
    }
    free (l->entries);
    memset (l, 0, sizeof *l);
}

int
export_list_fill (const struct connection *c, struct export_list *l)
{
    int r;

    if (!backend->list_exports) {
        l->use_default = true;
        return 0;
    }
    backend_begin ();
    stats_callback (COUNT_LIST_EXPORTS);
    r = backend->list_exports (config.read_only, c->tls, l);
    backend_end ();
    return r;
}
