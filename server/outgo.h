/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sending half of a connection: a queue of finished requests.  Whoever
 * flushes it sends all that is there with as few system calls as can be; while
 * one thread sends, others only add.
 */
#ifndef NBDSPEC_OUTGO_H
#define NBDSPEC_OUTGO_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct connection;
struct request;

/* With more than this waiting to be sent, no further request is taken. */
#define OUTGO_LIMIT ((size_t) 1 << 20)

/* So many parts of replies are sent with one system call. */
#define OUTGO_IOV 512

struct outgo {
    pthread_mutex_t lock;
    pthread_cond_t room;
    struct request *head, **tail;
    size_t bytes; /* queued or being sent */
    bool sending; /* a thread is at it */
    atomic_bool broken; /* no client to send to: replies are dropped */
    struct request *spare; /* for request_new; its lock is this one's */
    unsigned n_spare;
    /* Of the thread that is sending.  Here, and not on its stack: each thread
     * of a connection would touch a page more. */
    struct iovec iov[OUTGO_IOV];
};

int outgo_init (struct outgo *o);
void outgo_free (struct outgo *o);

/* A cleared request, and its return. */
struct request *request_new (struct connection *c);
void request_free (struct connection *c, struct request *r);

/* Queues the reply to R.  The queue owns R now.  Returns how many bytes
 * wait. */
size_t outgo_add (struct connection *c, struct request *r);

/* Is something queued, and nobody sending it? */
bool outgo_unattended (struct connection *c);

/* Sends what is queued, unless another thread is doing so. */
void outgo_flush (struct connection *c);

/* From now on replies are dropped. */
void outgo_break (struct connection *c);

/* Waits until a slow client has taken so much that more may be queued. */
void outgo_wait_for_room (struct connection *c);

#endif
