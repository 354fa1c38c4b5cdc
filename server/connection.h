/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One client, from accept to close.
 *
 * A connection has a thread, which does the handshake, opens and closes the
 * export, and is the first of the threads that serve requests; see workers.h
 * for the others.
 */
#ifndef NBDSPEC_CONNECTION_H
#define NBDSPEC_CONNECTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "export.h"
#include "intake.h"
#include "outgo.h"
#include "stream.h"
#include "workers.h"

struct connection {
    unsigned number; /* from 1 */
    struct stream stream;
    struct intake intake; /* bytes received and not yet used */
    struct outgo outgo;   /* replies on their way */
    struct workers workers;

    /* Negotiated state, settled before transmission.  STARTTLS resets all. */
    bool fixed_newstyle, no_zeroes;
    bool tls;
    bool structured, extended; /* replies; extended implies structured */
    bool block_sizes_known;    /* the client asked for INFO_BLOCK_SIZE */
    struct meta {
        bool allocation;   /* base:allocation was selected ... */
        char *export_name; /* ... for this export, or NULL */
    } meta;
    struct export export; /* open in transmission */

    /* No further request may be performed, what comes gets ESHUTDOWN: the
     * server stops, or the plugin asked for it. */
    atomic_bool stopping;

    /* In connection.c's list, under its lock. */
    bool spared; /* at shutdown: was busy when it was last looked at */

    struct connection *next, *prev;
    bool stream_hidden;
};

/* The connection that the calling thread works for, or NULL. */
extern __thread struct connection *current_connection;

/* A thread begins to work for C: sets its name, log context and
 * current_connection. */
void connection_thread_begin (struct connection *c, const char *name);

/* Serves a client on a new thread, or (-s) on this one.  Takes over the
 * descriptors.  connection_start returns -1 with errno set when no thread can
 * be had; the descriptors are closed then. */
int connection_start (int fd);
void connection_run (int in, int out);

/* Ends C at a plugin's wish.  Soft: callbacks that run are answered, what comes
 * after gets ESHUTDOWN.  By force: at once, without answers. */
void connection_disconnect (struct connection *c, bool force);

/* How many there are now. */
unsigned connections_count (void);

/* Shutdown: wakes the idle, waits for all to end.  Callbacks that run are
 * waited for; a client that does not take its replies is cut off after a
 * grace period. */
void connections_shutdown (void);

/* handshake.c: negotiates.  0: c->export is open and transmission begins.
 * -1: the connection is over (properly ended, refused or broken; logged). */
int handshake (struct connection *c);

/* The handshake's access to the stream.  conn_recv takes exactly LEN bytes,
 * within the handshake's time limit; conn_skip drops as many; conn_send sends
 * all parts.  -1 (logged where it is the client's fault): it is over. */
int conn_recv (struct connection *c, void *buf, size_t len);
int conn_skip (struct connection *c, uint64_t len);
int conn_send (struct connection *c, struct iovec *iov, size_t n);

/* Bytes that the client has sent ahead of time (needed at STARTTLS). */
size_t conn_pending (const struct connection *c);

#endif
