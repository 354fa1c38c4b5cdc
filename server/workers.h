/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The threads that serve one connection's requests.
 *
 * Each does everything: it receives, runs callbacks, sends replies.  One at a
 * time has the intake.  As long as callbacks return quickly one thread alone
 * is fastest: it takes many requests with one recv, runs them one after the
 * other inside one backend bracket (the GIL stays with it), and sends all the
 * replies with one call.  Another thread is only brought in when a callback
 * blocks: at once where callbacks have been seen to block (pace.h), else by
 * the watch (watch.h) after a tick.  That one waits for the bracket, the
 * stand-by, and takes the next request when it gets it; there is never more
 * than one stand-by.  So up to `max' callbacks can be inside at once, and no
 * thread is woken for nothing.
 *
 * Under the serial models `max' is 1 and all callbacks of the connection run
 * on the connection's own thread; then a second thread may exist which only
 * sends replies that a blocking callback would hold up.
 *
 * Lock order: workers.lock, then outgo.lock or the pool's.  All are leaves
 * under the GIL: no holder of one asks for the GIL.
 */
#ifndef NBDSPEC_WORKERS_H
#define NBDSPEC_WORKERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct connection;

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t wake;      /* a stand-by is called, or it is over */
    pthread_cond_t send_wake; /* the sender is called, or it is over */
    pthread_cond_t gone;      /* a thread has ended */
    unsigned max;             /* callbacks inside at once */
    unsigned threads;         /* that run callbacks, the connection's too */
    unsigned started;         /* ever, for names */
    unsigned idle;            /* wait on `wake' */
    unsigned inside;          /* requests taken and not finished */
    unsigned pipelining;      /* >0: several were in flight lately */
    uint64_t taken;           /* requests so far */
    bool receiving;           /* a thread has the intake */
    bool standby;             /* a thread is called, or waits to take one */
    bool called;              /* ... and no idle thread has answered yet */
    bool sender, send_call;   /* the thread that only sends exists; is wanted */
    bool over;                /* no further request will be taken */

    uint64_t watch_taken;     /* as of the last tick */

    /* watch.c's, under its lock. */
    atomic_bool watched;
    unsigned watch_idle;
    struct connection *watch_next;
};

int workers_init (struct workers *w);
void workers_free (struct workers *w);

/* Serves C's requests until the connection is over; returns when all threads
 * but the calling one have ended and all replies are sent. */
void workers_run (struct connection *c);

/* For the watch, every tick.  Sees to it that neither finished replies nor,
 * where the model allows, further requests wait for a callback that has not
 * returned since the tick before.  Returns whether C has a callback running. */
bool workers_tick (struct connection *c);

/* Is a request of C in the back end? */
bool workers_busy (struct connection *c);

#endif
