/* SPDX-License-Identifier: BSD-3-Clause
 *
 * --run: a shell runs a command while a child process serves.
 */
#ifndef NBDSPEC_RUN_H
#define NBDSPEC_RUN_H

#include <signal.h>
#include <sys/types.h>

/* In the process that was started: runs the command, ends SERVER after it, and
 * returns the exit status of the whole.  Called with all signals blocked; MASK
 * is what was blocked before. */
int run_command (pid_t server, const sigset_t *mask);

#endif
