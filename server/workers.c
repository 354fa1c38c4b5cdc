/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Serving threads, see workers.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "cleanup.h"
#include "config.h"
#include "connection.h"
#include "log.h"
#include "pace.h"
#include "request.h"
#include "stats.h"
#include "watch.h"
#include "wire.h"

/* A bracket, and with it the replies of its requests, lasts no longer than
 * this (unless a callback does). */
#define BATCH_REQUESTS 64
#define BATCH_BYTES (256U << 10)
#define BATCH_NS 500000

/* So many requests after the client had several in flight, it is still
 * expected to do so. */
#define PIPELINING 64

int
workers_init (struct workers *w)
{
    w->max = thread_model == THREAD_MODEL_PARALLEL ? config.threads : 1;
    w->threads = w->started = 1;
    return pthread_mutex_init (&w->lock, NULL)
           || pthread_cond_init (&w->wake, NULL)
           || pthread_cond_init (&w->send_wake, NULL)
           || pthread_cond_init (&w->gone, NULL);
}

void
workers_free (struct workers *w)
{
    pthread_cond_destroy (&w->gone);
    pthread_cond_destroy (&w->send_wake);
    pthread_cond_destroy (&w->wake);
    pthread_mutex_destroy (&w->lock);
}

static void *worker_main (void *arg);
static void *sender_main (void *arg);

/* -------- Calling in another thread.  All with w->lock held. -------- */

static bool
start_thread (struct connection *c, void *(*function) (void *))
{
    pthread_t thread;
    int err = pthread_create (&thread, NULL, function, c);

    if (err) {
        log_client_error ("cannot start a worker thread: %s", strerror (err));
        return false;
    }
    pthread_detach (thread);
    return true;
}

/* Calls a stand-by, if there is none yet and there may be one. */
static void
call_standby (struct connection *c)
{
    struct workers *w = &c->workers;

    if (w->standby || w->receiving || w->over)
        return;
    if (w->idle) {
        w->standby = w->called = true;
        pthread_cond_signal (&w->wake);
    } else if (w->threads < w->max && start_thread (c, worker_main)) {
        w->standby = true;
        w->threads++;
    }
}

static void
call_sender (struct connection *c)
{
    struct workers *w = &c->workers;

    if (w->sender) {
        w->send_call = true;
        pthread_cond_signal (&w->send_wake);
    } else if (!w->over) {
        w->sender = w->send_call = start_thread (c, sender_main);
    }
}

/* -------- Taking requests. -------- */

/* With w->lock held and nobody receiving: is there one in the buffer? */
static bool
has_ready_request (const struct connection *c)
{
    return intake_pending (&c->intake) >= request_header_size (c);
}

/* With w->lock held: a request was taken, or the end was found. */
static void
account_taken (struct connection *c, enum intake_result result)
{
    struct workers *w = &c->workers;

    if (result == INTAKE_END) {
        w->over = true;
        pthread_cond_broadcast (&w->wake);
        pthread_cond_signal (&w->send_wake);
    } else if (result == INTAKE_REQUEST) {
        w->taken++;
        if (++w->inside > 1 || has_ready_request (c))
            w->pipelining = PIPELINING;
        else if (w->pipelining)
            w->pipelining--;
    }
}

static struct request *
keep_if (struct connection *c, struct request *r, bool there_is_one)
{
    if (there_is_one || !r)
        return r;
    request_free (c, r);
    return NULL;
}

enum role {
    ROLE_RECEIVE, /* has the intake */
    ROLE_STANDBY, /* shall take a request that is ready in the buffer */
    ROLE_NONE,    /* it is over */
};

/* Waits for something to do.  CALLED: this thread has been started as the
 * stand-by. */
static enum role
await_role (struct connection *c, bool called)
{
    struct workers *w = &c->workers;
    SCOPED_LOCK (&w->lock);

    for (;;) {
        if (w->over)
            return ROLE_NONE;
        if (called && !w->receiving && has_ready_request (c))
            return ROLE_STANDBY;
        if (called)
            w->standby = false;
        if (!w->receiving) {
            w->receiving = true;
            return ROLE_RECEIVE;
        }
        w->idle++;
        while (!w->called && !w->over)
            pthread_cond_wait (&w->wake, &w->lock);
        w->idle--;
        called = w->called;
        w->called = false;
    }
}

/* The next request, waiting for it, by the thread that has the intake.  NULL:
 * it is over. */
static struct request *
receive_request (struct connection *c)
{
    struct workers *w = &c->workers;
    struct request *r = request_new (c);
    enum intake_result result = r ? intake_next (c, r) : INTAKE_END;

    {
        SCOPED_LOCK (&w->lock);
        w->receiving = false;
        account_taken (c, result);
    }
    return keep_if (c, r, result == INTAKE_REQUEST);
}

/* The end of one request, and the next that lies in the buffer, or NULL.  Never
 * waits, so that it can be called within a bracket. */
static struct request *
take_ready (struct connection *c, bool finished, bool standby, bool more)
{
    struct workers *w = &c->workers;
    struct request *r = more ? request_new (c) : NULL;
    enum intake_result result = INTAKE_NONE;

    {
        SCOPED_LOCK (&w->lock);
        if (finished)
            w->inside--;
        if (standby)
            w->standby = false;
        if (r && !w->receiving && !w->over)
            result = intake_try (c, r);
        account_taken (c, result);
    }
    return keep_if (c, r, result == INTAKE_REQUEST);
}

/* Before a callback that may block: somebody else shall go on. */
static void
hand_over (struct connection *c)
{
    struct workers *w = &c->workers;

    if (w->max == 1 || !pace_blocks ())
        return;
    {
        SCOPED_LOCK (&w->lock);
        if (!w->receiving && (w->pipelining || has_ready_request (c)))
            call_standby (c);
    }
}

/* -------- Running them. -------- */

/* Runs R and queues its reply.  Returns how many bytes wait to be sent. */
static size_t
run_one (struct connection *c, struct request *r, int64_t *now)
{
    struct pace pace;

    pace_begin (&pace, *now, stats_request_begin ());
    if (r->error == NBD_SUCCESS && atomic_load (&c->stopping))
        r->error = NBD_ESHUTDOWN;
    if (r->error == NBD_SUCCESS)
        request_perform (c, r);
    *now = pace_end (&pace, stats_request_end ());
    return outgo_add (c, r);
}

/* Runs R (NULL: what is ready, as the stand-by) and what else is ready, in one
 * bracket. */
static void
run_batch (struct connection *c, struct request *r)
{
    int64_t begun, now;
    unsigned n = 0;

    watch_connection (c);
    backend_begin ();
    begun = now = pace_now ();
    if (!r)
        r = take_ready (c, false, true, true);
    while (r) {
        size_t waiting;
        bool more;

        hand_over (c);
        waiting = run_one (c, r, &now);
        more = ++n < BATCH_REQUESTS && now - begun < BATCH_NS
               && waiting < BATCH_BYTES && !pace_blocks ();
        r = take_ready (c, true, false, more);
    }
    backend_end ();
}

static void
serve (struct connection *c, bool called)
{
    for (;;) {
        struct request *r = NULL;

        outgo_flush (c);
        outgo_wait_for_room (c);
        switch (await_role (c, called)) {
        case ROLE_NONE:
            return;
        case ROLE_RECEIVE:
            r = receive_request (c);
            if (!r)
                continue; /* is it over? */
            break;
        case ROLE_STANDBY:
            break;
        }
        called = false;
        run_batch (c, r);
    }
}

/* -------- The threads. -------- */

static void
begin_worker (struct connection *c, char *name, size_t len)
{
    unsigned number;

    {
        SCOPED_LOCK (&c->workers.lock);
        number = ++c->workers.started;
    }
    snprintf (name, len, "conn-%u.%u", c->number, number);
    connection_thread_begin (c, name);
}

static void *
worker_main (void *arg)
{
    struct connection *c = arg;
    char name[32];

    begin_worker (c, name, sizeof name);
    if (backend->thread_start)
        backend->thread_start (name);
    serve (c, true);
    if (backend->thread_end)
        backend->thread_end ();
    stats_thread (-1);

    SCOPED_LOCK (&c->workers.lock);
    c->workers.threads--;
    pthread_cond_signal (&c->workers.gone);
    return NULL;
}

static void *
sender_main (void *arg)
{
    struct connection *c = arg;
    struct workers *w = &c->workers;
    char name[32];

    begin_worker (c, name, sizeof name);
    pthread_mutex_lock (&w->lock);
    while (!w->over) {
        if (w->send_call) {
            w->send_call = false;
            pthread_mutex_unlock (&w->lock);
            outgo_flush (c);
            pthread_mutex_lock (&w->lock);
        } else {
            pthread_cond_wait (&w->send_wake, &w->lock);
        }
    }
    stats_thread (-1);
    w->sender = false;
    pthread_cond_signal (&w->gone);
    pthread_mutex_unlock (&w->lock);
    return NULL;
}

void
workers_run (struct connection *c)
{
    struct workers *w = &c->workers;

    serve (c, false);
    {
        SCOPED_LOCK (&w->lock);
        while (w->threads > 1 || w->sender)
            pthread_cond_wait (&w->gone, &w->lock);
    }
    outgo_flush (c);
    watch_forget (c);
}

bool
workers_tick (struct connection *c)
{
    struct workers *w = &c->workers;
    SCOPED_LOCK (&w->lock);
    bool stuck = w->inside > 0 && w->taken == w->watch_taken;

    w->watch_taken = w->taken;
    if (!stuck)
        return w->inside > 0;
    pace_suspect ();
    call_standby (c);
    /* A stand-by may have to wait for a callback that computes. */
    if (outgo_unattended (c))
        call_sender (c);
    return true;
}

bool
workers_busy (struct connection *c)
{
    SCOPED_LOCK (&c->workers.lock);

    return c->workers.inside > 0;
}
