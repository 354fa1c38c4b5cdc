/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The process itself: its standard descriptors, user, parent, memory.
 */
#ifndef NBDSPEC_PROCESS_H
#define NBDSPEC_PROCESS_H

#include <sys/types.h>

/* Each ends the process with status 1 where it cannot do its duty. */

/* Standard descriptors must be open: files opened later would take their
 * numbers, and errors be written into them. */
void process_check_stdio (void);

/* -s: the stream moves to *IN and *OUT; what a script prints goes to stderr. */
void process_detach_stream (int *in, int *out);

/* Standard input and output become /dev/null. */
void process_null_stdio (void);

/* Ends this process (SIGTERM) when its parent ends.  PARENT is what it was
 * before anything that takes time: it may be another one by now. */
void process_exit_with_parent (pid_t parent);

/* -u, -g: looks both up, so that a wrong name changes and starts nothing. */
void process_find_user (void);
void process_change_user (void);

/* --swap */
void process_lock_memory (void);

#endif
