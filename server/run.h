/* SPDX-License-Identifier: BSD-3-Clause
 *
 * --run: a shell runs a command while a child process serves.
 */
#ifndef NBDSPEC_RUN_H
#define NBDSPEC_RUN_H

#include <sys/types.h>

/* In the process that was started: runs the command, ends SERVER after it, and
 * returns the exit status of the whole. */
int run_command (pid_t server);

#endif
