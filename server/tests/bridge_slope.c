/* SPDX-License-Identifier: BSD-3-Clause
 *
 * No path leaves an object, a traceback, a frame or a view behind: thousands
 * of calls of each, good and failing, and the interpreter's own count of what
 * is alive stays flat.  With a debug build of Python every single reference
 * counts (sys.gettotalrefcount), else every block of memory.
 */
#include "bridge_test.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../config.h"
#include "../export.h"
#include "../extents.h"
#include "../log.h"

#define BATCHES 5
#define RESIDENT_SLACK 4096 /* KiB */
/* Calls, before anything is measured: the interpreter fills caches of its own
 * as it makes the first 1600 or so tracebacks (sometimes more, which is why a
 * leak must show in measurements that are repeated). */
#define WARM_UP 2000

static void *handle;

static void
op_preconnect (void)
{
    backend->preconnect (false);
}

static void
op_list_exports (void)
{
    struct export_list list = { 0 };

    backend->list_exports (false, false, &list);
    export_list_free (&list);
}

static void
op_default_export (void)
{
    free (backend->default_export (false, false));
}

static void
op_open_close (void)
{
    void *h;

    if (backend->open (false, false, "name", &h) == 0)
        backend->close (h);
}

static void
op_description (void)
{
    free (backend->export_description (handle));
}

static void
op_get_size (void)
{
    backend->get_size (handle);
}

static void
op_block_size (void)
{
    uint32_t a, b, c;

    backend->block_size (handle, &a, &b, &c);
}

static void
op_can (void)
{
    for (int i = 0; i < N_CAPABILITIES; i++)
        backend->can (handle, (enum capability) i);
}

static void
op_pread (void)
{
    read_at (handle, 4096, 512, NULL);
}

static void
op_pwrite (void)
{
    write_at (handle, 4096, 512, 'x', NULL);
}

static void
op_pwrite_bytes (void)
{
    config.python_buffer = BUFFER_BYTES;
    op_pwrite ();
}

static void
op_pwrite_bytearray (void)
{
    config.python_buffer = BUFFER_BYTEARRAY;
    op_pwrite ();
}

static void
op_flush (void)
{
    request (handle, backend->flush, &(struct io) { 0 });
}

static void
op_trim (void)
{
    request (handle, backend->trim, &(struct io) { .count = 4096 });
}

static void
op_zero (void)
{
    request (handle, backend->zero, &(struct io) { .count = 4096 });
}

static void
op_cache (void)
{
    request (handle, backend->cache, &(struct io) { .count = 4096 });
}

static void
op_extents (void)
{
    struct extents x;

    extents_init (&x, 0, 8192, 1 << 20, false);
    request (handle, backend->extents,
             &(struct io) { .count = 8192, .extents = &x });
    extents_free (&x);
}

static void *
short_life (void *unused)
{
    worker_begin ("short-lived");
    op_pread ();
    worker_end ();
    return unused;
}

static void
op_thread (void)
{
    pthread_t thread;

    backend->leave ();
    CHECK (pthread_create (&thread, NULL, short_life, NULL) == 0);
    pthread_join (thread, NULL);
    backend->enter ();
}

static const struct {
    const char *name;
    void (*run) (void);
} operations[] = {
    { "preconnect", op_preconnect },
    { "list_exports", op_list_exports },
    { "default_export", op_default_export },
    { "open, close", op_open_close },
    { "export_description", op_description },
    { "get_size", op_get_size },
    { "block_size", op_block_size },
    { "can_*", op_can },
    { "pread", op_pread },
    { "pwrite", op_pwrite },
    { "pwrite of bytes", op_pwrite_bytes },
    { "pwrite of a bytearray", op_pwrite_bytearray },
    { "flush", op_flush },
    { "trim", op_trim },
    { "zero", op_zero },
    { "cache", op_cache },
    { "extents", op_extents },
    { "thread", op_thread },
};

/* What a batch of calls leaves behind: the least that one did, but for the
 * first, which finds caches empty. */
static long
slope (void (*op) (void), long calls)
{
    long least = LONG_MAX, before = 0;

    for (int batch = 0; batch < BATCHES; batch++) {
        for (long i = 0; i < calls / BATCHES; i++)
            op ();
        long now = python_value ("measure ()");
        if (batch > 0 && now - before < least)
            least = now - before;
        before = now;
    }
    return least;
}

/* The process's memory, in KiB; always the same under a sanitizer, which keeps
 * what is freed. */
static long
resident (void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#else
    long total = 0, pages = 0;
    FILE *f = fopen ("/proc/self/statm", "re");

    CHECK (f && fscanf (f, "%ld %ld", &total, &pages) == 2);
    fclose (f);
    return pages * (sysconf (_SC_PAGESIZE) / 1024);
#endif
}

static void
check_slopes (const char *api, const char *fail)
{
    char code[64];
    long calls = test_calls;

    log_open (LOG_TO_NULL, NULL);
    start ("slope.py", api);
    worker_begin ("worker");
    handle = open_export ();
    snprintf (code, sizeof code, "fail = '%s'", fail);
    python_run (code);
    /* A traceback's text takes its time: where all of it is not wanted, the
     * first way of failing stands for the others. */
    if (fail[0] && strcmp (fail, "raise") != 0 && calls < 100000)
        calls /= 10;
    for (int i = 0; i < WARM_UP; i++)
        op_preconnect ();
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        config.python_buffer = BUFFER_MEMORYVIEW;
        long before = resident ();
        long left = slope (operations[i].run, calls);
        /* What is lost is lost at every call: half a thing is too much. */
        long leak = calls / BATCHES / 2;
        for (int again = 0; left >= leak && again < 5; again++)
            left = slope (operations[i].run, calls);
        if (left >= leak) {
            fprintf (stderr, "%s (%s): %ld things left behind in %ld calls\n",
                     operations[i].name, fail[0] ? fail : "good", left,
                     calls / BATCHES);
            test_failed (__FILE__, __LINE__, "flat");
        }
        /* One byte a call, and what an allocator keeps in hand. */
        long grown = resident () - before;
        if (grown > calls / 1024 + RESIDENT_SLACK) {
            fprintf (stderr, "%s (%s): memory grew by %ld KiB in %ld calls\n",
                     operations[i].name, fail[0] ? fail : "good", grown,
                     calls);
            test_failed (__FILE__, __LINE__, "memory is flat");
        }
        printf ("%-21s %ld calls, %s: %ld left behind in %ld, %+ld KiB\n",
                operations[i].name, calls, fail[0] ? fail : "good", left,
                calls / BATCHES, grown);
        fflush (stdout);
    }
    python_run ("fail = ''");
    backend->close (handle);
    worker_end ();
    finish ();
}

static void
test_good (void)
{
    check_slopes ("api=2", "");
}

static void
test_good_v1 (void)
{
    check_slopes ("api=1", "");
}

#define FAILING(name, version, how)                                           \
    static void name (void)                                                   \
    {                                                                         \
        check_slopes ("api=" version, how);                                   \
    }
FAILING (test_raise, "2", "raise")
FAILING (test_raise_v1, "1", "raise")
FAILING (test_chain, "2", "chain")
FAILING (test_set_error, "2", "set_error")
FAILING (test_text, "2", "text")
FAILING (test_unprintable, "2", "str")
FAILING (test_surrogate, "2", "surrogate")
FAILING (test_exit, "2", "exit")
FAILING (test_result, "2", "result")
FAILING (test_result_v1, "1", "result")
FAILING (test_late, "2", "late")

const struct test slope_tests[] = {
    { "slope-good", test_good },
    { "slope-good-v1", test_good_v1 },
    { "slope-raise", test_raise },
    { "slope-raise-v1", test_raise_v1 },
    { "slope-chain", test_chain },
    { "slope-set_error", test_set_error },
    { "slope-text", test_text },
    { "slope-unprintable", test_unprintable },
    { "slope-surrogate", test_surrogate },
    { "slope-exit", test_exit },
    { "slope-wrong-result", test_result },
    { "slope-wrong-result-v1", test_result_v1 },
    { "slope-late", test_late },
    { NULL, NULL },
};
