/* SPDX-License-Identifier: BSD-3-Clause */
#include "activation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"

#define MAX_SOCKETS 16

/* A plain decimal number, or -1. */
static long
parse_decimal (const char *text)
{
    char *end;
    long n;

    errno = 0;
    n = strtol (text, &end, 10);
    return errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' ? -1
                                                                        : n;
}

static void
take_over (int fd)
{
    int flags = fcntl (fd, F_GETFD);
    int listening = 0;
    socklen_t len = sizeof listening;

    if (flags == -1
        || getsockopt (fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == -1)
        log_fatal ("socket activation: descriptor %d: %m", fd);
    if (!listening)
        log_fatal ("socket activation: descriptor %d is not a listening "
                   "socket",
                   fd);
    fcntl (fd, F_SETFD, flags | FD_CLOEXEC);
}

static unsigned
find_sockets (void)
{
    const char *pid = getenv ("LISTEN_PID");
    const char *fds = getenv ("LISTEN_FDS");
    long n;

    if (pid == NULL)
        return 0;
    if (parse_decimal (pid) != (long) getpid ()) {
        log_error ("LISTEN_PID=%s was not for us (ignored)", pid);
        return 0;
    }
    n = fds != NULL ? parse_decimal (fds) : -1;
    if (n < 1 || n > MAX_SOCKETS)
        log_fatal ("socket activation: LISTEN_FDS=%s: expected a number from "
                   "1 to %d",
                   fds != NULL ? fds : "", MAX_SOCKETS);
    for (int i = 0; i < n; i++)
        take_over (ACTIVATION_FIRST_FD + i);
    return (unsigned) n;
}

unsigned
activation_count (void)
{
    static int count = -1;

    if (count == -1) {
        count = (int) find_sockets ();
        unsetenv ("LISTEN_PID");
        unsetenv ("LISTEN_FDS");
        unsetenv ("LISTEN_FDNAMES");
    }
    return (unsigned) count;
}
