/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An open export: the back end's handle, with everything about it that is
 * asked once and then kept for the connection.
 */
#ifndef NBDSPEC_EXPORT_H
#define NBDSPEC_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"

struct connection;

struct export
{
    bool open;
    void *handle;
    char *name; /* as opened, with "" replaced by the default export's name */
    uint64_t size;
    bool read_only;
    int can[N_CAPABILITIES];
    bool has_block_size;
    uint32_t minimum, preferred, maximum; /* advertised block sizes */
};

/* The name of the export that "" stands for, malloc'ed.  NULL: refused. */
char *export_default_name (const struct connection *c);

/* Opens NAME for C into *E and asks for size and capabilities, in nbdkit's
 * order, all within one backend bracket.  -1: refused (logged), *E closed. */
int export_open (struct connection *c, const char *name, struct export *e);

/* Calls the back end's close, if E is open. */
void export_close (struct export *e);

/* Asks for the block sizes of E, which the back end is only asked for when
 * the client wants to know, and sets has_block_size and the sizes.  -1: the
 * back end failed or gave impossible sizes (logged). */
int export_ask_block_size (struct export *e);

/* E's description for people, malloc'ed, or NULL. */
char *export_ask_description (struct export *e);

/* The 16 transmission flags to send now (SEND_DF depends on C's state). */
uint16_t export_flags (const struct connection *c, const struct export *e);

/* For LIST. */
struct export_list {
    struct export_entry {
        char *name, *description; /* description may be NULL */
    } * entries;
    size_t count, capacity;
    bool use_default; /* add the export that "" stands for */
};
/* Copies both strings; -1 when there is no memory. */
int export_list_add (struct export_list *l, const char *name,
                     const char *description);
void export_list_free (struct export_list *l);

/* Asks the back end for the exports that C may see.  -1: it failed. */
int export_list_fill (const struct connection *c, struct export_list *l);

#endif
