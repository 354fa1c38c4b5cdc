/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What serves the data: null, memory, or a Python script.  One back end is
 * chosen at start-up and serves all connections.
 *
 * Errors.  Start-up functions log and return -1.  Functions of a connection
 * log where the failure is found and return -1, or for data an errno value
 * (the system's, not the wire's; the engine maps it).
 *
 * Threads.  Every function that takes a handle, and preconnect, list_exports,
 * default_export and open, is called between backend_begin and backend_end,
 * which hold what the thread model and the back end need: the serialisation
 * lock, and the GIL.  `enter' and `leave' are that GIL; many data callbacks
 * run in one such bracket.
 */
#ifndef NBDSPEC_BACKEND_H
#define NBDSPEC_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"

struct extents;
struct export_list;

/* Values as in nbdkit; a lower one is more restrictive. */
enum thread_model {
    THREAD_MODEL_SERIALIZE_CONNECTIONS = 0,
    THREAD_MODEL_SERIALIZE_ALL_REQUESTS = 1,
    THREAD_MODEL_SERIALIZE_REQUESTS = 2,
    THREAD_MODEL_PARALLEL = 3,
};

/* What an export can do; asked in this order, each at most once. */
enum capability {
    CAN_WRITE,
    CAN_ZERO,
    CAN_FAST_ZERO,
    CAN_TRIM,
    CAN_FUA, /* 0 none, 1 emulate (by flush), 2 native */
    CAN_FLUSH,
    IS_ROTATIONAL,
    CAN_MULTI_CONN,
    CAN_CACHE, /* 0 none, 1 emulate (by pread), 2 native */
    CAN_EXTENTS,
    N_CAPABILITIES
};
enum { LEVEL_NONE = 0, LEVEL_EMULATE = 1, LEVEL_NATIVE = 2 };

/* Flags of a data request; values as in nbdkit's API. */
#define BACKEND_FLAG_MAY_TRIM 1U
#define BACKEND_FLAG_FUA 2U
#define BACKEND_FLAG_REQ_ONE 4U
#define BACKEND_FLAG_FAST_ZERO 8U

/* One data request as the back end sees it.  0 < count, and the range lies in
 * the export: the engine has checked both. */
struct io {
    uint64_t offset;
    uint64_t count;
    uint32_t flags;          /* BACKEND_FLAG_* */
    struct buffer *buf;      /* pread fills it, pwrite reads it; else NULL */
    const uint8_t *data;     /* what pread read, if not in buf: memory that
                                stays until the reply is sent */
    struct extents *extents; /* extents fills it; else NULL */
    char *error_text;        /* malloc'ed text for the client, or NULL */
};

struct backend {
    const char *name;

    /* pread gets no buffer and sets io->data. */
    bool reads_in_place;
    /* Its functions call those of a script that are defined; see stats.h. */
    bool runs_scripts;

    /* Start-up and end, on the main thread, in this order.  `config' gets the
     * words after the back end's name; `dump' prints key=value lines. */
    int (*config) (int argc, char **argv);
    int (*config_complete) (void);
    int (*thread_model) (void); /* an enum thread_model, or -1 */
    int (*get_ready) (void);
    int (*before_fork) (void); /* around the fork of a daemon; may be NULL */
    int (*after_fork) (void);
    /* While the main thread waits for clients it also waits for this descriptor
     * (-1: none) to become readable, and calls `wake' then. */
    int (*wake_fd) (void);
    void (*wake) (void);
    void (*cleanup) (void);
    void (*unload) (void);
    void (*dump) (void);
    void (*help) (int argc, char **argv); /* --help with a back end's name */
    void (*version) (void);

    /* A thread that will, or did, call the functions below. NAME is copied. */
    void (*thread_start) (const char *name);
    void (*thread_end) (void);
    void (*enter) (void);
    void (*leave) (void);

    /* A connection.  Strings returned are malloc'ed.  NULL members: nothing to
     * do, no description, no limits, the plain default. */
    int (*preconnect) (bool readonly);
    int (*list_exports) (bool readonly, bool tls, struct export_list *list);
    char *(*default_export) (bool readonly, bool tls);
    int (*open) (bool readonly, bool tls, const char *name, void **handle);
    void (*close) (void *handle);
    char *(*export_description) (void *handle);
    int64_t (*get_size) (void *handle); /* bytes, -1 on error */
    /* 1 and the three sizes, 0 for no limits, -1 on error */
    int (*block_size) (void *handle, uint32_t *minimum, uint32_t *preferred,
                       uint32_t *maximum);
    int (*can) (void *handle, enum capability what); /* -1 on error */

    /* Data.  0, or an errno value.  EOPNOTSUPP from `zero' makes the engine
     * write zeroes itself (never on FAST_ZERO). */
    int (*pread) (void *handle, struct io *io);
    int (*pwrite) (void *handle, struct io *io);
    int (*flush) (void *handle, struct io *io);
    int (*trim) (void *handle, struct io *io);
    int (*zero) (void *handle, struct io *io);
    int (*cache) (void *handle, struct io *io);
    int (*extents) (void *handle, struct io *io);
};

extern const struct backend backend_null, backend_memory, backend_python;

/* The one in use, and its effective thread model; set at start-up. */
extern const struct backend *backend;
extern enum thread_model thread_model;

/* Finds a back end by name; NULL if there is none. */
const struct backend *backend_find (const char *name);

/* The bracket around calls, see above.  Not recursive.  No lock is held while
 * a client is waited for. */
void backend_begin (void);
void backend_end (void);

/* SERIALIZE_CONNECTIONS: at most one connection is between open and close.
 * Does nothing under the other models. */
void backend_connection_begin (void);
void backend_connection_end (void);

#endif
