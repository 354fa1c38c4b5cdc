/* SPDX-License-Identifier: BSD-3-Clause */
#include "quit.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "files.h"

const int quit_signals[N_QUIT_SIGNALS]
    = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };

static _Atomic bool quitting;
static _Atomic bool signalled;
static int quit_fd = -1;
static _Atomic pid_t quit_runner;

int
quit_init (void)
{
    quit_fd = eventfd (0, EFD_CLOEXEC | EFD_NONBLOCK);
    return quit_fd == -1 ? -1 : 0;
}

void
server_quit (void)
{
    int saved = errno;
    uint64_t one = 1;
    ssize_t r;

    quitting = true;
    if (quit_fd >= 0) {
        r = write (quit_fd, &one, sizeof one);
        (void) r; /* fails only when it is readable already */
    }
    errno = saved;
}

bool
server_quitting (void)
{
    return quitting;
}

int
server_quit_fd (void)
{
    return quit_fd;
}

static void
handle_signal (int sig, siginfo_t *info, void *context)
{
    bool from_runner = quit_runner != 0 && info->si_code == SI_USER
                       && info->si_pid == quit_runner;

    (void) sig;
    (void) context;
    if (!from_runner && signalled) {
        files_remove ();
        _exit (EXIT_FAILURE);
    }
    if (!from_runner)
        signalled = true;
    server_quit ();
}

void
quit_each_signal (void (*handler) (int sig))
{
    for (int i = 0; i < N_QUIT_SIGNALS; i++)
        signal (quit_signals[i], handler);
}

void
quit_catch_signals (pid_t runner)
{
    struct sigaction sa = { .sa_sigaction = handle_signal,
                            .sa_flags = SA_SIGINFO | SA_RESTART };
    sigset_t set;

    quit_runner = runner;
    sigemptyset (&set);
    sigfillset (&sa.sa_mask);
    for (int i = 0; i < N_QUIT_SIGNALS; i++) {
        sigaction (quit_signals[i], &sa, NULL);
        sigaddset (&set, quit_signals[i]);
    }
    signal (SIGPIPE, SIG_IGN);
    /* The caller may have left them blocked. */
    pthread_sigmask (SIG_UNBLOCK, &set, NULL);
}
