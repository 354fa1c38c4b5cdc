/* SPDX-License-Identifier: BSD-3-Clause
 *
 * -P: the file whose appearance says that the server is ready.
 */
#ifndef NBDSPEC_PIDFILE_H
#define NBDSPEC_PIDFILE_H

/* Finds out early, and before -u takes effect, that it can be written.  Ends
 * the process with status 1 if not. */
void pidfile_prepare (void);

/* In a process that will not write it: a pipe's reader waits for all writers. */
void pidfile_close (void);

/* Writes the number of this process.  -1 (logged). */
int pidfile_write (void);

#endif
