/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Notices callbacks that block.  A thread of its own looks every millisecond
 * at the connections that have a callback running; it sleeps when there is
 * none, so that an idle server uses no processor time.
 */
#ifndef NBDSPEC_WATCH_H
#define NBDSPEC_WATCH_H

struct connection;

/* Starts the thread; -1 (logged) when there is none to be had. */
int watch_start (void);
void watch_stop (void);

/* C is about to run callbacks.  Cheap when C is being watched already. */
void watch_connection (struct connection *c);

/* C ends. */
void watch_forget (struct connection *c);

#endif
