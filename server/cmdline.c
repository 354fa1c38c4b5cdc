/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmdline.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "activation.h"
#include "cleanup.h"
#include "cmdline_values.h"
#include "config.h"
#include "log.h"

#define MAX_LONG_OPTIONS 80
#define DEFAULT_THREADS 16
#define DEFAULT_TIMEOUT 30

struct config config = {
    .ip_family = AF_UNSPEC,
    .threads = DEFAULT_THREADS,
    .mask_handshake = UINT32_MAX,
    .timeout = DEFAULT_TIMEOUT,
    .tls = TLS_ON,
    .export_name = "",
    .debug_controlpath = true,
    .debug_datapath = true,
};

char program_name[] = "nbdspecd";

/* What has been seen of the options whose effect depends on others. */
struct seen {
    bool port, unix_socket, log;
    enum log_sink sink;
    const char *log_file;
    enum action action;
};

bool
called_nbdkit (void)
{
    return strcmp (program_name, "nbdkit") == 0;
}

/* Puts a malloc'ed PATH in its place; an option may be given twice. */
static void
set_path (const char **place, char *path)
{
    free ((char *) *place);
    *place = path;
}

/* The statistics are made beside their place and renamed.  That this cannot
 * work should be known before a client has come and gone. */
static char *
parse_stats (const char *text)
{
    char *path = absolute_path ("--stats", text);
    AUTO_FREE char *dir = strndup (path, (size_t) (strrchr (path, '/') - path));

    if (dir == NULL || access (dir[0] ? dir : "/", W_OK | X_OK) == -1)
        log_fatal ("--stats: %s: %m", path);
    return path;
}

static void
parse_log (const char *text, struct seen *seen)
{
    seen->log = true;
    if (strcmp (text, "stderr") == 0)
        seen->sink = LOG_TO_STDERR;
    else if (strcmp (text, "syslog") == 0)
        seen->sink = LOG_TO_SYSLOG;
    else if (strcmp (text, "null") == 0)
        seen->sink = LOG_TO_NULL;
    else if (text[0] == '/') {
        seen->sink = LOG_TO_FILE;
        seen->log_file = text;
    } else
        log_fatal ("--log: '%s': expected stderr, syslog, null or a file name "
                   "that begins with /",
                   text);
}

static void
parse_unix (const char *text)
{
    struct sockaddr_un sun;

    config.unix_random = strcmp (text, "-") == 0;
    set_path (&config.unix_path,
              config.unix_random ? NULL : absolute_path ("-U", text));
    if (config.unix_path && strlen (config.unix_path) >= sizeof sun.sun_path)
        log_fatal ("-U: path too long: length %zu > max %zu bytes",
                   strlen (config.unix_path), sizeof sun.sun_path - 1);
}

/* -D NAME.FLAG=N.  As in nbdkit an unknown flag is only worth a warning. */
static void
parse_debug (const char *text)
{
    const char *equals = strchr (text, '=');
    const char *dot = memchr (text, '.', equals ? (size_t) (equals - text) : 0);
    char *end;
    long n;

    if (dot == NULL || dot == text || equals == dot + 1 || equals[1] == '\0')
        log_fatal ("-D: '%s': expected NAME.FLAG=N", text);
    errno = 0;
    n = strtol (equals + 1, &end, 0);
    if (*end != '\0' || errno != 0 || n < INT_MIN || n > INT_MAX)
        log_fatal ("-D: '%s': expected a number after the =", text);
    if (strncmp (text, "nbdkit.backend.datapath=", 24) == 0)
        config.debug_datapath = n != 0;
    else if (strncmp (text, "nbdkit.backend.controlpath=", 27) == 0)
        config.debug_controlpath = n != 0;
    else if (strncmp (text, "nbdkit.tls.log=", 15) == 0)
        config.debug_tls = (int) n;
    else if (strncmp (text, "nbdkit.tls.session=", 19) != 0)
        fprintf (stderr, "%s: warning: debug flag -D %.*s was not used\n",
                 program_name, (int) (equals - text), text);
}

static void
parse_threads (const char *text)
{
    config.threads = parse_number ("-t", text, INT_MAX);
    if (config.threads == 0)
        config.threads = DEFAULT_THREADS;
}

/* Where to listen; false: it is another option. */
static bool
listening_option (int value, const char *arg, struct seen *seen)
{
    switch (value) {
    case '4':
        config.ip_family = AF_INET;
        break;
    case '6':
        config.ip_family = AF_INET6;
        break;
    case 'i':
        config.ip_addr = arg;
        break;
    case 'p':
        seen->port = true;
        config.port = arg;
        break;
    case 's':
        config.single = config.foreground = true;
        break;
    case 'U':
        seen->unix_socket = true;
        parse_unix (arg);
        break;
    case OPT_KEEPALIVE:
        config.keepalive = true;
        break;
    case OPT_SELINUX_LABEL:
        config.selinux_label = arg;
        break;
    case OPT_VSOCK:
        config.vsock = true;
        break;
    default:
        return false;
    }
    return true;
}

/* How clients are served. */
static bool
serving_option (int value, const char *arg)
{
    switch (value) {
    case 'n':
        config.oldstyle = false;
        break;
    case 'o':
        config.oldstyle = true;
        break;
    case 'r':
        config.read_only = true;
        break;
    case 't':
        parse_threads (arg);
        break;
    case OPT_ERROR_TEXT:
        config.error_text = true;
        break;
    case OPT_MASK_HANDSHAKE:
        config.mask_handshake =
            parse_number ("--mask-handshake", arg, UINT32_MAX);
        break;
    case OPT_MAX_CONNECTIONS:
        config.max_connections =
            parse_number ("--max-connections", arg, INT_MAX);
        break;
    case OPT_NBDKIT_COMPAT:
        config.nbdkit_compat = true;
        break;
    case OPT_NO_MC:
        config.no_meta_contexts = true;
        break;
    case OPT_NO_SR:
        config.no_structured_replies = true;
        break;
    case OPT_PYTHON_BUFFER:
        config.python_buffer = parse_python_buffer (arg);
        break;
    case OPT_TIMEOUT:
        config.timeout = parse_seconds ("--timeout", arg);
        break;
    case OPT_TLS:
        config.tls = parse_tls (arg);
        config.tls_asked = true;
        break;
    case OPT_TLS_CERTIFICATES:
        set_path (&config.tls_certificates,
                  absolute_path ("--tls-certificates", arg));
        break;
    case OPT_TLS_PRIORITY:
        config.tls_priority = arg;
        break;
    case OPT_TLS_PSK:
        set_path (&config.tls_psk, absolute_path ("--tls-psk", arg));
        break;
    case OPT_TLS_VERIFY_PEER:
        config.tls_verify_peer = true;
        break;
    default:
        return false;
    }
    return true;
}

/* The process, and what it prints. */
static bool
process_option (int value, const char *arg, struct seen *seen)
{
    switch (value) {
    case 'D':
        parse_debug (arg);
        break;
    case 'e':
        config.export_name = arg;
        break;
    case 'f':
        config.foreground = true;
        break;
    case 'g':
        config.group = arg;
        break;
    case 'P':
        set_path (&config.pid_file, absolute_path ("-P", arg));
        break;
    case 'u':
        config.user = arg;
        break;
    case 'v':
        log_verbose = true;
        break;
    case 'V':
        seen->action = SHOW_VERSION;
        break;
    case OPT_DUMP_CONFIG:
        seen->action = DUMP_CONFIG;
        break;
    case OPT_DUMP_PLUGIN:
        seen->action = DUMP_PLUGIN;
        break;
    case OPT_EXIT_WITH_PARENT:
        config.exit_with_parent = config.foreground = true;
        break;
    case OPT_FILTER:
        log_fatal ("--filter=%s: there are no filters; put nbdkit with this "
                   "filter in front (nbdkit --filter=%s nbd URI), or do "
                   "without",
                   arg, arg);
    case OPT_HELP:
        seen->action = SHOW_HELP;
        break;
    case OPT_LOG:
        parse_log (arg, seen);
        break;
    case OPT_LONG_OPTIONS:
    case OPT_SHORT_OPTIONS:
        usage_option_names (value == OPT_LONG_OPTIONS);
        exit (EXIT_SUCCESS);
    case OPT_NAME:
        config.name = arg;
        break;
    case OPT_PRINT_URI:
        config.print_uri = true;
        break;
    case OPT_RUN:
        config.run = arg;
        config.foreground = true;
        break;
    case OPT_STATS:
        set_path (&config.stats, parse_stats (arg));
        break;
    case OPT_SWAP:
        config.swap = true;
        break;
    default:
        return false;
    }
    return true;
}

static void
check_combinations (const struct seen *seen)
{
    bool listens = seen->port || seen->unix_socket || config.vsock;
    bool dump = seen->action == DUMP_PLUGIN;

    if ((seen->port && seen->unix_socket) || (config.vsock && seen->unix_socket)
        || (config.single && (listens || config.run || dump)))
        log_fatal ("--dump-plugin, -p, --run, -s, -U or --vsock options "
                   "cannot be used in this combination");
    if (config.oldstyle && config.tls == TLS_REQUIRE)
        log_fatal ("-o cannot be used with --tls=require: the oldstyle "
                   "protocol has no TLS");
    if (activation_count () > 0
        && (listens || config.ip_addr || config.single || config.run))
        log_fatal ("socket activation cannot be used with -i, -p, --run, -s, "
                   "-U or --vsock");
}

/* getopt's two forms of the table. */
static void
build_getopt (struct option *longs, char *shorts)
{
    size_t n = 0;

    for (const struct option_entry *o = option_table; o->name != NULL; o++) {
        if (n == MAX_LONG_OPTIONS)
            abort ();
        longs[n++] = (struct option){
            .name = o->name,
            .has_arg = o->argument != NULL ? required_argument : no_argument,
            .val = o->value,
        };
        if (o->value < 256 && o->text != NULL) {
            *shorts++ = (char) o->value;
            if (o->argument != NULL)
                *shorts++ = ':';
        }
    }
    longs[n] = (struct option){ 0 };
    *shorts = '\0';
}

static void
finish (struct seen *seen)
{
    check_combinations (seen);
    if (activation_count () > 0)
        config.foreground = true;
    if (config.run && !seen->port && !seen->unix_socket && !config.vsock)
        config.unix_random = true;
    if (config.name != NULL)
        log_set_name (config.name);
    if (log_open (seen->sink, seen->log_file) == -1)
        log_fatal ("--log: %s: %m", seen->log_file);
}

struct cmdline
cmdline_parse (int argc, char **argv)
{
    struct seen seen = { .sink = LOG_TO_DEFAULT, .action = SERVE };
    struct option longs[MAX_LONG_OPTIONS + 1];
    char shorts[2 * MAX_LONG_OPTIONS + 1];
    int value;

    if (argc < 1)
        log_fatal ("started without a program name");
    if (strcmp (basename (argv[0]), "nbdkit") == 0)
        strcpy (program_name, "nbdkit");
    argv[0] = program_name; /* in getopt's messages */
    log_set_name (program_name);
    build_getopt (longs, shorts);
    while ((value = getopt_long (argc, argv, shorts, longs, NULL)) != -1) {
        if (!listening_option (value, optarg, &seen)
            && !serving_option (value, optarg)
            && !process_option (value, optarg, &seen))
            exit (EXIT_FAILURE); /* getopt has said why */
    }
    if (seen.action == SERVE || seen.action == DUMP_PLUGIN)
        finish (&seen);
    return (struct cmdline){
        .action = seen.action,
        .backend = argv[optind],
        .argc = argv[optind] != NULL ? argc - optind - 1 : 0,
        .argv = argv[optind] != NULL ? argv + optind + 1 : argv + optind,
    };
}
