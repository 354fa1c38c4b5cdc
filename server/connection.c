/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One client, see connection.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "backend.h"
#include "cleanup.h"
#include "config.h"
#include "connection.h"
#include "listen.h"
#include "log.h"
#include "pace.h"
#include "stats.h"

/* At shutdown, a client that does not take its replies is cut off after this
 * many milliseconds. */
#define GRACE_MS 2000

__thread struct connection *current_connection;

/* All connections.  Lock order: this one, then workers.lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended;
static struct connection *list;
static unsigned count, last_number;
static bool shutting_down;

/* -------- The list. -------- */

static void
list_add (struct connection *c)
{
    SCOPED_LOCK (&lock);

    c->number = ++last_number;
    c->next = list;
    if (list)
        list->prev = c;
    list = c;
    count++;
    if (shutting_down) {
        atomic_store (&c->stopping, true);
        stream_stop_receiving (&c->stream);
    }
}

/* From now on nobody but C's own thread touches its stream, whose descriptors
 * may soon have been given to somebody else. */
static void
list_hide_stream (struct connection *c)
{
    SCOPED_LOCK (&lock);

    c->stream_hidden = true;
}

static void
list_remove (struct connection *c)
{
    SCOPED_LOCK (&lock);

    if (c->prev)
        c->prev->next = c->next;
    else
        list = c->next;
    if (c->next)
        c->next->prev = c->prev;
    count--;
    pthread_cond_broadcast (&ended);
}

unsigned
connections_count (void)
{
    SCOPED_LOCK (&lock);

    return count;
}

/* -------- A connection's life. -------- */

static struct connection *
connection_new (int in, int out)
{
    struct connection *c = calloc (1, sizeof *c);

    if (!c)
        return NULL;
    if (stream_init (&c->stream, in, out) == -1) {
        free (c);
        return NULL;
    }
    atomic_init (&c->stopping, false);
    if (workers_init (&c->workers) || outgo_init (&c->outgo)) {
        free (c);
        errno = EAGAIN;
        return NULL;
    }
    list_add (c);
    return c;
}

static void
connection_free (struct connection *c)
{
    list_hide_stream (c);
    stream_close (&c->stream);
    list_remove (c);
    intake_free (&c->intake);
    outgo_free (&c->outgo);
    workers_free (&c->workers);
    free (c->meta.export_name);
    free (c);
    listen_room ();
}

void
connection_thread_begin (struct connection *c, const char *name)
{
    char short_name[16];

    current_connection = c;
    snprintf (short_name, sizeof short_name, "%s", name);
    pthread_setname_np (pthread_self (), short_name);
    log_set_context (backend->name, c->number);
    stats_thread (1);
}

static int
preconnect (void)
{
    int r;

    if (!backend->preconnect)
        return 0;
    stats_callback (COUNT_PRECONNECT);
    backend_begin ();
    r = backend->preconnect (config.read_only);
    backend_end ();
    return r;
}

static void
serve (struct connection *c)
{
    if (preconnect () == -1)
        return;
    c->intake.limited = config.timeout > 0;
    c->intake.time_left = (int64_t) config.timeout * 1000000000;
    stream_limit_sending (&c->stream, config.timeout * 1000);
    intake_expect_options (&c->intake);
    if (handshake (c) == -1)
        return;
    c->intake.limited = false;
    stream_limit_sending (&c->stream, 0);
    intake_expect_payload (&c->intake);
    workers_run (c);
    export_close (&c->export);
}

static void *
connection_main (void *arg)
{
    struct connection *c = arg;
    char name[32];

    snprintf (name, sizeof name, "conn-%u", c->number);
    connection_thread_begin (c, name);
    if (backend->thread_start)
        backend->thread_start (name);
    serve (c);
    if (backend->thread_end)
        backend->thread_end ();
    stats_thread (-1);
    current_connection = NULL;
    log_set_context (backend->name, 0);
    stats_write ();
    connection_free (c);
    return NULL;
}

int
connection_start (int fd)
{
    struct connection *c = connection_new (fd, fd);
    pthread_t thread;
    int err;

    if (!c) {
        close (fd);
        return -1;
    }
    err = pthread_create (&thread, NULL, connection_main, c);
    if (err) {
        connection_free (c);
        errno = err;
        return -1;
    }
    pthread_detach (thread);
    return 0;
}

void
connection_run (int in, int out)
{
    struct connection *c = connection_new (in, out);

    if (!c)
        log_fatal ("cannot serve stdin and stdout: %m");
    connection_main (c);
}

void
connection_disconnect (struct connection *c, bool force)
{
    atomic_store (&c->stopping, true);
    if (force) {
        outgo_break (c);
        stream_abort (&c->stream);
    }
}

/* -------- Shutdown. -------- */

/* Waits until there are no connections, for at most MS.  With the lock held. */
static bool
wait_for_all (int64_t ms)
{
    struct timespec t;

    clock_gettime (CLOCK_REALTIME, &t);
    t.tv_sec += (time_t) (ms / 1000);
    while (count > 0)
        if (pthread_cond_timedwait (&ended, &lock, &t) == ETIMEDOUT)
            break;
    return count == 0;
}

/* Grace begins when the last callback has returned: its reply may be on its
 * way just now. */
static void
cut_off (struct connection *c)
{
    bool busy = workers_busy (c);

    if (!c->stream_hidden && !busy && !c->spared)
        stream_abort (&c->stream);
    c->spared = busy;
}

void
connections_shutdown (void)
{
    SCOPED_LOCK (&lock);

    shutting_down = true;
    for (struct connection *c = list; c; c = c->next) {
        atomic_store (&c->stopping, true);
        c->spared = workers_busy (c);
        if (!c->stream_hidden)
            stream_stop_receiving (&c->stream);
    }
    while (!wait_for_all (GRACE_MS))
        for (struct connection *c = list; c; c = c->next)
            cut_off (c);
}

/* -------- The handshake's view. -------- */

int
conn_recv (struct connection *c, void *buf, size_t len)
{
    return intake_read (c, buf, len);
}

int
conn_skip (struct connection *c, uint64_t len)
{
    return intake_skip (c, len);
}

int
conn_send (struct connection *c, struct iovec *iov, size_t n)
{
    if (stream_send (&c->stream, iov, n, false) == -1) {
        if (errno == EAGAIN)
            log_client_error ("the client did not take what was sent within %u "
                              "seconds (--timeout)",
                              config.timeout);
        else
            log_debug ("sending: %m");
        return -1;
    }
    return 0;
}

size_t
conn_pending (const struct connection *c)
{
    return intake_pending (&c->intake);
}
