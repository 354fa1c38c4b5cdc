/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Do this back end's callbacks block?  Learnt from what they did lately: one
 * that gave up the processor, or took long, makes the engine bring in further
 * threads at once; a run of quick ones makes it stop.
 */
#ifndef NBDSPEC_PACE_H
#define NBDSPEC_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Around one callback.  NOW is the time as of a moment ago; INSIDE is how many
 * callbacks are under way then, this one included. */
struct pace {
    int64_t begun; /* CLOCK_MONOTONIC, ns */
    int inside;
    uint64_t requests; /* that have come so far */
    bool asked;        /* are these known? */
    long switches;     /* voluntary context switches of the thread */
    int64_t cpu_ns;
};
void pace_begin (struct pace *p, int64_t now, int inside);
int64_t pace_end (struct pace *p, int inside); /* returns the time */

/* A callback has not returned for a while, which may have other reasons: look
 * closer at the next ones. */
void pace_suspect (void);

/* Are callbacks expected to block? */
bool pace_blocks (void);

/* The rule: did a callback block, or compute for so long that others shall be
 * brought in?  It had the processor for USED_NS, was AWAY_NS without it, and
 * GAVE_UP the processor by itself or not, while up to so many were INSIDE.
 * One that is not alone gives it up for the interpreter's lock, too, and may
 * have to wait for several turns of the others.  Were that a reason to bring in
 * others, they would keep each other in for good; so it has to have been away
 * for much longer than all that are inside can use. */
bool pace_blocked (int64_t used_ns, int64_t away_ns, bool gave_up, int inside);

/* CLOCK_MONOTONIC in ns. */
int64_t pace_now (void);

#endif
