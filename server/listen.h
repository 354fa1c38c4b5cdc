/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The listening sockets, and the loop that accepts clients on them.
 */
#ifndef NBDSPEC_LISTEN_H
#define NBDSPEC_LISTEN_H

/* Opens what `config' asks for, or takes over what was handed to us.  Ends the
 * process with status 1 where it cannot. */
void listen_open (void);

/* Accepts clients until the server is to end, and closes the sockets then:
 * who comes later is refused, not left waiting. */
void listen_serve (void);

void listen_close (void);

/* A connection has ended; there may be room for another one
 * (--max-connections).  Callable from any thread. */
void listen_room (void);

/* The TCP or vsock port that clients connect to; "" with Unix sockets. */
const char *listen_port (void);

/* The Unix socket's path, absolute; "" when there is none. */
const char *listen_path (void);

#endif
