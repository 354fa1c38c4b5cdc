/* SPDX-License-Identifier: BSD-3-Clause */
#include "bind.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <linux/vm_sockets.h> /* wants sys/socket.h before it */

#include "config.h"
#include "files.h"
#include "log.h"

#define DEFAULT_PORT "10809"

/* libselinux is asked for only where a label is wanted: most systems that run
 * this server have neither. */
static void
set_label (const char *label)
{
    typedef int set_function (const char *);
    void *symbol = dlsym (RTLD_DEFAULT, "setsockcreatecon_raw");
    void *library;
    set_function *set;

    if (symbol == NULL) {
        library = dlopen ("libselinux.so.1", RTLD_NOW);
        if (library != NULL)
            symbol = dlsym (library, "setsockcreatecon_raw");
    }
    if (symbol == NULL)
        log_fatal ("selinux-label: %s", dlerror ());
    memcpy (&set, &symbol, sizeof set);
    if (set (label) == -1)
        log_fatal ("selinux-label: setsockcreatecon_raw: %m");
}

/* A socket; the caller binds it. */
static int
new_socket (int family)
{
    int fd;

    if (config.selinux_label != NULL)
        set_label (config.selinux_label);
    fd = socket (family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (config.selinux_label != NULL)
        set_label (NULL);
    return fd;
}

static void
add (struct listeners *l, int fd)
{
    if (l->count == MAX_LISTENERS)
        log_fatal ("more than %d addresses to listen on", MAX_LISTENERS);
    if (listen (fd, SOMAXCONN) == -1)
        log_fatal ("listen: %m");
    l->fd[l->count++] = fd;
}

void
bind_unix (struct listeners *l)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    size_t len;
    int fd;

    if (config.unix_random) {
        static char path[64];

        snprintf (path, sizeof path, "/tmp/nbdspecdXXXXXX");
        if (mkdtemp (path) == NULL)
            log_fatal ("mkdtemp: %s: %m", path);
        if (files_add (path) == -1)
            exit (EXIT_FAILURE);
        strcat (path, "/socket");
        config.unix_path = path;
    }
    len = strlen (config.unix_path);
    memcpy (addr.sun_path, config.unix_path, len);
    fd = new_socket (AF_UNIX);
    /* A file that is there, be it a socket nobody listens on, is not ours to
     * remove. */
    if (fd == -1
        || bind (fd, (struct sockaddr *) &addr, (socklen_t) sizeof addr) == -1)
        log_fatal ("%s: %m", config.unix_path);
    if (files_add (config.unix_path) == -1)
        exit (EXIT_FAILURE);
    add (l, fd);
}

static const char *
describe (const struct addrinfo *a)
{
    static char text[NI_MAXHOST + NI_MAXSERV + 4];
    char host[NI_MAXHOST], port[NI_MAXSERV];

    if (getnameinfo (a->ai_addr, a->ai_addrlen, host, sizeof host, port,
                     sizeof port, NI_NUMERICHOST | NI_NUMERICSERV)
        != 0)
        return "socket";
    snprintf (text, sizeof text, a->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
              host, port);
    return text;
}

/* With -p 0 the system chooses; all addresses shall have the same port. */
static void
copy_port (const struct listeners *l, struct addrinfo *a)
{
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    in_port_t port;

    if (l->count == 0
        || getsockname (l->fd[0], (struct sockaddr *) &bound, &len) == -1)
        return;
    port = bound.ss_family == AF_INET6
               ? ((struct sockaddr_in6 *) &bound)->sin6_port
               : ((struct sockaddr_in *) &bound)->sin_port;
    if (a->ai_family == AF_INET6)
        ((struct sockaddr_in6 *) a->ai_addr)->sin6_port = port;
    else if (a->ai_family == AF_INET)
        ((struct sockaddr_in *) a->ai_addr)->sin_port = port;
}

/* -1: this address cannot be had, errno says why. */
static int
bind_address (struct listeners *l, struct addrinfo *a)
{
    const int one = 1;
    int fd = new_socket (a->ai_family);
    int saved;

    if (fd == -1)
        return -1;
    copy_port (l, a);
    setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6)
        setsockopt (fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    /* Two servers can bind one port as long as neither listens. */
    if (bind (fd, a->ai_addr, a->ai_addrlen) == -1
        || listen (fd, SOMAXCONN) == -1) {
        saved = errno;
        close (fd);
        errno = saved;
        return -1;
    }
    add (l, fd);
    return 0;
}

void
bind_tcp (struct listeners *l)
{
    const char *port = config.port != NULL ? config.port : DEFAULT_PORT;
    struct addrinfo hints = { .ai_flags = AI_PASSIVE,
                              .ai_family = config.ip_family,
                              .ai_socktype = SOCK_STREAM };
    struct addrinfo *list, *failed = NULL;
    char *end;
    unsigned long number = strtoul (port, &end, 10);
    int r, failed_errno = 0;

    /* getaddrinfo takes the number modulo 2^16. */
    if (port[0] == '\0' || (*end == '\0' && number > 65535))
        log_fatal ("-p: '%s': expected a service name or a number up to 65535",
                   port);
    r = getaddrinfo (config.ip_addr, port, &hints, &list);
    if (r != 0)
        log_fatal ("getaddrinfo: %s: %s: %s",
                   config.ip_addr != NULL ? config.ip_addr : "", port,
                   r == EAI_SYSTEM ? strerror (errno) : gai_strerror (r));
    for (struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        if (bind_address (l, a) == 0)
            continue;
        failed = a;
        failed_errno = errno;
        /* A machine without IPv6, or a name that gives an address twice. */
        if (errno != EADDRINUSE && errno != EAFNOSUPPORT
            && errno != EADDRNOTAVAIL)
            break;
        log_debug ("bind: %s: %m", describe (a));
    }
    errno = failed_errno;
    if (failed != NULL
        && (l->count == 0
            || (errno != EADDRINUSE && errno != EAFNOSUPPORT
                && errno != EADDRNOTAVAIL)))
        log_fatal ("bind: %s: %m", describe (failed));
    freeaddrinfo (list);
}

void
bind_vsock (struct listeners *l)
{
    const char *port = config.port != NULL ? config.port : DEFAULT_PORT;
    struct sockaddr_vm addr = { .svm_family = AF_VSOCK,
                                .svm_cid = VMADDR_CID_ANY };
    char *end;
    unsigned long number;
    int fd;

    errno = 0;
    number = strtoul (port, &end, 10);
    if (port[0] < '0' || port[0] > '9' || *end != '\0' || errno != 0
        || number >= UINT32_MAX)
        log_fatal ("-p: '%s': expected a number: vsock ports have no names",
                   port);
    addr.svm_port = (unsigned) number;
    fd = new_socket (AF_VSOCK);
    if (fd == -1
        || bind (fd, (struct sockaddr *) &addr, (socklen_t) sizeof addr) == -1)
        log_fatal ("bind: vsock port %s: %m", port);
    add (l, fd);
}
