/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Opening an export and what can be known about it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "connection.h"
#include "export.h"
#include "log.h"
#include "stats.h"
#include "text.h"
#include "wire.h"

/* What a back end without a `can' is able to do: what it has functions for. */
static int
can_by_functions (enum capability what)
{
    switch (what) {
    case CAN_WRITE:
        return backend->pwrite != NULL;
    case CAN_ZERO:
        return backend->zero != NULL;
    case CAN_FAST_ZERO:
        /* Where zeroes have to be written, a fast zero fails fast. */
        return backend->zero == NULL;
    case CAN_TRIM:
        return backend->trim != NULL;
    case CAN_FUA:
        return backend->flush ? LEVEL_EMULATE : LEVEL_NONE;
    case CAN_FLUSH:
        return backend->flush != NULL;
    case CAN_CACHE:
        return backend->cache ? LEVEL_NATIVE : LEVEL_NONE;
    case CAN_EXTENTS:
        return backend->extents != NULL;
    case IS_ROTATIONAL:
    case CAN_MULTI_CONN:
    case N_CAPABILITIES:
        break;
    }
    return 0;
}

static int
ask (struct export *e, enum capability what)
{
    int r =
        backend->can ? backend->can (e->handle, what) : can_by_functions (what);

    if (r < 0)
        return -1;
    if (what == CAN_FUA || what == CAN_CACHE) {
        /* A level that does not exist is taken as nbdkit takes it. */
        if (r > LEVEL_NATIVE)
            r = what == CAN_FUA ? LEVEL_EMULATE : LEVEL_NATIVE;
    } else {
        r = r != 0;
    }
    e->can[what] = r;
    return 0;
}

/* What only matters when the export can be written is not asked when it
 * cannot; all stay 0 then. */
static bool
is_about_writing (enum capability what)
{
    return what == CAN_ZERO || what == CAN_FAST_ZERO || what == CAN_TRIM
           || what == CAN_FUA;
}

static int
ask_all (struct export *e)
{
    int64_t size = backend->get_size (e->handle);
    enum capability what;
    int i;

    if (size < 0) {
        if (size != -1)
            log_error ("the size of an export cannot be %" PRId64, size);
        return -1;
    }
    e->size = (uint64_t) size;
    for (i = 0; i < N_CAPABILITIES; i++) {
        what = (enum capability) i;
        if (what == CAN_WRITE && config.read_only)
            continue;
        if (is_about_writing (what) && !e->can[CAN_WRITE])
            continue;
        if (ask (e, what) == -1)
            return -1;
    }
    e->read_only = !e->can[CAN_WRITE];
    return 0;
}

static void
call_close (struct export *e)
{
    if (backend->close) {
        stats_callback (COUNT_CLOSE);
        backend->close (e->handle);
    }
    e->open = false;
}

/* Within the bracket. */
static int
open_and_ask (const struct connection *c, struct export *e)
{
    if (backend->open) {
        stats_callback (COUNT_OPEN);
        if (backend->open (config.read_only, c->tls, e->name, &e->handle) == -1)
            return -1;
    }
    e->open = true;
    if (ask_all (e) == -1) {
        call_close (e);
        return -1;
    }
    return 0;
}

int
export_open (struct connection *c, const char *name, struct export *e)
{
    int r;

    memset (e, 0, sizeof *e);
    e->name = strdup (name);
    if (!e->name) {
        log_error ("no memory to open an export");
        return -1;
    }
    backend_connection_begin ();
    backend_begin ();
    r = open_and_ask (c, e);
    backend_end ();
    if (r == -1) {
        backend_connection_end ();
        free (e->name);
        e->name = NULL;
    }
    if (config.debug_controlpath)
        log_debug ("open: export \"%s\": %s", name,
                   r == -1 ? "refused" : "opened");
    return r;
}

void
export_close (struct export *e)
{
    if (!e->open)
        return;
    if (config.debug_controlpath)
        log_debug ("close: export \"%s\"", e->name);
    backend_begin ();
    call_close (e);
    backend_end ();
    backend_connection_end ();
    free (e->name);
    e->name = NULL;
}

char *
export_default_name (const struct connection *c)
{
    char *name = NULL;
    const char *fault;

    if (!backend->default_export)
        return strdup ("");
    backend_begin ();
    stats_callback (COUNT_DEFAULT_EXPORT);
    name = backend->default_export (config.read_only, c->tls);
    backend_end ();
    fault = name ? text_fault (name, strlen (name)) : NULL;
    if (fault) {
        log_error ("the default export's name %s", fault);
        free (name);
        return NULL;
    }
    return name;
}

static bool
is_power_of_two (uint32_t v)
{
    return v != 0 && (v & (v - 1)) == 0;
}

/* SIZE-13, SIZE-14, SIZE-17, SIZE-21, and nbdkit's own bounds. */
static const char *
block_size_fault (const struct export *e)
{
    if (!is_power_of_two (e->minimum) || e->minimum > 65536)
        return "minimum must be a power of two between 1 and 64 KiB";
    if (!is_power_of_two (e->preferred) || e->preferred < 512
        || e->preferred > UINT32_C (32) << 20)
        return "preferred must be a power of two between 512 and 32 MiB";
    if (e->preferred < e->minimum)
        return "preferred must not be below minimum";
    if (e->maximum < e->preferred)
        return "maximum must not be below preferred";
    if (e->maximum != UINT32_MAX && e->maximum % e->minimum != 0)
        return "maximum must be a multiple of minimum";
    return NULL;
}

int
export_ask_block_size (struct export *e)
{
    const char *fault;
    int r = 0;

    e->has_block_size = false;
    if (!backend->block_size)
        return 0;
    backend_begin ();
    r = backend->block_size (e->handle, &e->minimum, &e->preferred,
                             &e->maximum);
    backend_end ();
    if (r <= 0)
        return r;
    fault = block_size_fault (e);
    if (fault) {
        log_error ("block sizes (%" PRIu32 ", %" PRIu32 ", %" PRIu32 "): %s",
                   e->minimum, e->preferred, e->maximum, fault);
        return -1;
    }
    /* This server's own limit holds whatever the back end takes. */
    if (e->maximum > MAX_REQUEST_SIZE)
        e->maximum = MAX_REQUEST_SIZE;
    if (e->size % e->minimum != 0) /* SIZE-16 */
        log_debug ("the export's size %" PRIu64
                   " is no multiple of its minimum block size %" PRIu32,
                   e->size, e->minimum);
    e->has_block_size = true;
    return 0;
}

char *
export_ask_description (struct export *e)
{
    char *description;
    const char *fault;

    if (!backend->export_description)
        return NULL;
    backend_begin ();
    description = backend->export_description (e->handle);
    backend_end ();
    fault = description ? text_fault (description, strlen (description)) : NULL;
    if (fault) {
        log_error ("the export's description %s: it is not sent", fault);
        free (description);
        return NULL;
    }
    return description;
}

uint16_t
export_flags (const struct connection *c, const struct export *e)
{
    uint32_t flags = NBD_FLAG_HAS_FLAGS; /* TF-04 */

    if (e->read_only) {
        flags |= NBD_FLAG_READ_ONLY;
    } else {
        /* Without help from the back end zeroes are written. */
        flags |= NBD_FLAG_SEND_WRITE_ZEROES;
        if (e->can[CAN_FAST_ZERO])
            flags |= NBD_FLAG_SEND_FAST_ZERO;
        if (e->can[CAN_TRIM])
            flags |= NBD_FLAG_SEND_TRIM;
        if (e->can[CAN_FUA] != LEVEL_NONE)
            flags |= NBD_FLAG_SEND_FUA;
    }
    if (e->can[CAN_FLUSH])
        flags |= NBD_FLAG_SEND_FLUSH;
    if (e->can[IS_ROTATIONAL])
        flags |= NBD_FLAG_ROTATIONAL;
    if (e->can[CAN_CACHE] != LEVEL_NONE)
        flags |= NBD_FLAG_SEND_CACHE;
    if (e->can[CAN_MULTI_CONN]
        && thread_model > THREAD_MODEL_SERIALIZE_CONNECTIONS)
        flags |= NBD_FLAG_CAN_MULTI_CONN;
    if (c->structured)
        flags |= NBD_FLAG_SEND_DF; /* TF-09, TF-10, XH-13 */
    /* XH-10, XH-11 */
    if (c->extended && c->meta.allocation && c->meta.export_name
        && strcmp (c->meta.export_name, e->name) == 0)
        flags |= NBD_FLAG_BLOCK_STATUS_PAYLOAD;
    return (uint16_t) flags;
}
