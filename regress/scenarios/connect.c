/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How many clients a second?  Each connects, negotiates with GO, reads 512
 * bytes, disconnects.
 *     connect SOCKET CONNECTIONS THREADS
 * makes that many connections from some threads at once, and prints
 * "CONNECTIONS SECONDS".
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

#define GREETING 18U
#define OPTION_REPLY 20U
#define READ_LENGTH 512U
#define MAX_THREADS 64

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static atomic_long left;
static atomic_bool failed;

static bool
receive (int fd, uint8_t *to, size_t len)
{
    return recv (fd, to, len, MSG_WAITALL) == (ssize_t) len;
}

static bool
send_bytes (int fd, const uint8_t *p, size_t len)
{
    return send (fd, p, len, MSG_NOSIGNAL) == (ssize_t) len;
}

static uint8_t *
put_request (uint8_t *p, uint16_t command, uint32_t len)
{
    p = put_be16 (put_be32 (p, NBD_REQUEST_MAGIC), 0);
    p = put_be64 (put_be16 (p, command), 1);
    return put_be32 (put_be64 (p, 0), len);
}

/* Asks for the default export, and takes what the server tells about it. */
static bool
negotiate (int fd)
{
    uint8_t buf[NBD_MAX_STRING], *p;
    if (!receive (fd, buf, GREETING) || get_be64 (buf) != NBD_MAGIC)
        return false;
    p = put_be32 (buf, NBD_FLAG_C_FIXED_NEWSTYLE | NBD_FLAG_C_NO_ZEROES);
    p = put_be32 (put_be64 (p, NBD_OPTION_MAGIC), NBD_OPT_GO);
    p = put_be32 (p, 6);               /* bytes of what follows: */
    p = put_be16 (put_be32 (p, 0), 0); /* no name, nothing else asked for */
    if (!send_bytes (fd, buf, (size_t) (p - buf)))
        return false;
    for (;;) {
        if (!receive (fd, buf, OPTION_REPLY))
            return false;
        uint32_t type = get_be32 (buf + 12), len = get_be32 (buf + 16);
        if (type == NBD_REP_ACK)
            return len == 0;
        if (type != NBD_REP_INFO || len > sizeof buf || !receive (fd, buf, len))
            return false;
    }
}

static bool
visit (void)
{
    uint8_t buf[NBD_SIMPLE_REPLY_SIZE + READ_LENGTH];
    int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1)
        return false;
    bool done = connect (fd, (struct sockaddr *) &address, sizeof address) == 0
                && negotiate (fd);
    if (done) {
        uint8_t *p = put_request (buf, NBD_CMD_READ, READ_LENGTH);
        done = send_bytes (fd, buf, (size_t) (p - buf))
               && receive (fd, buf, sizeof buf)
               && get_be32 (buf) == NBD_SIMPLE_REPLY_MAGIC
               && get_be32 (buf + 4) == NBD_SUCCESS;
        p = put_request (buf, NBD_CMD_DISC, 0);
        done = done && send_bytes (fd, buf, (size_t) (p - buf));
    }
    close (fd);
    return done;
}

static void *
visitor (void *arg)
{
    (void) arg;
    while (!atomic_load (&failed) && atomic_fetch_sub (&left, 1) > 0)
        if (!visit () && !atomic_exchange (&failed, true))
            fprintf (stderr, "connect: a connection failed: %m\n");
    return NULL;
}

static long
number (const char *text, long most)
{
    char *end;
    errno = 0;
    long value = strtol (text, &end, 10);
    if (errno != 0 || *text == '\0' || *end != '\0' || value < 1
        || value > most) {
        fprintf (stderr, "connect: %s: expected a number from 1 to %ld\n", text,
                 most);
        exit (1);
    }
    return value;
}

static double
now (void)
{
    struct timespec t;
    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

int
main (int argc, char **argv)
{
    if (argc != 4 || strlen (argv[1]) >= sizeof address.sun_path) {
        fprintf (stderr, "usage: connect SOCKET CONNECTIONS THREADS\n");
        return 1;
    }
    memcpy (address.sun_path, argv[1], strlen (argv[1]));
    long connections = number (argv[2], 100000000);
    long n = number (argv[3], MAX_THREADS);
    pthread_t threads[MAX_THREADS];

    atomic_init (&left, connections);
    double start = now ();
    for (long i = 0; i < n; i++)
        if (pthread_create (&threads[i], NULL, visitor, NULL) != 0) {
            fprintf (stderr, "connect: cannot start a thread\n");
            return 1;
        }
    for (long i = 0; i < n; i++)
        pthread_join (threads[i], NULL);
    if (atomic_load (&failed))
        return 1;
    printf ("%ld %.6f\n", connections, now () - start);
    return 0;
}
