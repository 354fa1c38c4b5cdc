/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of options, and what is printed about the program itself.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "cmdline.h"
#include "tls.h"

/* The version of nbdkit whose command line and module this server has. */
#define NBDKIT_VERSION "1.48.1"

const struct option_entry option_table[] = {
    { "ipv4-only", '4', NULL, "listen on IPv4 only" },
    { "ipv6-only", '6', NULL, "listen on IPv6 only" },
    { "debug", 'D', "NAME.FLAG=N", "what -v shows: nbdkit.backend.datapath=0" },
    { "dump-config", OPT_DUMP_CONFIG, NULL, "print how the server was built" },
    { "dump-plugin", OPT_DUMP_PLUGIN, NULL, "print what the plugin is" },
    { "error-text", OPT_ERROR_TEXT, NULL,
      "send the text of Python exceptions to clients" },
    { "exit-with-parent", OPT_EXIT_WITH_PARENT, NULL,
      "end when the parent process ends; implies -f" },
    { "exportname", 'e', "NAME", "export in the URI of --run and --print-uri" },
    { "export", 'e', "NAME", NULL },
    { "export-name", 'e', "NAME", NULL },
    { "filter", OPT_FILTER, "FILTER", "refused: there are no filters" },
    { "foreground", 'f', NULL, "do not become a daemon" },
    { "no-fork", 'f', NULL, NULL },
    { "group", 'g', "GROUP", "serve as this group" },
    { "help", OPT_HELP, NULL, "print this; after a back end: its words" },
    { "ipaddr", 'i', "ADDRESS", "listen on this address only" },
    { "ip-addr", 'i', "ADDRESS", NULL },
    { "keepalive", OPT_KEEPALIVE, NULL, "probe silent TCP clients" },
    { "log", OPT_LOG, "stderr|syslog|null|/FILE", "where errors go" },
    { "long-options", OPT_LONG_OPTIONS, NULL, "list the long options" },
    { "mask-handshake", OPT_MASK_HANDSHAKE, "MASK",
      "leave handshake flags out" },
    { "max-connections", OPT_MAX_CONNECTIONS, "N",
      "serve at most N clients at once" },
    { "name", OPT_NAME, "NAME", "the server's name in its messages" },
    { "nbdkit-compat", OPT_NBDKIT_COMPAT, NULL,
      "treat scripts in nothing better than nbdkit does" },
    { "newstyle", 'n', NULL, "the newstyle protocol (always, but for -o)" },
    { "new-style", 'n', NULL, NULL },
    { "no-mc", OPT_NO_MC, NULL, "no meta contexts (block status)" },
    { "no-meta-contexts", OPT_NO_MC, NULL, NULL },
    { "no-sr", OPT_NO_SR, NULL, "no structured replies" },
    { "no-structured-replies", OPT_NO_SR, NULL, NULL },
    { "oldstyle", 'o', NULL, "the oldstyle protocol" },
    { "old-style", 'o', NULL, NULL },
    { "pidfile", 'P', "FILE", "write the process id when ready" },
    { "pid-file", 'P', "FILE", NULL },
    { "port", 'p', "PORT", "TCP or vsock port, 10809 unless said" },
    { "print-uri", OPT_PRINT_URI, NULL, "print the URI on stdout" },
    { "print-url", OPT_PRINT_URI, NULL, NULL },
    { "show-uri", OPT_PRINT_URI, NULL, NULL },
    { "show-url", OPT_PRINT_URI, NULL, NULL },
    { "python-buffer", OPT_PYTHON_BUFFER, "memoryview|bytearray|bytes",
      "what pwrite is handed" },
    { "readonly", 'r', NULL, "serve read-only" },
    { "read-only", 'r', NULL, NULL },
    { "run", OPT_RUN, "COMMAND", "serve while a shell runs COMMAND" },
    { "selinux-label", OPT_SELINUX_LABEL, "LABEL", "label of the socket" },
    { "short-options", OPT_SHORT_OPTIONS, NULL, "list the option letters" },
    { "single", 's', NULL, "serve one client, on stdin and stdout" },
    { "stdin", 's', NULL, NULL },
    { "stats", OPT_STATS, "FILE", "write statistics (JSON)" },
    { "swap", OPT_SWAP, NULL, "lock the server into memory" },
    { "threads", 't', "N", "requests in the plugin at once, 16 unless said" },
    { "timeout", OPT_TIMEOUT, "SECONDS",
      "for a handshake, 30 unless said; 0: no limit" },
    { "time-out", OPT_TIMEOUT, "SECONDS", NULL },
    { "tls", OPT_TLS, "off|on|require", "TLS, if the client wants, or always" },
    { "tls-certificates", OPT_TLS_CERTIFICATES, "DIR", "X.509 certificates" },
    { "tls-priority", OPT_TLS_PRIORITY, "STRING", "GnuTLS priority string" },
    { "tls-psk", OPT_TLS_PSK, "FILE", "pre-shared keys" },
    { "tls-verify-peer", OPT_TLS_VERIFY_PEER, NULL,
      "demand a certificate of the client" },
    { "unix", 'U', "SOCKET|-", "listen on a Unix socket; -: a private one" },
    { "user", 'u', "USER", "serve as this user" },
    { "verbose", 'v', NULL, "show debugging lines on stderr" },
    { "version", 'V', NULL, "print the version" },
    { "vsock", OPT_VSOCK, NULL, "listen on AF_VSOCK" },
    { NULL, 0, NULL, NULL },
};

static void
print_option (const struct option_entry *o)
{
    char left[80];
    int n;

    if (o->value < 256)
        n = snprintf (left, sizeof left, "-%c, --%s", o->value, o->name);
    else
        n = snprintf (left, sizeof left, "    --%s", o->name);
    if (o->argument != NULL)
        snprintf (left + n, sizeof left - (size_t) n,
                  o->value < 256 ? " %s" : "=%s", o->argument);
    if (strlen (left) > 28)
        printf ("  %s\n  %-28s  %s", left, "", o->text);
    else
        printf ("  %-28s  %s", left, o->text);
    for (const struct option_entry *a = o + 1; a->name && !a->text; a++)
        printf ("%s--%s",
                a == o + 1 ? "\n                                also " : ", ",
                a->name);
    putchar ('\n');
}

void
usage_help (void)
{
    printf ("Usage: %s [OPTION ...] python SCRIPT [KEY=VALUE ...]\n"
            "       %s [OPTION ...] memory SIZE\n"
            "       %s [OPTION ...] null SIZE\n"
            "\n"
            "An NBD server that runs nbdkit's Python plugins.\n"
            "\n",
            program_name, program_name, program_name);
    for (const struct option_entry *o = option_table; o->name != NULL; o++) {
        if (o->text != NULL)
            print_option (o);
    }
    puts ("\nMore in nbdspecd(1).");
}

void
usage_version (void)
{
    if (called_nbdkit ())
        printf ("nbdkit %s (nbdspecd %s)\n", NBDKIT_VERSION, NBDSPEC_VERSION);
    else
        printf ("nbdspecd %s\n", NBDSPEC_VERSION);
}

/* The keys that nbdkit has, as far as they mean something here. */
void
usage_dump_config (void)
{
    const char *version = called_nbdkit () ? NBDKIT_VERSION : NBDSPEC_VERSION;
    struct utsname u;

    if (uname (&u) == -1)
        memset (&u, 0, sizeof u);
    u.sysname[0] = (char) tolower ((unsigned char) u.sysname[0]);
    printf ("exit_with_parent=yes\n");
    printf ("host_cpu=%s\n", u.machine);
    printf ("host_os=%s\n", u.sysname);
    printf ("name=%s\n", program_name);
    printf ("nbdkit_version=%s\n", NBDKIT_VERSION);
#ifdef NO_PYTHON
    printf ("python=no\n");
#else
    printf ("python=yes\n");
#endif
    printf ("root_tls_certificates_dir=%s\n", TLS_ROOT_DIRECTORY);
    printf ("run_default_socket=Unix\n");
    printf ("selinux=yes\n");
#ifdef HAVE_GNUTLS
    printf ("tls=yes\n");
#else
    printf ("tls=no\n");
#endif
    printf ("version=%s\n", version);
    printf ("version_major=%ld\n", strtol (version, NULL, 10));
    printf ("version_minor=%ld\n",
            strtol (version + strcspn (version, ".") + 1, NULL, 10));
}

void
usage_option_names (bool long_ones)
{
    for (const struct option_entry *o = option_table; o->name != NULL; o++) {
        if (long_ones)
            printf ("--%s\n", o->name);
        else if (o->value < 256 && o->text != NULL)
            printf ("-%c\n", o->value);
    }
}
