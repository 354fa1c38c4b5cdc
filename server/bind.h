/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making listening sockets of each kind.
 */
#ifndef NBDSPEC_BIND_H
#define NBDSPEC_BIND_H

/* Sockets that clients connect to, at most this many. */
#define MAX_LISTENERS 64

struct listeners {
    int fd[MAX_LISTENERS];
    unsigned count;
};

/* Each adds to L, or ends the process with status 1. */
void bind_tcp (struct listeners *l);
void bind_unix (struct listeners *l);
void bind_vsock (struct listeners *l);

#endif
