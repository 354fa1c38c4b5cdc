/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ending the server: by a signal, by the plugin, or because -s or --run has
 * come to its end.
 */
#ifndef NBDSPEC_QUIT_H
#define NBDSPEC_QUIT_H

#include <stdbool.h>
#include <sys/types.h>

/* Those that end the server. */
#define N_QUIT_SIGNALS 4
extern const int quit_signals[N_QUIT_SIGNALS];

/* Asks the server to end.  Async-signal-safe, callable from any thread and at
 * any time, also before the server serves: it then ends as soon as it would. */
void server_quit (void);

bool server_quitting (void);

/* Readable from the moment the server is to end; never read from it. */
int server_quit_fd (void);

/* Called once, first thing; -1 with errno set. */
int quit_init (void);

/* For a process that is not the server: HANDLER for each of the signals. */
void quit_each_signal (void (*handler) (int sig));

/* Installs the handlers: SIGINT, SIGQUIT, SIGTERM and SIGHUP end the server, a
 * second one of them ends the process at once with status 1.  SIGPIPE is
 * ignored.  Signals from RUNNER (the process of --run, else 0) never count as
 * the second one: a terminal sends its signals to both processes. */
void quit_catch_signals (pid_t runner);

#endif
