/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Leaving the terminal.  The process that was started ends when the server is
 * ready, or with the server's status when it does not get that far.
 */
#ifndef NBDSPEC_DAEMON_H
#define NBDSPEC_DAEMON_H

/* Forks; returns in the child.  Ends the process with status 1 if it cannot. */
void daemon_start (void);

/* The server is ready: lets the first process go.  Does nothing without
 * daemon_start. */
void daemon_ready (void);

#endif
