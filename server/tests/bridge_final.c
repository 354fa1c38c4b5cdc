/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The end of the interpreter, with everything that a script can put in its
 * way.
 */
#include "bridge_test.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../python/bridge.h"

/* Serves a little, ends, and returns what was written to stderr. */
static const char *
run_to_end (const char *how)
{
    static char text[65536];
    int out[2], saved = dup (STDERR_FILENO);

    CHECK (pipe (out) == 0);
    dup2 (out[1], STDERR_FILENO);
    close (out[1]);

    start ("final.py", how);
    worker_begin ("worker");
    void *handle = open_export ();
    for (int i = 0; i < 10; i++) {
        CHECK_EQUAL (write_at (handle, 0, 4096, 'A', NULL), 0);
        CHECK_EQUAL (read_at (handle, 0, 4096, NULL), 0);
    }
    backend->close (handle);
    worker_end ();
    finish ();

    dup2 (saved, STDERR_FILENO);
    size_t n = 0;
    for (ssize_t r = 1; r > 0 && n < sizeof text - 1; n += (size_t) r) {
        r = read (out[0], text + n, sizeof text - 1 - n);
        CHECK (r >= 0);
    }
    return text;
}

static bool
in_order (const char *text, const char *const *words)
{
    for (; *words; words++) {
        text = strstr (text, *words);
        if (!text)
            return false;
        text += strlen (*words);
    }
    return true;
}
#define IN_ORDER(text, ...)                                                   \
    in_order (text, (const char *const[]) { __VA_ARGS__, NULL })

static void
test_plain (void)
{
    CHECK (IN_ORDER (run_to_end ("how=plain"), "cleanup", "unload", "atexit"));
}

static void
test_view (void)
{
    CHECK (IN_ORDER (run_to_end ("how=view"), "cleanup", "unload", "atexit"));
}

static void
test_late (void)
{
    CHECK (IN_ORDER (run_to_end ("how=late"), "atexit", "last look: A",
                     "last look: A"));
}

static void
test_daemon (void)
{
    CHECK (IN_ORDER (run_to_end ("how=daemon"), "cleanup", "atexit"));
}

static void
test_waits (void)
{
    CHECK (IN_ORDER (run_to_end ("how=thread"), "cleanup", "thread ended",
                     "atexit"));
}

static void
test_raise (void)
{
    CHECK (IN_ORDER (run_to_end ("how=raise"), "cleanup",
                     "cleanup: error: Traceback", "in cleanup", "unload",
                     "atexit"));
}

/* Before the script is loaded, and after it could not be. */
static void
test_nothing_loaded (void)
{
    char *words[] = { (char *) "/nonexistent/script.py" };

    backend = &backend_python;
    finish ();
    CHECK (backend->config (1, words) == -1);
    finish ();
}

const struct test final_tests[] = {
    { "final-plain", test_plain },
    { "final-kept-view", test_view },
    { "final-last-look", test_late },
    { "final-daemon-threads", test_daemon },
    { "final-waits-for-threads", test_waits },
    { "final-cleanup-raises", test_raise },
    { "final-nothing-loaded", test_nothing_loaded },
    { NULL, NULL },
};
