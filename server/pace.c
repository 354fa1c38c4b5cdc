/* SPDX-License-Identifier: BSD-3-Clause
 *
 * See pace.h.  Asking the kernel whether a thread gave up the processor costs
 * a system call; it is only asked while callbacks take long enough for that
 * not to matter.
 */
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "pace.h"

#define SUSPECT_NS 20000 /* longer than this: look closer at the next ones */
#define LONG_NS 100000   /* longer than this: bring in others anyway */
#define MEMORY 64        /* quick callbacks until blocking ones are forgotten */

static atomic_int blocking; /* MEMORY after a blocking callback, counts down */
static atomic_int suspect;

int64_t
pace_now (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

static long
voluntary_switches (void)
{
    struct rusage u;

    getrusage (RUSAGE_THREAD, &u);
    return u.ru_nvcsw;
}

static void
count_down (atomic_int *n)
{
    int now = atomic_load_explicit (n, memory_order_relaxed);

    if (now > 0)
        atomic_store_explicit (n, now - 1, memory_order_relaxed);
}

void
pace_begin (struct pace *p)
{
    p->switches = -1;
    if (atomic_load_explicit (&suspect, memory_order_relaxed) > 0)
        p->switches = voluntary_switches ();
    p->begun = pace_now ();
}

int64_t
pace_end (struct pace *p)
{
    int64_t now = pace_now (), took = now - p->begun;

    if (took > SUSPECT_NS)
        atomic_store_explicit (&suspect, MEMORY, memory_order_relaxed);
    else
        count_down (&suspect);

    if (took > LONG_NS
        || (p->switches >= 0 && took > SUSPECT_NS
            && voluntary_switches () > p->switches))
        pace_blocked ();
    else
        count_down (&blocking);
    return now;
}

void
pace_blocked (void)
{
    atomic_store_explicit (&blocking, MEMORY, memory_order_relaxed);
}

bool
pace_blocks (void)
{
    return atomic_load_explicit (&blocking, memory_order_relaxed) > 0;
}
