/* SPDX-License-Identifier: BSD-3-Clause */
#include "log_output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"

/* How much is kept for a reader that does not read. */
#define MAX_QUEUED (1U << 20)
/* How long the end of the process waits for such a reader. */
#define FLUSH_SECONDS 5

struct queued_line {
    struct queued_line *next;
    size_t len, done;
    char text[];
};

/* Writes what the descriptor takes within TIMEOUT_MS (-1: all).  A pipe that
 * poll calls writable takes PIPE_BUF bytes without blocking.  Returns the bytes
 * that are done with: all of them after an error, when nobody reads. */
static size_t
write_ready (int fd, const char *p, size_t len, int timeout_ms)
{
    struct pollfd pfd = { .fd = fd, .events = POLLOUT };
    size_t done = 0;

    while (done < len) {
        size_t n = len - done < PIPE_BUF ? len - done : PIPE_BUF;
        ssize_t r;

        if (poll (&pfd, 1, timeout_ms) == 0)
            break;
        r = write (fd, p + done, n);
        if (r >= 0)
            done += (size_t) r;
        else if (errno != EINTR && errno != EAGAIN)
            return len;
    }
    return done;
}

/* Takes the first line out of the queue, which is not empty; O is locked. */
static struct queued_line *
pop (struct log_output *o)
{
    struct queued_line *q = o->head;

    o->head = q->next;
    if (o->head == NULL)
        o->tail = &o->head;
    o->queued -= q->len;
    return q;
}

static void
report_dropped (struct log_output *o, unsigned long n)
{
    char text[80];
    int len = snprintf (text, sizeof text,
                        "nbdspecd: error: %lu lines were dropped\n", n);

    write_ready (o->fd, text, (size_t) len, -1);
}

static void *
drain (void *arg)
{
    struct log_output *o = arg;

    pthread_mutex_lock (&o->lock);
    while (o->head != NULL) {
        struct queued_line *q = pop (o);
        unsigned long dropped = o->head == NULL ? o->dropped : 0;

        o->dropped -= dropped;
        pthread_mutex_unlock (&o->lock);
        write_ready (o->fd, q->text + q->done, q->len - q->done, -1);
        free (q);
        if (dropped > 0)
            report_dropped (o, dropped);
        pthread_mutex_lock (&o->lock);
    }
    o->draining = false;
    pthread_cond_broadcast (&o->drained);
    pthread_mutex_unlock (&o->lock);
    return NULL;
}

/* -1: no thread can be had. */
static int
start_draining (struct log_output *o)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;
    int r;

    sigfillset (&all);
    pthread_sigmask (SIG_BLOCK, &all, &old);
    pthread_attr_init (&attr);
    pthread_attr_setdetachstate (&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize (&attr, 128U << 10);
    r = pthread_create (&thread, &attr, drain, o);
    pthread_attr_destroy (&attr);
    pthread_sigmask (SIG_SETMASK, &old, NULL);
    o->draining = r == 0;
    return r == 0 ? 0 : -1;
}

/* Queues a line of which DONE bytes are written; O is locked.  -1: it has to
 * be written here and now. */
static int
enqueue (struct log_output *o, const char *line, size_t len, size_t done)
{
    struct queued_line *q;

    if (o->queued + len > MAX_QUEUED) {
        o->dropped++;
        return 0;
    }
    q = malloc (sizeof *q + len);
    if (q == NULL)
        return -1;
    q->next = NULL;
    q->len = len;
    q->done = done;
    memcpy (q->text, line, len);
    if (o->head == NULL)
        o->tail = &o->head;
    *o->tail = q;
    o->tail = &q->next;
    o->queued += len;
    if (o->draining || start_draining (o) == 0)
        return 0;
    free (pop (o));
    return -1;
}

void
log_output_write (struct log_output *o, const char *line, size_t len)
{
    size_t done = 0;
    SCOPED_LOCK (&o->lock);

    if (!o->draining) {
        done = write_ready (o->fd, line, len, 0);
        if (done == len)
            return;
    }
    if (enqueue (o, line, len, done) == -1)
        write_ready (o->fd, line + done, len - done, -1);
}

void
log_output_flush (struct log_output *o)
{
    struct timespec until;
    SCOPED_LOCK (&o->lock);

    clock_gettime (CLOCK_REALTIME, &until);
    until.tv_sec += FLUSH_SECONDS;
    while (o->draining
           && pthread_cond_timedwait (&o->drained, &o->lock, &until) == 0)
        ;
}

void
log_output_lock (struct log_output *o)
{
    pthread_mutex_lock (&o->lock);
}

void
log_output_unlock (struct log_output *o)
{
    pthread_mutex_unlock (&o->lock);
}

void
log_output_forked (struct log_output *o)
{
    while (o->head != NULL)
        free (pop (o));
    o->dropped = 0;
    o->draining = false;
    pthread_cond_init (&o->drained, NULL);
    pthread_mutex_unlock (&o->lock);
}
