/* SPDX-License-Identifier: BSD-3-Clause
 *
 * See pace.h.  The wall clock alone does not tell a callback that blocks from
 * one that was put off by a busy machine; the kernel knows, but asking it costs
 * a system call.  So it is only asked while callbacks take long enough for
 * that not to matter.
 */
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "pace.h"
#include "stats.h"

#define SUSPECT_NS 20000 /* longer than this: look closer at the next ones */
#define LONG_NS 1000000  /* of processor time: bring in others anyway */
#define SUSPECT_FOR 64   /* quick callbacks until they are trusted again */
#define BLOCKING_FOR 256 /* others until blocking ones are forgotten */
#define CROWD 2          /* see pace_blocked */
#define FEW 8            /* a crowd can keep one away as if it were so many */

static atomic_int blocking; /* BLOCKING_FOR after such a one, counts down */
static atomic_int suspect;

static int64_t
read_clock (clockid_t clock)
{
    struct timespec t;

    clock_gettime (clock, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t
pace_now (void)
{
    return read_clock (CLOCK_MONOTONIC);
}

/* How often this thread has given up the processor by itself, and how long it
 * has had it: not from getrusage, whose times are exact to a tick only. */
static void
ask_kernel (long *switches, int64_t *cpu_ns)
{
    struct rusage u;

    getrusage (RUSAGE_THREAD, &u);
    *switches = u.ru_nvcsw;
    *cpu_ns = read_clock (CLOCK_THREAD_CPUTIME_ID);
}

static void
count_down (atomic_int *n)
{
    int now = atomic_load_explicit (n, memory_order_relaxed);

    if (now > 0)
        atomic_store_explicit (n, now - 1, memory_order_relaxed);
}

void
pace_begin (struct pace *p, int64_t now, int inside)
{
    p->inside = inside;
    p->requests = stats_requests ();
    p->asked = atomic_load_explicit (&suspect, memory_order_relaxed) > 0;
    if (p->asked)
        ask_kernel (&p->switches, &p->cpu_ns);
    p->begun = now;
}

bool
pace_blocked (int64_t used_ns, int64_t away_ns, bool gave_up, int inside)
{
    int crowd = inside > FEW ? inside : FEW;

    if (used_ns > LONG_NS)
        return true;
    if (inside > 1 && away_ns <= CROWD * crowd * used_ns)
        return false;
    return gave_up;
}

/* How many were inside during a callback, itself included, at whose end there
 * are NOW; at least two if another one came, even if it has left again. */
static int
company (const struct pace *p, int now)
{
    int most = now > p->inside ? now : p->inside;

    if (most == 1 && stats_requests () != p->requests)
        most = 2;
    return most;
}

/* Of a callback that took its time. */
static bool
was_blocking (const struct pace *p, int64_t now, int inside)
{
    long switches;
    int64_t cpu_ns, used;

    ask_kernel (&switches, &cpu_ns);
    used = cpu_ns - p->cpu_ns;
    return pace_blocked (used, now - p->begun - used, switches > p->switches,
                         company (p, inside));
}

int64_t
pace_end (struct pace *p, int inside)
{
    int64_t now = pace_now ();
    bool suspicious = now - p->begun > SUSPECT_NS;

    if (suspicious)
        pace_suspect ();
    else
        count_down (&suspect);

    if (suspicious && p->asked && was_blocking (p, now, inside))
        atomic_store_explicit (&blocking, BLOCKING_FOR, memory_order_relaxed);
    else
        count_down (&blocking);
    return now;
}

void
pace_suspect (void)
{
    atomic_store_explicit (&suspect, SUSPECT_FOR, memory_order_relaxed);
}

bool
pace_blocks (void)
{
    return atomic_load_explicit (&blocking, memory_order_relaxed) > 0;
}
