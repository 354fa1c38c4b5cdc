/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Certificates and keys: found and loaded once, at start-up.
 */
#ifdef HAVE_GNUTLS

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "config.h"
#include "log.h"
#include "tls.h"
#include "tls_internal.h"

/* GnuTLS alone would choose ChaCha20 for pre-shared keys (their hash rules out
 * AES-256-GCM, and its next choice is not AES-128), at half the speed. */
#define CIPHERS                                                                \
    "-CIPHER-ALL:+AES-256-GCM:+AES-128-GCM:+CHACHA20-POLY1305:"                \
    "+AES-256-CCM:+AES-128-CCM:+AES-256-CBC:+AES-128-CBC"
#define DEFAULT_PRIORITY                                                       \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE:" CIPHERS
#define PSK_PRIORITY ":+ECDHE-PSK:+DHE-PSK:+PSK"

static gnutls_certificate_credentials_t certificates;
static gnutls_psk_server_credentials_t psk;
static gnutls_priority_t priority;

/* "DIR/NAME"; malloc'ed. */
static char *
in_directory (const char *dir, const char *name)
{
    char *path;

    if (asprintf (&path, "%s/%s", dir, name) == -1)
        log_fatal ("TLS: %m");
    return path;
}

/* -------- X.509. -------- */

static void
load_certificates (const char *dir)
{
    AUTO_FREE char *ca = in_directory (dir, "ca-cert.pem");
    AUTO_FREE char *cert = in_directory (dir, "server-cert.pem");
    AUTO_FREE char *key = in_directory (dir, "server-key.pem");
    AUTO_FREE char *crl = in_directory (dir, "ca-crl.pem");
    const char *const files[] = { ca, cert, key };
    int r;

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (access (files[i], R_OK) == -1)
            log_fatal ("TLS certificates: %s: %m", files[i]);
    }
    r = gnutls_certificate_allocate_credentials (&certificates);
    if (r < 0)
        log_fatal ("TLS: %s", gnutls_strerror (r));
    r = gnutls_certificate_set_x509_trust_file (certificates, ca,
                                                GNUTLS_X509_FMT_PEM);
    if (r <= 0)
        log_fatal ("TLS certificates: %s: %s", ca,
                   r == 0 ? "no certificate in it" : gnutls_strerror (r));
    if (access (crl, R_OK) == 0) {
        r = gnutls_certificate_set_x509_crl_file (certificates, crl,
                                                  GNUTLS_X509_FMT_PEM);
        if (r < 0)
            log_fatal ("TLS certificates: %s: %s", crl, gnutls_strerror (r));
    }
    r = gnutls_certificate_set_x509_key_file (certificates, cert, key,
                                              GNUTLS_X509_FMT_PEM);
    if (r < 0)
        log_fatal ("TLS certificates: %s and server-key.pem: %s", cert,
                   gnutls_strerror (r));
    log_debug ("TLS: X.509 certificates from %s", dir);
}

static bool
has_certificates (const char *dir)
{
    static const char *const names[] = { "ca-cert.pem", "server-cert.pem",
                                         "server-key.pem" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        AUTO_FREE char *path = in_directory (dir, names[i]);

        if (access (path, R_OK) == -1)
            return false;
    }
    return true;
}

/* Where certificates are looked for without --tls-certificates; as nbdkit. */
static void
search_certificates (void)
{
    static const char *const in_home[] = { ".pki/nbdkit",
                                           ".config/pki/nbdkit" };
    const char *home = getenv ("HOME");

    if (geteuid () == 0) {
        if (has_certificates (TLS_ROOT_DIRECTORY))
            load_certificates (TLS_ROOT_DIRECTORY);
        return;
    }
    for (size_t i = 0; home && i < sizeof in_home / sizeof in_home[0]; i++) {
        AUTO_FREE char *dir = in_directory (home, in_home[i]);

        if (has_certificates (dir)) {
            load_certificates (dir);
            return;
        }
    }
}

/* -------- Pre-shared keys. -------- */

static bool
is_key_line (const char *line)
{
    const char *colon = strchr (line, ':');
    const char *rest;
    size_t digits;

    if (colon == NULL || colon == line)
        return false;
    digits = strspn (colon + 1, "0123456789abcdefABCDEF");
    rest = colon + 1 + digits;
    return digits > 0 && digits % 2 == 0 && rest[strspn (rest, "\r\n")] == '\0';
}

/* The file is read by GnuTLS for each client, so that keys can be added; here
 * it is looked at for mistakes. */
static void
load_keys (const char *path)
{
    AUTO_FREE char *line = NULL;
    size_t size = 0;
    unsigned number = 0, keys = 0;
    FILE *f = fopen (path, "re");
    int r;

    if (f == NULL)
        log_fatal ("--tls-psk: %s: %m", path);
    while (getline (&line, &size, f) != -1) {
        number++;
        if (line[strspn (line, " \t\r\n")] == '\0')
            continue;
        if (!is_key_line (line) && line[0] == '#') /* else: a name in hex */
            continue;
        if (!is_key_line (line))
            log_fatal ("--tls-psk: %s: line %u: expected USER:KEY, the key in "
                       "hexadecimal",
                       path, number);
        keys++;
    }
    if (ferror (f))
        log_fatal ("--tls-psk: %s: %m", path);
    fclose (f);
    if (keys == 0)
        log_fatal ("--tls-psk: %s: there is no key in it", path);
    r = gnutls_psk_allocate_server_credentials (&psk);
    if (r == 0)
        r = gnutls_psk_set_server_credentials_file (psk, path);
    if (r < 0)
        log_fatal ("--tls-psk: %s: %s", path, gnutls_strerror (r));
    log_debug ("TLS: pre-shared keys from %s", path);
}

void
tls_check_access (void)
{
    if (psk != NULL && access (config.tls_psk, R_OK) == -1)
        log_fatal ("--tls-psk: %s: not readable for the user of -u: %m",
                   config.tls_psk);
}

/* -------- Both. -------- */

static void
load_priority (void)
{
    const char *text =
        config.tls_priority != NULL ? config.tls_priority : DEFAULT_PRIORITY;
    AUTO_FREE char *whole = NULL;
    const char *wrong = NULL;
    int r;

    if (asprintf (&whole, "%s%s", text, psk != NULL ? PSK_PRIORITY : "") == -1)
        log_fatal ("TLS: %m");
    r = gnutls_priority_init (&priority, whole, &wrong);
    if (r < 0)
        log_fatal ("--tls-priority: %s: %s", wrong != NULL ? wrong : whole,
                   gnutls_strerror (r));
}

static void
log_gnutls (int level, const char *text)
{
    (void) level;
    log_debug ("GnuTLS: %s", text);
}

void
tls_setup (void)
{
    if (config.tls == TLS_OFF)
        return;
    if (config.debug_tls > 0) {
        gnutls_global_set_log_level (config.debug_tls);
        gnutls_global_set_log_function (log_gnutls);
    }
    /* What is named must be usable: going on without TLS would be worse. */
    if (config.tls_psk != NULL)
        load_keys (config.tls_psk);
    else if (config.tls_certificates != NULL)
        load_certificates (config.tls_certificates);
    else
        search_certificates ();
    if (psk == NULL && certificates == NULL) {
        if (config.tls == TLS_REQUIRE)
            log_fatal ("--tls=require: no certificates found; use "
                       "--tls-certificates or --tls-psk");
        if (config.tls_asked)
            log_warning ("--tls=on: no certificates found, so there is no TLS");
        config.tls = TLS_OFF;
        return;
    }
    load_priority ();
}

int
tls_configure_session (gnutls_session_t session)
{
    int r = gnutls_priority_set (session, priority);

    if (r == 0 && psk != NULL)
        return gnutls_credentials_set (session, GNUTLS_CRD_PSK, psk);
    if (r == 0)
        r = gnutls_credentials_set (session, GNUTLS_CRD_CERTIFICATE,
                                    certificates);
    if (r == 0 && config.tls_verify_peer) {
        gnutls_certificate_server_set_request (session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_cert (session, NULL, 0);
    }
    return r;
}

#endif
