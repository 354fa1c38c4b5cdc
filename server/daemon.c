/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "quit.h"

static int ready_fd = -1;
static pid_t server;

/* What ends this process ends the one that is not ready yet. */
static void
pass_on (int sig)
{
    int saved = errno;

    kill (server, sig);
    errno = saved;
}

static void
wait_until_ready (int fd)
{
    char c;
    ssize_t r;
    int status = 0;

    do
        r = read (fd, &c, 1);
    while (r == -1 && errno == EINTR);
    if (r == 1)
        _exit (EXIT_SUCCESS);
    while (waitpid (server, &status, 0) == -1 && errno == EINTR)
        ;
    if (WIFEXITED (status) && WEXITSTATUS (status) != 0)
        _exit (WEXITSTATUS (status)); /* the child has said why */
    if (WIFSIGNALED (status))
        log_error ("the server was killed by signal %d before it was ready",
                   WTERMSIG (status));
    else
        log_error ("the server ended before it was ready");
    log_flush ();
    _exit (EXIT_FAILURE);
}

void
daemon_start (void)
{
    int fds[2];
    sigset_t all, old;

    log_flush ();
    if (pipe2 (fds, O_CLOEXEC) == -1)
        log_fatal ("pipe: %m");
    sigfillset (&all);
    pthread_sigmask (SIG_BLOCK, &all, &old);
    server = fork ();
    if (server == -1)
        log_fatal ("fork: %m");
    if (server > 0) {
        quit_each_signal (pass_on);
        pthread_sigmask (SIG_SETMASK, &old, NULL);
        close (fds[1]);
        wait_until_ready (fds[0]);
    }
    pthread_sigmask (SIG_SETMASK, &old, NULL);
    close (fds[0]);
    ready_fd = fds[1];
    setsid (); /* the terminal's end is not the server's */
    if (chdir ("/") == -1)
        log_fatal ("chdir: /: %m");
}

void
daemon_ready (void)
{
    ssize_t r;

    if (ready_fd == -1)
        return;
    r = write (ready_fd, "", 1);
    (void) r; /* the first process may be dead: the server lives on */
    close (ready_fd);
    ready_fd = -1;
}
