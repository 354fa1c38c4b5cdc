/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An upper bound for benchmarks, not a server: what a client can get from any
 * server on this machine.
 *     limit [--discard] SOCKET
 * A thread for each connection takes as many requests as one recv brings, does
 * them on 1 GiB of memory and answers all with one sendmsg.  It checks only
 * what would make it touch other memory; then the connection just ends.  With
 * --discard writes are received and dropped: the cost of receiving alone.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "wire.h"

#define DISK_SIZE (UINT64_C (1) << 30)
#define INTAKE (1U << 20)
#define BATCH 256U
#define OPTION_HEAD 16U

static uint8_t *disk;
static bool discard;

struct client {
    int fd;
    size_t start, end; /* of what was received and not used */
    uint8_t in[INTAKE];
    uint8_t heads[BATCH][NBD_SIMPLE_REPLY_SIZE];
    struct iovec parts[2 * BATCH];
    size_t n_heads, n_parts;
};

static bool
receive (int fd, uint8_t *to, size_t len)
{
    while (len > 0) {
        ssize_t r = recv (fd, to, len, MSG_WAITALL);
        if (r <= 0)
            return false;
        to += r;
        len -= (size_t) r;
    }
    return true;
}

static bool
send_all (int fd, struct iovec *iov, size_t n)
{
    while (n > 0) {
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
        ssize_t r = sendmsg (fd, &msg, MSG_NOSIGNAL);
        if (r <= 0)
            return false;
        size_t done = (size_t) r;
        while (n > 0 && done >= iov->iov_len) {
            done -= iov->iov_len;
            iov++;
            n--;
        }
        if (n > 0) {
            iov->iov_base = (uint8_t *) iov->iov_base + done;
            iov->iov_len -= done;
        }
    }
    return true;
}

static bool
send_bytes (int fd, const uint8_t *p, size_t len)
{
    struct iovec iov = {(void *) p, len};
    return send_all (fd, &iov, 1);
}

static bool
option_reply (int fd, uint32_t option, uint32_t type, const uint8_t *data,
              uint32_t len)
{
    uint8_t buf[64], *p = put_be64 (buf, NBD_OPTION_REPLY_MAGIC);
    p = put_be32 (put_be32 (put_be32 (p, option), type), len);
    if (len > 0)
        memcpy (p, data, len);
    return send_bytes (fd, buf, (size_t) (p - buf) + len);
}

static bool
negotiate (int fd)
{
    uint8_t buf[NBD_MAX_STRING + 64], *p = put_be64 (buf, NBD_MAGIC);
    p = put_be64 (p, NBD_OPTION_MAGIC);
    p = put_be16 (p, NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES);
    if (!send_bytes (fd, buf, (size_t) (p - buf)) || !receive (fd, buf, 4))
        return false;
    for (;;) {
        if (!receive (fd, buf, OPTION_HEAD))
            return false;
        uint32_t option = get_be32 (buf + 8), len = get_be32 (buf + 12);
        if (len > sizeof buf || !receive (fd, buf, len))
            return false;
        if (option != NBD_OPT_GO && option != NBD_OPT_INFO) {
            bool over = option == NBD_OPT_ABORT;
            uint32_t type = over ? NBD_REP_ACK : NBD_REP_ERR_UNSUP;
            if (!option_reply (fd, option, type, NULL, 0) || over)
                return false;
            continue;
        }
        p = put_be64 (put_be16 (buf, NBD_INFO_EXPORT), DISK_SIZE);
        p = put_be16 (p, NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH
                             | NBD_FLAG_CAN_MULTI_CONN);
        uint32_t n = (uint32_t) (p - buf);
        if (!option_reply (fd, option, NBD_REP_INFO, buf, n)
            || !option_reply (fd, option, NBD_REP_ACK, NULL, 0))
            return false;
        if (option == NBD_OPT_GO)
            return true;
    }
}

/* The payload is partly in the buffer; the rest goes straight to the disk. */
static bool
take_payload (struct client *c, uint64_t offset, uint32_t len)
{
    uint8_t *to = discard ? disk : disk + offset;
    size_t here = c->end - c->start < len ? c->end - c->start : len;
    if (!discard)
        memcpy (to, c->in + c->start, here);
    c->start += here;
    return receive (c->fd, to + here, len - here);
}

static void
add_part (struct client *c, void *base, size_t len)
{
    c->parts[c->n_parts++] = (struct iovec){base, len};
}

/* False: the connection is over. */
static bool
do_request (struct client *c)
{
    const uint8_t *p = c->in + c->start;
    uint16_t command = get_be16 (p + 6);
    uint64_t offset = get_be64 (p + 16);
    uint32_t len = get_be32 (p + 24);
    uint8_t *head = c->heads[c->n_heads++];

    if (get_be32 (p) != NBD_REQUEST_MAGIC || command == NBD_CMD_DISC
        || offset > DISK_SIZE || len > DISK_SIZE - offset)
        return false;
    put_be32 (put_be32 (head, NBD_SIMPLE_REPLY_MAGIC), NBD_SUCCESS);
    memcpy (head + 8, p + 8, 8);
    add_part (c, head, NBD_SIMPLE_REPLY_SIZE);
    c->start += NBD_REQUEST_SIZE;
    if (command == NBD_CMD_WRITE)
        return take_payload (c, offset, len);
    if (command == NBD_CMD_READ)
        add_part (c, disk + offset, len);
    return true;
}

static void
transmit (struct client *c)
{
    for (;;) {
        memmove (c->in, c->in + c->start, c->end - c->start);
        c->end -= c->start;
        c->start = 0;
        ssize_t r = recv (c->fd, c->in + c->end, INTAKE - c->end, 0);
        if (r <= 0)
            return;
        c->end += (size_t) r;
        while (c->end - c->start >= NBD_REQUEST_SIZE) {
            bool more = do_request (c);
            if (more && c->n_heads < BATCH
                && c->end - c->start >= NBD_REQUEST_SIZE)
                continue;
            size_t n = c->n_parts;
            c->n_heads = c->n_parts = 0;
            if (!more || !send_all (c->fd, c->parts, n))
                return;
        }
    }
}

static void *
serve (void *arg)
{
    struct client *c = arg;
    if (negotiate (c->fd))
        transmit (c);
    close (c->fd);
    free (c);
    return NULL;
}

static int
listen_on (const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen (path) >= sizeof addr.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy (addr.sun_path, path, strlen (path));
    int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1 || bind (fd, (struct sockaddr *) &addr, sizeof addr) == -1
        || listen (fd, SOMAXCONN) == -1)
        return -1;
    return fd;
}

int
main (int argc, char **argv)
{
    discard = argc == 3 && strcmp (argv[1], "--discard") == 0;
    if (argc != (discard ? 3 : 2)) {
        fprintf (stderr, "usage: limit [--discard] SOCKET\n");
        return 1;
    }
    int fd = listen_on (argv[argc - 1]);
    disk = mmap (NULL, DISK_SIZE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fd == -1 || disk == MAP_FAILED) {
        fprintf (stderr, "limit: %s: %m\n", argv[argc - 1]);
        return 1;
    }
    for (;;) {
        struct client *c = calloc (1, sizeof *c);
        pthread_t thread;
        if (c == NULL || (c->fd = accept (fd, NULL, NULL)) == -1
            || pthread_create (&thread, NULL, serve, c) != 0) {
            fprintf (stderr, "limit: cannot serve one more client: %m\n");
            return 1;
        }
        pthread_detach (thread);
    }
}
