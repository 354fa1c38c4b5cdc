/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the exporter costs a request, against a view that nobody owns
 * (bridge-test --bench; docs/performance.md).
 */
#include "bridge_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../python/bridge.h"

#define ROUNDS 31
#define CALLS 100000
#define SIZE 4096

static struct buffer *buf;
static void *handle;

static void
bare_view (void)
{
    Py_XDECREF (
        PyMemoryView_FromMemory ((char *) buf->data, SIZE, PyBUF_WRITE));
}

static void
exporter (void)
{
    Py_XDECREF (exporter_view (buf, SIZE, false));
    exporter_finish (buf, 0, CB_PREAD);
}

static void
exporter_made_anew (void)
{
    exporter ();
    exporter_drop (buf->owner);
    buf->owner = NULL;
}

static void
whole_pread (void)
{
    struct io io = { .count = SIZE, .buf = buf };

    backend->pread (handle, &io);
}

static void
whole_pwrite (void)
{
    struct io io = { .count = SIZE, .buf = buf };

    backend->pwrite (handle, &io);
}

static const struct {
    const char *name;
    void (*run) (void);
} contenders[] = {
    { "PyMemoryView_FromMemory", bare_view },
    { "exporter", exporter },
    { "exporter, made anew", exporter_made_anew },
    { "pread of 4 KiB, an empty function", whole_pread },
    { "pwrite of 4 KiB, an empty function", whole_pwrite },
};
#define N (sizeof contenders / sizeof contenders[0])

static double
nanoseconds (void (*run) (void))
{
    struct timespec a, b;

    clock_gettime (CLOCK_THREAD_CPUTIME_ID, &a);
    for (int i = 0; i < CALLS; i++)
        run ();
    clock_gettime (CLOCK_THREAD_CPUTIME_ID, &b);
    return ((double) (b.tv_sec - a.tv_sec) * 1e9
            + (double) (b.tv_nsec - a.tv_nsec))
           / CALLS;
}

static int
compare (const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}

void
bench (void)
{
    double times[N][ROUNDS];

    start ("bench.py", NULL);
    worker_begin ("worker");
    handle = open_export ();
    buf = buffer_get (SIZE);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < N; i++)
            times[i][round] = nanoseconds (contenders[i].run);
    printf ("%-36s %8s %8s\n", "ns of processor time a call", "median",
            "minimum");
    for (size_t i = 0; i < N; i++) {
        qsort (times[i], ROUNDS, sizeof times[i][0], compare);
        printf ("%-36s %8.0f %8.0f\n", contenders[i].name,
                times[i][ROUNDS / 2], times[i][0]);
    }
    buffer_put (buf);
    backend->close (handle);
    worker_end ();
    finish ();
}
