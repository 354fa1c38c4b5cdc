/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What --stats counts.  All functions are cheap and may be called from any
 * thread, with or without the GIL.
 */
#ifndef NBDSPEC_STATS_H
#define NBDSPEC_STATS_H

#include <stdint.h>

/* Back-end callbacks, as counted under "callbacks". */
enum stats_callback {
    COUNT_NONE, /* what is not counted */
    COUNT_PRECONNECT,
    COUNT_LIST_EXPORTS,
    COUNT_DEFAULT_EXPORT,
    COUNT_OPEN,
    COUNT_CLOSE,
    COUNT_PREAD,
    COUNT_PWRITE,
    COUNT_FLUSH,
    COUNT_TRIM,
    COUNT_ZERO,
    COUNT_CACHE,
    COUNT_EXTENTS,
    N_STATS_CALLBACKS
};

/* The engine calls a back end's function. */
void stats_callback (enum stats_callback which);
/* The bridge calls a script's: of its calls only these count, for what a
 * script does not define is not called. */
void stats_script_call (enum stats_callback which);

void stats_received (uint64_t bytes);
void stats_sent (uint64_t bytes);
/* Request data copied from one place in memory to another by the server. */
void stats_copied (uint64_t bytes);
/* A plugin kept a view of a request's buffer. */
void stats_view_kept (void);
/* Around a request in the back end.  Return how many are there, this one
 * included. */
int stats_request_begin (void);
int stats_request_end (void);
/* How many have begun so far. */
uint64_t stats_requests (void);
/* A serving thread begins or ends. */
void stats_thread (int change);

/* Writes the JSON file named by --stats, if there is one, whole or not at all.
 * Errors are logged. */
void stats_write (void);

#endif
