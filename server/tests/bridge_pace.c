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
        bool gave_up, alone, blocked;
    } callbacks[] = {
        { 20 * US, 100 * US, true, true, true }, /* reads a disk */
        { 20 * US, 100 * US, true, false, true }, /* so do others */
        { 250 * US, 30 * US, true, true, true }, /* waits for a little */
        { 250 * US, 300 * US, true, false, false }, /* for the lock, mostly */
        { 250 * US, 0, false, true, false }, /* reads the page cache */
        { 250 * US, 9 * MS, false, true, false }, /* was put off */
        { 250 * US, 9 * MS, false, false, false },
        { 2 * MS, 0, false, true, true }, /* computes for long */
        { 2 * MS, 0, false, false, true },
    };

    for (size_t i = 0; i < sizeof callbacks / sizeof callbacks[0]; i++)
        CHECK_EQUAL (100 * (int) i
                         + pace_blocked (callbacks[i].used, callbacks[i].away,
                                         callbacks[i].gave_up,
                                         callbacks[i].alone),
                     100 * (int) i + callbacks[i].blocked);
}

const struct test pace_tests[] = {
    { "pace-rule", test_rule },
    { NULL, NULL },
};
