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
#include <stdbool.h>
#include <stdint.h>

struct connection;

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t wake;    /* an idle thread is wanted, or it is over */
    pthread_cond_t gone;    /* a thread has ended */
    unsigned max;           /* callbacks inside at once */
    unsigned threads;       /* that may run callbacks, this connection's too */
    unsigned started;       /* ever, for names */
    unsigned idle;          /* waiting on `wake' */
    unsigned calls;         /* wake-ups under way */
    unsigned inside;        /* requests taken, callback not yet finished */
    bool receiving;         /* a thread has the intake */
    bool standby;           /* a thread was called and has not taken yet */
    bool sender;            /* the thread that only sends exists */
    bool send_call;         /* and is wanted */
    bool over;              /* no further request will be taken */
    unsigned pipelining;    /* >0: the client had several in flight lately */
    uint64_t taken;         /* requests so far; the watch compares */
    bool watched;           /* see watch.c; under its lock */
    uint64_t watch_taken;
    unsigned watch_idle;
    struct connection *watch_next;
};

int workers_init (struct workers *w);
void workers_free (struct workers *w);

/* Serves C's requests until the connection is over; returns when all threads
 * but the calling one have ended and all replies are sent. */
void workers_run (struct connection *c);

/* From the watch: a callback of C has not returned for a tick.  Sees to it
 * that neither finished replies nor, where the model allows, further requests
 * wait for it. */
void workers_help (struct connection *c);

#endif
