/* SPDX-License-Identifier: BSD-3-Clause */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <linux/vm_sockets.h> /* wants sys/socket.h before it */

#include "activation.h"
#include "backend.h"
#include "bind.h"
#include "config.h"
#include "connection.h"
#include "files.h"
#include "log.h"
#include "quit.h"

/* How long to wait when descriptors or threads have run out: nothing tells
 * when there are some again. */
#define WAIT_FOR_RESOURCES_MS 100

static struct listeners listeners;
static char port[16];
static char path[sizeof ((struct sockaddr_un *) NULL)->sun_path + 1];
static int room_fd = -1;

/* What clients connect to, as far as the first socket tells. */
static void
find_name (void)
{
    union {
        struct sockaddr_storage any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
        struct sockaddr_vm vm;
    } a;
    socklen_t len = sizeof a;

    memset (&a, 0, sizeof a);
    if (getsockname (listeners.fd[0], (struct sockaddr *) &a, &len) == -1)
        return;
    switch (a.any.ss_family) {
    case AF_INET:
        snprintf (port, sizeof port, "%u", ntohs (a.in.sin_port));
        break;
    case AF_INET6:
        snprintf (port, sizeof port, "%u", ntohs (a.in6.sin6_port));
        break;
    case AF_VSOCK:
        snprintf (port, sizeof port, "%u", a.vm.svm_port);
        break;
    case AF_UNIX:
        memcpy (path, a.un.sun_path, sizeof a.un.sun_path);
        break;
    default:
        break;
    }
}

static void
take_activated (unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        int fd = ACTIVATION_FIRST_FD + (int) i;

        fcntl (fd, F_SETFL, fcntl (fd, F_GETFL) | O_NONBLOCK);
        listeners.fd[listeners.count++] = fd;
    }
}

void
listen_open (void)
{
    if (activation_count () > 0)
        take_activated (activation_count ());
    else if (config.vsock)
        bind_vsock (&listeners);
    else if (config.unix_path != NULL || config.unix_random)
        bind_unix (&listeners);
    else
        bind_tcp (&listeners);
    find_name ();
    if (config.max_connections > 0) {
        room_fd = eventfd (0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (room_fd == -1)
            log_fatal ("eventfd: %m");
    }
}

void
listen_close (void)
{
    for (unsigned i = 0; i < listeners.count; i++)
        close (listeners.fd[i]);
    listeners.count = 0;
}

const char *
listen_port (void)
{
    return port;
}

const char *
listen_path (void)
{
    return path;
}

void
listen_room (void)
{
    if (room_fd >= 0)
        eventfd_write (room_fd, 1);
}

/* Waits for the end of the server, not for clients. */
static void
wait_for_resources (void)
{
    struct pollfd quit = { .fd = server_quit_fd (), .events = POLLIN };

    poll (&quit, 1, WAIT_FOR_RESOURCES_MS);
}

static void
set_options (int fd)
{
    const int one = 1;
    int family = 0;
    socklen_t len = sizeof family;

    getsockopt (fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
    if (family != AF_INET && family != AF_INET6)
        return;
    setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (config.keepalive)
        setsockopt (fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

static void
accept_client (int listener)
{
    int fd = accept4 (listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd >= 0) {
        set_options (fd);
        if (connection_start (fd) == -1) {
            log_client_error ("cannot start a thread for a client: %m");
            wait_for_resources ();
        }
        return;
    }
    switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        log_client_error ("cannot accept a client: %m");
        wait_for_resources ();
        break;
    case EBADF:
    case EFAULT:
    case EINVAL:
    case ENOTSOCK:
        log_error ("accept: %m");
        server_quit ();
        break;
    default: /* the client has gone, or the network has (accept(2)) */
        log_debug ("accept: %m");
        break;
    }
}

/* True: poll is to look at the listening sockets too. */
static bool
there_is_room (void)
{
    eventfd_t n;

    if (config.max_connections == 0)
        return true;
    eventfd_read (room_fd, &n); /* before looking: none may be missed */
    return connections_count () < config.max_connections;
}

void
listen_serve (void)
{
    enum { QUIT, ROOM, WAKE, OTHERS };
    struct pollfd fds[MAX_LISTENERS + OTHERS];

    fds[QUIT] = (struct pollfd){ .fd = server_quit_fd (), .events = POLLIN };
    fds[ROOM] = (struct pollfd){ .fd = room_fd, .events = POLLIN };
    fds[WAKE] = (struct pollfd){
        .fd = backend->wake_fd != NULL ? backend->wake_fd () : -1,
        .events = POLLIN,
    };
    for (unsigned i = 0; i < listeners.count; i++)
        fds[i + OTHERS] =
            (struct pollfd){ .fd = listeners.fd[i], .events = POLLIN };
    while (!server_quitting ()) {
        nfds_t n = OTHERS + (there_is_room () ? listeners.count : 0);

        if (poll (fds, n, -1) == -1) {
            if (errno == EINTR)
                continue;
            log_error ("poll: %m");
            wait_for_resources ();
            continue;
        }
        if (fds[QUIT].revents != 0)
            break;
        if (fds[WAKE].revents != 0)
            backend->wake ();
        for (nfds_t i = OTHERS; i < n && !server_quitting (); i++) {
            if (fds[i].revents != 0 && there_is_room ())
                accept_client (fds[i].fd);
        }
    }
    files_remove_one (path); /* before it can be another server's */
    listen_close ();
}
