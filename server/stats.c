/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters for --stats.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend.h"
#include "cleanup.h"
#include "config.h"
#include "log.h"
#include "stats.h"

static const char *const callback_names[N_STATS_CALLBACKS] = {
    [COUNT_PRECONNECT] = "preconnect",
    [COUNT_LIST_EXPORTS] = "list_exports",
    [COUNT_DEFAULT_EXPORT] = "default_export",
    [COUNT_OPEN] = "open",
    [COUNT_CLOSE] = "close",
    [COUNT_PREAD] = "pread",
    [COUNT_PWRITE] = "pwrite",
    [COUNT_FLUSH] = "flush",
    [COUNT_TRIM] = "trim",
    [COUNT_ZERO] = "zero",
    [COUNT_CACHE] = "cache",
    [COUNT_EXTENTS] = "extents",
};

static atomic_uint_fast64_t callbacks[N_STATS_CALLBACKS];
static atomic_uint_fast64_t bytes_in, bytes_out, bytes_copied, views_kept;
static atomic_uint_fast64_t requests;
static atomic_int in_flight, in_flight_max, threads, threads_max;

static void
add (atomic_uint_fast64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit (counter, n, memory_order_relaxed);
}

static int
add_with_max (atomic_int *counter, atomic_int *max, int n)
{
    int now = atomic_fetch_add_explicit (counter, n, memory_order_relaxed) + n;
    int seen = atomic_load_explicit (max, memory_order_relaxed);

    while (now > seen
           && !atomic_compare_exchange_weak_explicit (
               max, &seen, now, memory_order_relaxed, memory_order_relaxed))
        ;
    return now;
}

void
stats_callback (enum stats_callback which)
{
    if (!backend->runs_scripts)
        add (&callbacks[which], 1);
}

void
stats_script_call (enum stats_callback which)
{
    add (&callbacks[which], 1);
}

void
stats_received (uint64_t bytes)
{
    add (&bytes_in, bytes);
}

void
stats_sent (uint64_t bytes)
{
    add (&bytes_out, bytes);
}

void
stats_copied (uint64_t bytes)
{
    add (&bytes_copied, bytes);
}

void
stats_view_kept (void)
{
    add (&views_kept, 1);
}

int
stats_request_begin (void)
{
    add (&requests, 1);
    return add_with_max (&in_flight, &in_flight_max, 1);
}

int
stats_request_end (void)
{
    return atomic_fetch_sub_explicit (&in_flight, 1, memory_order_relaxed);
}

uint64_t
stats_requests (void)
{
    return atomic_load_explicit (&requests, memory_order_relaxed);
}

void
stats_thread (int change)
{
    add_with_max (&threads, &threads_max, change);
}

static void
print_counter (FILE *f, const char *name, atomic_uint_fast64_t *n)
{
    fprintf (f, "  \"%s\": %llu,\n", name, (unsigned long long) *n);
}

static void
print_all (FILE *f)
{
    const char *comma = "";

    fprintf (f, "{\n");
    print_counter (f, "bytes_in", &bytes_in);
    print_counter (f, "bytes_out", &bytes_out);
    print_counter (f, "bytes_copied", &bytes_copied);
    print_counter (f, "views_kept", &views_kept);
    print_counter (f, "requests", &requests);
    fprintf (f, "  \"in_flight_max\": %d,\n  \"callbacks\": {",
             in_flight_max);
    for (int i = COUNT_NONE + 1; i < N_STATS_CALLBACKS; i++) {
        if (callbacks[i] == 0)
            continue;
        fprintf (f, "%s\"%s\": %llu", comma, callback_names[i],
                 (unsigned long long) callbacks[i]);
        comma = ", ";
    }
    fprintf (f, "},\n  \"threads\": %d\n}\n", threads_max);
}

/* A file, which is replaced as a whole, or nothing yet.  A device, a pipe or a
 * link is written to. */
static bool
is_replaceable (const char *path)
{
    struct stat st;

    return lstat (path, &st) == -1 || S_ISREG (st.st_mode);
}

/* 0, or -1 with errno set. */
static int
write_file (FILE *f)
{
    int bad;

    if (!f)
        return -1;
    print_all (f);
    bad = ferror (f);
    return fclose (f) != 0 || bad ? -1 : 0;
}

/* A pipe that nobody reads is an error, not a reason to wait. */
static FILE *
open_in_place (const char *path)
{
    int fd = open (path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK);

    return fd == -1 ? NULL : fdopen (fd, "w");
}

void
stats_write (void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    SCOPED_LOCK (&lock);
    AUTO_FREE char *temporary = NULL;

    if (!config.stats)
        return;
    if (!is_replaceable (config.stats)) {
        if (write_file (open_in_place (config.stats)) == -1)
            log_error ("--stats: %s: %m", config.stats);
        return;
    }
    if (asprintf (&temporary, "%s.%d", config.stats, (int) getpid ()) == -1) {
        temporary = NULL;
        return;
    }
    if (write_file (fopen (temporary, "wxe")) == -1
        || rename (temporary, config.stats) == -1) {
        log_error ("--stats: %s: %m", config.stats);
        if (errno != EEXIST) /* then it is not ours */
            unlink (temporary);
    }
}
