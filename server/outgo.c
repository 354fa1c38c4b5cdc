/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sending, see outgo.h.
 */
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "connection.h"
#include "extents.h"
#include "log.h"
#include "request.h"
#include "stats.h"
#include "wire.h"

#define MAX_SPARE 128

int
outgo_init (struct outgo *o)
{
    o->tail = &o->head;
    return pthread_mutex_init (&o->lock, NULL)
           || pthread_cond_init (&o->room, NULL);
}

void
outgo_free (struct outgo *o)
{
    while (o->spare) {
        struct request *next = o->spare->next;

        free (o->spare);
        o->spare = next;
    }
    pthread_cond_destroy (&o->room);
    pthread_mutex_destroy (&o->lock);
}

struct request *
request_new (struct connection *c)
{
    struct outgo *o = &c->outgo;

    {
        SCOPED_LOCK (&o->lock);
        struct request *r = o->spare;

        if (r) {
            o->spare = r->next;
            o->n_spare--;
            return r;
        }
    }
    return calloc (1, sizeof (struct request));
}

/* Frees a list of requests, keeping some for reuse. */
static void
free_list (struct connection *c, struct request *list)
{
    struct outgo *o = &c->outgo;
    struct request *next;

    for (struct request *r = list; r; r = r->next)
        request_clear (r);

    {
        SCOPED_LOCK (&o->lock);
        for (; list && o->n_spare < MAX_SPARE; list = next) {
            next = list->next;
            list->next = o->spare;
            o->spare = list;
            o->n_spare++;
        }
    }
    for (; list; list = next) {
        next = list->next;
        free (list);
    }
}

void
request_free (struct connection *c, struct request *r)
{
    r->next = NULL;
    free_list (c, r);
}

/* What R will occupy until it is sent: exact enough to bound memory. */
static size_t
footprint (const struct request *r)
{
    size_t data = r->type == NBD_CMD_READ ? (size_t) r->length : 0;

    if (r->io.buf)
        data = r->io.buf->capacity;
    if (r->io.extents)
        data = 2 * r->io.extents->capacity * sizeof (struct extent);
    return sizeof *r + (r->error ? 0 : data);
}

size_t
outgo_add (struct connection *c, struct request *r)
{
    struct outgo *o = &c->outgo;
    SCOPED_LOCK (&o->lock);

    r->next = NULL;
    r->footprint = footprint (r);
    *o->tail = r;
    o->tail = &r->next;
    o->bytes += r->footprint;
    return o->bytes;
}

bool
outgo_unattended (struct connection *c)
{
    SCOPED_LOCK (&c->outgo.lock);

    return c->outgo.head && !c->outgo.sending;
}

void
outgo_break (struct connection *c)
{
    atomic_store (&c->outgo.broken, true);
}

/* Sends what has been gathered. */
static void
send_parts (struct connection *c, struct iovec *iov, size_t n, bool more)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += iov[i].iov_len;
    if (n == 0 || atomic_load (&c->outgo.broken))
        return;
    if (stream_send (&c->stream, iov, n, more) == -1) {
        log_client_error ("sending replies: %m");
        outgo_break (c);
        stream_stop_receiving (&c->stream);
        return;
    }
    stats_sent (bytes);
}

/* Builds and sends the replies of LIST, as many at once as fit. */
static void
send_list (struct connection *c, struct request *list)
{
    struct iovec *iov = c->outgo.iov;
    size_t n = 0;

    for (struct request *r = list; r; r = r->next) {
        struct iovec *part;
        size_t left;

        if (reply_build (c, r) == -1) {
            log_error ("no memory for a reply: closing the connection");
            stream_abort (&c->stream);
            return;
        }
        for (part = r->iov, left = r->n_iov; left > 0; part++, left--) {
            if (n == OUTGO_IOV) {
                send_parts (c, iov, n, true);
                n = 0;
            }
            iov[n++] = *part;
        }
    }
    send_parts (c, iov, n, false);
}

void
outgo_flush (struct connection *c)
{
    struct outgo *o = &c->outgo;

    pthread_mutex_lock (&o->lock);
    if (o->sending) {
        pthread_mutex_unlock (&o->lock);
        return;
    }
    o->sending = true;
    while (o->head) {
        struct request *list = o->head;
        size_t bytes = 0;

        o->head = NULL;
        o->tail = &o->head;
        pthread_mutex_unlock (&o->lock);

        for (struct request *r = list; r; r = r->next)
            bytes += r->footprint;
        send_list (c, list);
        free_list (c, list);

        pthread_mutex_lock (&o->lock);
        o->bytes -= bytes;
        pthread_cond_broadcast (&o->room);
    }
    o->sending = false;
    pthread_mutex_unlock (&o->lock);
}

void
outgo_wait_for_room (struct connection *c)
{
    struct outgo *o = &c->outgo;
    SCOPED_LOCK (&o->lock);

    while (o->bytes > OUTGO_LIMIT && o->sending)
        pthread_cond_wait (&o->room, &o->lock);
}
