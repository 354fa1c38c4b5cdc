/* SPDX-License-Identifier: BSD-3-Clause
 *
 * See watch.h.
 *
 * A connection is on the list from its first batch until it has had no
 * callback running for LINGER ticks; so a busy one pays for a flag test a
 * batch, an idle one nothing.  Lock order: watch lock, workers.lock.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "cleanup.h"
#include "connection.h"
#include "log.h"
#include "watch.h"

#define TICK_NS 1000000
#define LINGER 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static struct connection *list;
static bool stop;
static pthread_t thread;

/* Ticks every connection and drops those that have become quiet. */
static void
tick (void)
{
    struct connection **at = &list, *c;

    while ((c = *at)) {
        struct workers *w = &c->workers;

        if (workers_tick (c))
            w->watch_idle = 0;
        else if (++w->watch_idle >= LINGER) {
            atomic_store (&w->watched, false);
            /* A thread that still saw the mark may have begun meanwhile. */
            if (!workers_tick (c)) {
                *at = w->watch_next;
                continue;
            }
            atomic_store (&w->watched, true);
        }
        at = &w->watch_next;
    }
}

static void
wait_one_tick (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    t.tv_nsec += TICK_NS;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    while (!stop && pthread_cond_timedwait (&wake, &lock, &t) != ETIMEDOUT)
        ;
}

static void *
watch_main (void *arg)
{
    SCOPED_LOCK (&lock);

    (void) arg;
    pthread_setname_np (pthread_self (), "watch");
    while (!stop) {
        if (!list) {
            pthread_cond_wait (&wake, &lock);
            continue;
        }
        wait_one_tick ();
        tick ();
    }
    return NULL;
}

int
watch_start (void)
{
    pthread_condattr_t attr;
    int err;

    pthread_condattr_init (&attr);
    pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
    pthread_cond_init (&wake, &attr);
    pthread_condattr_destroy (&attr);
    err = pthread_create (&thread, NULL, watch_main, NULL);
    if (err)
        log_error ("cannot start a thread: %s", strerror (err));
    return err ? -1 : 0;
}

void
watch_stop (void)
{
    {
        SCOPED_LOCK (&lock);
        stop = true;
        pthread_cond_signal (&wake);
    }
    pthread_join (thread, NULL);
}

void
watch_connection (struct connection *c)
{
    struct workers *w = &c->workers;

    if (atomic_load (&w->watched))
        return;
    SCOPED_LOCK (&lock);
    if (atomic_load (&w->watched)) /* another of its threads was faster */
        return;
    w->watch_idle = 0;
    w->watch_next = list;
    if (!list)
        pthread_cond_signal (&wake);
    list = c;
    atomic_store (&w->watched, true);
}

void
watch_forget (struct connection *c)
{
    SCOPED_LOCK (&lock);

    for (struct connection **at = &list; *at; at = &(*at)->workers.watch_next)
        if (*at == c) {
            *at = c->workers.watch_next;
            break;
        }
}
