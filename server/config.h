/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the command line asked for.  Written once by cmdline.c before any
 * thread starts, read everywhere.
 */
#ifndef NBDSPEC_CONFIG_H
#define NBDSPEC_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum tls_mode { TLS_OFF, TLS_ON, TLS_REQUIRE };
enum python_buffer { BUFFER_MEMORYVIEW, BUFFER_BYTEARRAY, BUFFER_BYTES };

struct config {
    /* Where to listen. */
    const char *unix_path; /* -U, absolute; NULL: TCP */
    bool unix_random;      /* -U -, or --run alone: listen.c makes unix_path */
    const char *port;      /* -p; NULL: 10809 */
    const char *ip_addr;   /* -i; NULL: all */
    int ip_family;         /* AF_UNSPEC, AF_INET (-4), AF_INET6 (-6) */
    bool vsock;
    bool single; /* -s */
    bool keepalive;
    const char *selinux_label;

    /* How to serve. */
    unsigned threads; /* -t, at least 1 */
    bool read_only;   /* -r */
    bool oldstyle;    /* -o */
    bool no_structured_replies, no_meta_contexts;
    uint32_t mask_handshake;
    unsigned timeout;         /* seconds for the handshake, 0: no limit */
    unsigned max_connections; /* 0: no limit */
    enum tls_mode tls;        /* TLS_ON becomes TLS_OFF without credentials */
    bool tls_asked;           /* --tls was given */
    const char *tls_certificates, *tls_psk, *tls_priority;
    bool tls_verify_peer;

    /* The process. */
    const char *name; /* --name, or NULL */
    bool foreground, exit_with_parent, swap;
    const char *pid_file; /* absolute */
    const char *user, *group;
    const char *export_name; /* -e: for --run and --print-uri; never NULL */
    const char *run;         /* --run */
    bool print_uri;
    const char *stats; /* --stats, absolute */

    /* What -v shows: -D nbdkit.backend.controlpath and .datapath. */
    bool debug_controlpath, debug_datapath;
    int debug_tls; /* -D nbdkit.tls.log=N, GnuTLS' level */

    /* The Python bridge. */
    enum python_buffer python_buffer;
    bool nbdkit_compat, error_text;
};

extern struct config config;

#endif
