/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The haggling: options of one client, one after the other, until one of them
 * begins transmission or the connection is over.
 *
 * Each option is taken from the stream whole before anything is done about
 * it, so that whatever is refused leaves the next one readable (HS-20), and
 * each but EXPORT_NAME gets exactly one final reply (HS-15).
 */
#ifndef NBDSPEC_OPTIONS_H
#define NBDSPEC_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "answer.h"
#include "export.h"

struct connection;

struct negotiation {
    struct connection *c;
    unsigned budget; /* so many more options are answered */

    /* The option under way, and its data, read as get_be* and friends can. */
    uint32_t length;
    uint8_t *data;
    size_t capacity;
    struct answer answer;

    /* What the back end said; asked at most once, again after STARTTLS. */
    char *default_name;
    bool listed;
    struct export_list list;

    /* The export that a meta context option was about, opened (or refused)
     * ahead of the INFO or GO that follows.  NULL: none. */
    char *ahead;
    char *known; /* the last one that could be opened, as the client calls it */
};

/* What an option leads to. */
enum outcome {
    HAGGLE,   /* the replies are sent and the next option is awaited */
    TRANSMIT, /* likewise, and transmission begins */
    CLOSE,    /* likewise, and the connection ends */
    DROP,     /* nothing is sent, and the connection ends (logged) */
};

/* From after the client flags.  0: c->export is open, transmission begins.
 * -1: the connection is over. */
int options_run (struct connection *c);

/* Opens what a client calls ASKED into c->export.  -1: refused (logged). */
int options_open (struct negotiation *n, const char *asked);

/* The same, but leaves it to the next options_open of that name; where it is
 * known to exist nothing is done.  -1 when that one will fail. */
int options_open_ahead (struct negotiation *n, const char *asked);

/* The name of the export that the client calls ASKED, which may be "".  NULL:
 * there is none (logged). */
const char *options_canonical_name (struct negotiation *n, const char *asked);

/* Forgets what was negotiated (OPT-STARTTLS-03). */
void options_forget (struct negotiation *n);

/* Answers that an export cannot be had. */
void options_refuse_export (struct negotiation *n);

/* A part of an option's data. */
struct field {
    const uint8_t *at;
    uint32_t left;
};
bool field_u16 (struct field *f, uint16_t *v);
bool field_u32 (struct field *f, uint32_t *v);
/* A string with its length in front, malloc'ed; NULL and *FAULT: why not. */
char *field_string (struct field *f, const char **fault);

/* The handlers that have files of their own. */
enum outcome option_export_name (struct negotiation *n);
enum outcome option_list (struct negotiation *n);
enum outcome option_info (struct negotiation *n);
enum outcome option_go (struct negotiation *n);
enum outcome option_list_meta_context (struct negotiation *n);
enum outcome option_set_meta_context (struct negotiation *n);
enum outcome option_starttls (struct negotiation *n);

#endif
