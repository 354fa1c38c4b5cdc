/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Socket activation: listening sockets handed over by who started us, in the
 * manner of systemd (LISTEN_PID, LISTEN_FDS, descriptors from 3 on).
 */
#ifndef NBDSPEC_ACTIVATION_H
#define NBDSPEC_ACTIVATION_H

#define ACTIVATION_FIRST_FD 3

/* How many sockets there are; 0: none were handed over, or not to us.  Ends the
 * process with status 1 when what was handed over is no good.  The environment
 * variables are removed, so that the first call counts. */
unsigned activation_count (void);

#endif
