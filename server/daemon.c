/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"

static int ready_fd = -1;

static void
wait_until_ready (int fd, pid_t child)
{
    char c;
    ssize_t r;
    int status;

    do
        r = read (fd, &c, 1);
    while (r == -1 && errno == EINTR);
    if (r == 1)
        _exit (EXIT_SUCCESS);
    while (waitpid (child, &status, 0) == -1 && errno == EINTR)
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
    pid_t child;

    log_flush ();
    if (pipe2 (fds, O_CLOEXEC) == -1)
        log_fatal ("pipe: %m");
    child = fork ();
    if (child == -1)
        log_fatal ("fork: %m");
    if (child > 0) {
        close (fds[1]);
        wait_until_ready (fds[0], child);
    }
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
