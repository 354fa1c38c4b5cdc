/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Options: taking them from the stream, and the short ones.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "config.h"
#include "connection.h"
#include "log.h"
#include "meta.h"
#include "options.h"
#include "text.h"
#include "wire.h"

/* A client that has not decided by then is playing (TERM-11). */
#define OPTIONS_AT_MOST 1024U

/* An option may be so long; none that can be granted is longer than the
 * first, and to skip more than the second is not worth a thread's time. */
#define MAX_OPTION_READ (UINT32_C (1) << 20)
#define MAX_OPTION_SKIPPED (UINT32_C (64) << 20)

static enum outcome
option_abort (struct negotiation *n)
{
    answer_ack (&n->answer); /* whatever came with it (OPT-ABORT-03) */
    return CLOSE;
}

static enum outcome
option_structured_reply (struct negotiation *n)
{
    struct connection *c = n->c;

    if (config.no_structured_replies)
        answer_error (&n->answer, NBD_REP_ERR_UNSUP,
                      "structured replies are switched off");
    else if (n->length != 0)
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "STRUCTURED_REPLY takes no data");
    else if (c->extended) /* OPT-XH-15 */
        answer_error (&n->answer, NBD_REP_ERR_EXT_HEADER_REQD,
                      "extended headers have been agreed on");
    else if (c->structured)
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "structured replies have been agreed on");
    else {
        c->structured = true;
        answer_ack (&n->answer);
    }
    return HAGGLE;
}

static enum outcome
option_extended_headers (struct negotiation *n)
{
    struct connection *c = n->c;

    if (config.no_structured_replies)
        answer_error (&n->answer, NBD_REP_ERR_UNSUP,
                      "structured replies are switched off");
    else if (n->length != 0) /* OPT-XH-02 */
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "EXTENDED_HEADERS takes no data");
    else if (c->extended)
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "extended headers have been agreed on");
    else {
        c->structured = c->extended = true;
        answer_ack (&n->answer);
    }
    return HAGGLE;
}

static const struct option {
    uint32_t number;
    bool wants_data;
    enum outcome (*handle) (struct negotiation *n);
} options[] = {
    { NBD_OPT_EXPORT_NAME, true, option_export_name },
    { NBD_OPT_ABORT, false, option_abort },
    { NBD_OPT_LIST, false, option_list },
    { NBD_OPT_STARTTLS, false, option_starttls },
    { NBD_OPT_INFO, true, option_info },
    { NBD_OPT_GO, true, option_go },
    { NBD_OPT_STRUCTURED_REPLY, false, option_structured_reply },
    { NBD_OPT_LIST_META_CONTEXT, true, option_list_meta_context },
    { NBD_OPT_SET_META_CONTEXT, true, option_set_meta_context },
    { NBD_OPT_EXTENDED_HEADERS, false, option_extended_headers },
};

static const struct option *
find (uint32_t number)
{
    size_t i;

    for (i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].number == number)
            return &options[i];
    return NULL;
}

/* Takes the option's data off the stream. */
static int
take_data (struct negotiation *n, const struct option *o)
{
    if (!o || !o->wants_data || n->length > MAX_OPTION_READ)
        return conn_skip (n->c, n->length);
    if (n->length > n->capacity) {
        uint8_t *data = realloc (n->data, n->length);

        if (!data) {
            log_error ("no memory for %u bytes of option data", n->length);
            return -1;
        }
        n->data = data;
        n->capacity = n->length;
    }
    return n->length > 0 ? conn_recv (n->c, n->data, n->length) : 0;
}

/* Refusals that come before an option's own rules.  They have taken place
 * when *OUTCOME is set and true is returned. */
static bool
refuse (struct negotiation *n, enum outcome *outcome)
{
    struct connection *c = n->c;
    uint32_t number = n->answer.option;
    uint32_t type;
    const char *why;

    if (atomic_load (&c->stopping)) {
        type = NBD_REP_ERR_SHUTDOWN; /* TERM-13 */
        why = "the server is shutting down";
    } else if (!c->fixed_newstyle) {
        /* Such a client knows EXPORT_NAME only; for it there is no TLS
         * (TLS-08), so where TLS is a must it is turned away. */
        if (number == NBD_OPT_EXPORT_NAME && config.tls != TLS_REQUIRE)
            return false;
        type = NBD_REP_ERR_INVALID;
        why = "options are for clients that set the fixed newstyle flag";
    } else if (config.tls == TLS_REQUIRE && !c->tls
               && number != NBD_OPT_STARTTLS) {
        type = NBD_REP_ERR_TLS_REQD; /* TLS-17 */
        why = "this server talks over TLS only: STARTTLS comes first";
    } else {
        return false;
    }

    if (number == NBD_OPT_EXPORT_NAME) { /* has no reply: TLS-18 */
        log_client_error ("EXPORT_NAME refused: %s", why);
        *outcome = DROP;
    } else {
        answer_error (&n->answer, type, "%s", why);
        *outcome = HAGGLE;
    }
    return true;
}

static enum outcome
run (struct negotiation *n, const struct option *o)
{
    enum outcome outcome;

    /* The former set is gone even if this one fails (OPT-META-28). */
    if (o && o->handle == option_set_meta_context)
        meta_forget (&n->c->meta);
    /* ABORT is welcome at any time (OPT-ABORT-06, TLS-26). */
    if ((!o || o->handle != option_abort) && refuse (n, &outcome))
        return outcome;
    if (!o) {
        answer_error (&n->answer, NBD_REP_ERR_UNSUP,
                      "option %u is not known here", n->answer.option);
        return HAGGLE;
    }
    if (o->wants_data && n->length > MAX_OPTION_READ) {
        if (o->handle == option_export_name) {
            log_client_error ("EXPORT_NAME with %u bytes", n->length);
            return DROP;
        }
        answer_error (&n->answer, NBD_REP_ERR_TOO_BIG,
                      "%u bytes of option data are too many", n->length);
        return HAGGLE;
    }
    return o->handle (n);
}

static enum outcome
one_option (struct negotiation *n)
{
    uint8_t header[16]; /* magic 8, option 4, length 4 */
    const struct option *o;

    if (conn_recv (n->c, header, sizeof header) == -1)
        return DROP;
    if (get_be64 (header) != NBD_OPTION_MAGIC) {
        log_client_error ("an option does not begin with IHAVEOPT");
        return DROP;
    }
    if (n->budget == 0) {
        log_client_error ("too many options");
        return DROP;
    }
    n->budget--;
    n->answer.option = get_be32 (header + 8);
    n->length = get_be32 (header + 12);
    if (n->length > MAX_OPTION_SKIPPED) {
        log_client_error ("option %u has %u bytes of data, more than %u",
                          n->answer.option, n->length, MAX_OPTION_SKIPPED);
        return DROP;
    }
    o = find (n->answer.option);
    if (take_data (n, o) == -1)
        return DROP;
    return run (n, o);
}

static void
close_ahead (struct negotiation *n)
{
    free (n->ahead);
    n->ahead = NULL;
    export_close (&n->c->export);
}

const char *
options_canonical_name (struct negotiation *n, const char *asked)
{
    if (asked[0] != '\0')
        return asked;
    if (!n->default_name)
        n->default_name = export_default_name (n->c);
    return n->default_name;
}

static int
open_now (struct negotiation *n, const char *asked)
{
    const char *name = options_canonical_name (n, asked);

    if (!name || export_open (n->c, name, &n->c->export) == -1)
        return -1;
    free (n->known);
    n->known = strdup (asked); /* without memory it is asked about again */
    return 0;
}

int
options_open (struct negotiation *n, const char *asked)
{
    if (n->ahead && strcmp (n->ahead, asked) == 0) {
        free (n->ahead);
        n->ahead = NULL;
        return n->c->export.open ? 0 : -1;
    }
    close_ahead (n);
    return open_now (n, asked);
}

int
options_open_ahead (struct negotiation *n, const char *asked)
{
    /* An export that keeps all other clients out is not opened while this
     * one may still be making up its mind. */
    if (thread_model == THREAD_MODEL_SERIALIZE_CONNECTIONS)
        return options_canonical_name (n, asked) ? 0 : -1;

    if (n->ahead && strcmp (n->ahead, asked) == 0)
        return n->c->export.open ? 0 : -1;
    if (n->known && strcmp (n->known, asked) == 0)
        return 0;
    close_ahead (n);
    n->ahead = strdup (asked);
    if (!n->ahead) {
        log_error ("no memory for an export's name");
        return -1;
    }
    return open_now (n, asked);
}

void
options_forget (struct negotiation *n)
{
    struct connection *c = n->c;

    close_ahead (n);
    free (n->default_name);
    n->default_name = NULL;
    free (n->known);
    n->known = NULL;
    export_list_free (&n->list);
    n->listed = false;
    c->structured = c->extended = false;
    c->block_sizes_known = false;
    free (c->meta.export_name);
    c->meta.export_name = NULL;
    c->meta.allocation = false;
}

void
options_refuse_export (struct negotiation *n)
{
    if (atomic_load (&n->c->stopping))
        answer_error (&n->answer, NBD_REP_ERR_SHUTDOWN,
                      "the server is shutting down");
    else
        answer_error (&n->answer, NBD_REP_ERR_UNKNOWN,
                      "there is no such export, or it cannot be opened");
}

static void
negotiation_free (struct negotiation *n)
{
    free (n->data);
    answer_free (&n->answer);
    free (n->default_name);
    export_list_free (&n->list);
    free (n->ahead);
    free (n->known);
    /* Only GO has to know which export the contexts are for. */
    free (n->c->meta.export_name);
    n->c->meta.export_name = NULL;
}

int
options_run (struct connection *c)
{
    CLEANUP (negotiation_free)
    struct negotiation n = { .c = c, .budget = OPTIONS_AT_MOST };
    enum outcome outcome;

    do {
        outcome = one_option (&n);
        if (outcome != DROP && answer_send (&n.answer, c) == -1)
            outcome = DROP;
    } while (outcome == HAGGLE);

    if (outcome == TRANSMIT)
        return 0;
    export_close (&c->export);
    return -1;
}
