/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rule by which stand-bys are called (pace.h).  It has no Python in it, but
 * no client can see it either.
 */
#include "bridge_test.h"

#include "../pace.h"

#define US INT64_C (1000)
#define MS INT64_C (1000000)

static void
test_rule (void)
{
    static const struct {
        int64_t used, away;
        bool gave_up;
        int inside;
        bool blocked;
    } callbacks[] = {
        { 20 * US, 100 * US, true, 1, true },    /* reads a disk */
        { 20 * US, 400 * US, true, 4, true },    /* so do others */
        { 20 * US, 400 * US, true, 16, false },  /* who are enough */
        { 20 * US, 10 * MS, true, 64, true },    /* sleeps */
        { 20 * US, 1 * MS, true, 16, true },     /* not for long */
        { 250 * US, 30 * US, true, 1, true },    /* waits for a little */
        { 250 * US, 300 * US, true, 2, false },  /* for the lock, mostly */
        { 300 * US, 3 * MS, true, 2, false },    /* for some turns */
        { 350 * US, 5 * MS, true, 8, false },    /* among many */
        { 500 * US, 20 * MS, true, 8, true },    /* for a server */
        { 250 * US, 0, false, 1, false },        /* reads the page cache */
        { 250 * US, 9 * MS, false, 1, false },   /* was put off */
        { 250 * US, 9 * MS, false, 2, false },
        { 2 * MS, 0, false, 1, true }, /* computes for long */
        { 2 * MS, 0, false, 2, true },
    };

    for (size_t i = 0; i < sizeof callbacks / sizeof callbacks[0]; i++)
        CHECK_EQUAL (100 * (int) i
                         + pace_blocked (callbacks[i].used, callbacks[i].away,
                                         callbacks[i].gave_up,
                                         callbacks[i].inside),
                     100 * (int) i + callbacks[i].blocked);
}

const struct test pace_tests[] = {
    { "pace-rule", test_rule },
    { NULL, NULL },
};
