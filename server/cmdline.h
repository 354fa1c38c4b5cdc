/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The command line: nbdkit's, where it has a meaning for this server.
 */
#ifndef NBDSPEC_CMDLINE_H
#define NBDSPEC_CMDLINE_H

#include <stdbool.h>

enum action { SERVE, SHOW_HELP, SHOW_VERSION, DUMP_CONFIG, DUMP_PLUGIN };

struct cmdline {
    enum action action;
    const char *backend; /* its name, or NULL */
    int argc;            /* the words after it */
    char **argv;
};

/* Values of options that have no letter. */
enum {
    OPT_DUMP_CONFIG = 256,
    OPT_DUMP_PLUGIN,
    OPT_ERROR_TEXT,
    OPT_EXIT_WITH_PARENT,
    OPT_FILTER,
    OPT_HELP,
    OPT_KEEPALIVE,
    OPT_LOG,
    OPT_LONG_OPTIONS,
    OPT_MASK_HANDSHAKE,
    OPT_MAX_CONNECTIONS,
    OPT_NAME,
    OPT_NBDKIT_COMPAT,
    OPT_NO_MC,
    OPT_NO_SR,
    OPT_PRINT_URI,
    OPT_PYTHON_BUFFER,
    OPT_RUN,
    OPT_SELINUX_LABEL,
    OPT_SHORT_OPTIONS,
    OPT_STATS,
    OPT_SWAP,
    OPT_TIMEOUT,
    OPT_TLS,
    OPT_TLS_CERTIFICATES,
    OPT_TLS_PRIORITY,
    OPT_TLS_PSK,
    OPT_TLS_VERIFY_PEER,
    OPT_VSOCK,
};

/* One long option; several may have one value, the first has the text. */
struct option_entry {
    const char *name;
    int value;            /* the letter, or an OPT_ constant */
    const char *argument; /* its name, or NULL when there is none */
    const char *text;     /* NULL: another name of the entry before it */
};
extern const struct option_entry option_table[]; /* ends with a NULL name */

/* Fills in `config' and returns what is to be done.  Ends the process with
 * status 1 and one line when the command line is wrong. */
struct cmdline cmdline_parse (int argc, char **argv);

/* usage.c: what --help, --version and --dump-config print. */
void usage_help (void);
void usage_version (void);
void usage_dump_config (void);
void usage_option_names (bool long_ones);

/* The name in front of log lines; "nbdkit" when started through a link of that
 * name, for programs that start nbdkit by name. */
extern char program_name[];
bool called_nbdkit (void);

#endif
