/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How fast do bytes come through TLS over a Unix socket?
 *     tls_reads nbd SECONDS x509 DIRECTORY SOCKET
 *     tls_reads nbd SECONDS psk  FILE      SOCKET
 * from an NBD server: reads of 256 KiB, eight under way;
 *     tls_reads loop SECONDS CIPHER DIRECTORY
 * from a process that does nothing but gnutls_record_send.  Prints MiB/s.
 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

#define LENGTH (256U << 10)
#define DEPTH 8U
#define GREETING 18U
#define OPTION_REPLY 20U

static uint8_t buf[LENGTH + NBD_SIMPLE_REPLY_SIZE];

static void fail (const char *what, ssize_t r) __attribute__ ((noreturn));

static void
fail (const char *what, ssize_t r)
{
    fprintf (stderr, "tls_reads: %s: %s\n", what,
             r < 0 ? gnutls_strerror ((int) r) : strerror (errno));
    exit (EXIT_FAILURE);
}

static double
now (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

static void
check (const char *what, int r)
{
    if (r < 0)
        fail (what, r);
}

/* A session over FD, its handshake done. */
static gnutls_session_t
start (int fd, unsigned flags, const char *priority,
       gnutls_credentials_type_t type, void *credentials)
{
    gnutls_session_t s;
    int r;

    check ("gnutls_init", gnutls_init (&s, flags));
    check (priority, gnutls_priority_set_direct (s, priority, NULL));
    check ("credentials", gnutls_credentials_set (s, type, credentials));
    gnutls_transport_set_int (s, fd);
    do
        r = gnutls_handshake (s);
    while (r < 0 && !gnutls_error_is_fatal (r));
    check ("gnutls_handshake", r);
    return s;
}

static void
receive (gnutls_session_t s, uint8_t *p, size_t len)
{
    while (len > 0) {
        ssize_t r = gnutls_record_recv (s, p, len);

        if (r == 0)
            fail ("the server left", -1);
        if (r < 0 && gnutls_error_is_fatal ((int) r))
            fail ("gnutls_record_recv", r);
        if (r > 0) {
            p += r;
            len -= (size_t) r;
        }
    }
}

static void
send_all (gnutls_session_t s, const uint8_t *p, size_t len)
{
    while (len > 0) {
        ssize_t r = gnutls_record_send (s, p, len);

        if (r < 0)
            fail ("gnutls_record_send", r);
        p += r;
        len -= (size_t) r;
    }
}

/* -------- A process that only sends. -------- */

static void
send_for_ever (int fd, const char *priority, const char *dir)
{
    gnutls_certificate_credentials_t c;
    char cert[4096], key[4096];
    gnutls_session_t s;

    snprintf (cert, sizeof cert, "%s/server-cert.pem", dir);
    snprintf (key, sizeof key, "%s/server-key.pem", dir);
    check ("credentials", gnutls_certificate_allocate_credentials (&c));
    check (cert, gnutls_certificate_set_x509_key_file (c, cert, key,
                                                       GNUTLS_X509_FMT_PEM));
    s = start (fd, GNUTLS_SERVER, priority, GNUTLS_CRD_CERTIFICATE, c);
    while (gnutls_record_send (s, buf, LENGTH) > 0)
        ;
    _exit (0);
}

static void
loop (double seconds, const char *cipher, const char *dir)
{
    gnutls_certificate_credentials_t c;
    gnutls_session_t s;
    char priority[200];
    double begin, bytes = 0;
    int pair[2];

    snprintf (priority, sizeof priority,
              "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+%s", cipher);
    memset (buf, 'U', LENGTH);
    if (socketpair (AF_UNIX, SOCK_STREAM, 0, pair) == -1)
        fail ("socketpair", 0);
    if (fork () == 0) {
        close (pair[0]);
        send_for_ever (pair[1], priority, dir);
    }
    close (pair[1]);
    check ("credentials", gnutls_certificate_allocate_credentials (&c));
    s = start (pair[0], GNUTLS_CLIENT, priority, GNUTLS_CRD_CERTIFICATE, c);
    begin = now ();
    while (now () - begin < seconds) {
        receive (s, buf, LENGTH);
        bytes += LENGTH;
    }
    printf ("%.1f\n", bytes / (now () - begin) / (1 << 20));
    close (pair[0]); /* which ends the other one */
    wait (NULL);
}

/* -------- An NBD server. -------- */

static void
plain (int fd, size_t to_send, size_t to_receive)
{
    if (send (fd, buf, to_send, MSG_NOSIGNAL) != (ssize_t) to_send
        || recv (fd, buf, to_receive, MSG_WAITALL) != (ssize_t) to_receive)
        fail ("negotiation", 0);
}

static uint8_t *
put_option (uint8_t *p, uint32_t option, uint32_t len)
{
    p = put_be32 (put_be64 (p, NBD_OPTION_MAGIC), option);
    return put_be32 (p, len);
}

static int
connect_and_upgrade (const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket (AF_UNIX, SOCK_STREAM, 0);
    uint8_t *p;

    snprintf (address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect (fd, (struct sockaddr *) &address, sizeof address) == -1)
        fail (path, 0);
    plain (fd, 0, GREETING);
    p = put_be32 (buf, NBD_FLAG_C_FIXED_NEWSTYLE | NBD_FLAG_C_NO_ZEROES);
    p = put_option (p, NBD_OPT_STARTTLS, 0);
    plain (fd, (size_t) (p - buf), OPTION_REPLY);
    if (get_be32 (buf + 12) != NBD_REP_ACK)
        fail ("STARTTLS was refused", -1);
    return fd;
}

static gnutls_session_t
secure (int fd, const char *kind, const char *file)
{
    gnutls_certificate_credentials_t c;
    gnutls_psk_client_credentials_t psk;
    char line[1024], *colon, name[4096];
    gnutls_datum_t key;
    FILE *f;

    if (strcmp (kind, "psk") != 0) {
        snprintf (name, sizeof name, "%s/ca-cert.pem", file);
        check ("credentials", gnutls_certificate_allocate_credentials (&c));
        check (name, gnutls_certificate_set_x509_trust_file (
                         c, name, GNUTLS_X509_FMT_PEM));
        return start (fd, GNUTLS_CLIENT, "NORMAL", GNUTLS_CRD_CERTIFICATE, c);
    }
    f = fopen (file, "r");
    if (f == NULL || fgets (line, sizeof line, f) == NULL
        || (colon = strchr (line, ':')) == NULL)
        fail (file, 0);
    fclose (f);
    *colon++ = '\0';
    colon[strcspn (colon, "\n")] = '\0';
    key =
        (gnutls_datum_t){ (unsigned char *) colon, (unsigned) strlen (colon) };
    check ("credentials", gnutls_psk_allocate_client_credentials (&psk));
    check ("key", gnutls_psk_set_client_credentials (psk, line, &key,
                                                     GNUTLS_PSK_KEY_HEX));
    return start (fd, GNUTLS_CLIENT, "NORMAL:+ECDHE-PSK:+DHE-PSK:+PSK",
                  GNUTLS_CRD_PSK, psk);
}

static void
go (gnutls_session_t s)
{
    uint8_t *p = put_option (buf, NBD_OPT_GO, 6);
    uint32_t type;

    p = put_be16 (put_be32 (p, 0), 0);
    send_all (s, buf, (size_t) (p - buf));
    do {
        receive (s, buf, OPTION_REPLY);
        type = get_be32 (buf + 12);
        if (type & UINT32_C (0x80000000))
            fail ("GO was refused", -1);
        receive (s, buf + OPTION_REPLY, get_be32 (buf + 16));
    } while (type != NBD_REP_ACK);
}

static void
request (gnutls_session_t s, uint16_t type)
{
    uint8_t head[28], *p;

    p = put_be16 (put_be32 (head, NBD_REQUEST_MAGIC), 0);
    p = put_be64 (put_be16 (p, type), 1);
    put_be32 (put_be64 (p, 0), type == NBD_CMD_READ ? LENGTH : 0);
    send_all (s, head, sizeof head);
}

static void
from_nbd (double seconds, const char *kind, const char *file, const char *path)
{
    gnutls_session_t s = secure (connect_and_upgrade (path), kind, file);
    double begin, bytes = 0;

    go (s);
    begin = now ();
    for (unsigned i = 0; i < DEPTH; i++)
        request (s, NBD_CMD_READ);
    while (now () - begin < seconds) {
        receive (s, buf, NBD_SIMPLE_REPLY_SIZE + LENGTH);
        if (get_be32 (buf) != NBD_SIMPLE_REPLY_MAGIC || get_be32 (buf + 4))
            fail ("a read failed", -1);
        bytes += LENGTH;
        request (s, NBD_CMD_READ);
    }
    printf ("%.1f\n", bytes / (now () - begin) / (1 << 20));
    request (s, NBD_CMD_DISC);
}

int
main (int argc, char **argv)
{
    if (argc == 5 && strcmp (argv[1], "loop") == 0)
        loop (atof (argv[2]), argv[3], argv[4]);
    else if (argc == 6 && strcmp (argv[1], "nbd") == 0)
        from_nbd (atof (argv[2]), argv[3], argv[4], argv[5]);
    else {
        fprintf (stderr, "usage: tls_reads loop SECONDS CIPHER DIRECTORY\n"
                         "       tls_reads nbd SECONDS x509|psk FILE SOCKET\n");
        return 2;
    }
    return 0;
}
