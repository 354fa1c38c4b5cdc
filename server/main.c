/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The order of starting and ending.
 */
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend.h"
#include "buffer.h"
#include "cleanup.h"
#include "cmdline.h"
#include "config.h"
#include "connection.h"
#include "daemon.h"
#include "listen.h"
#include "log.h"
#include "pidfile.h"
#include "process.h"
#include "quit.h"
#include "run.h"
#include "stats.h"
#include "tls.h"
#include "uri.h"
#include "watch.h"

/* Each arena costs an idle connection's thread memory that it never uses. */
#define MAX_ARENAS 4

static pid_t parent;
static int stream_in = -1, stream_out = -1; /* -s */
static FILE *uri_output;                    /* --print-uri */

static const char *
strip_path (const char *word)
{
    static char name[32];
    const char *slash = strrchr (word, '/');

    /* /usr/lib/.../nbdkit-python-plugin.so is how some start nbdkit. */
    if (slash != NULL
        && sscanf (slash, "/nbdkit-%31[a-z0-9]-plugin.so", name) == 1)
        return name;
    return word;
}

static void
choose_backend (const char *word)
{
    if (word == NULL)
        log_fatal ("no plugin given on the command line: expected python, "
                   "memory or null; see %s --help",
                   program_name);
    backend = backend_find (strip_path (word));
    if (backend != NULL)
        return;
    if (strchr (word, '.') != NULL || strchr (word, '/') != NULL)
        log_fatal ("%s: plugins in C are not supported; for a script use: "
                   "%s python %s",
                   word, program_name, word);
    log_fatal ("%s: no such plugin here; there are python, memory and null. "
               "For others use nbdkit %s",
               word, word);
}

/* What is left to the back end: --help, --version, --dump-plugin. */
static int
show (const struct cmdline *cmd)
{
    if (cmd->backend != NULL)
        choose_backend (cmd->backend);
    switch (cmd->action) {
    case SHOW_HELP:
        usage_help ();
        if (backend != NULL && backend->help != NULL)
            backend->help (cmd->argc, cmd->argv);
        break;
    case SHOW_VERSION:
        usage_version ();
        if (backend != NULL)
            printf ("%s %s\n", backend->name, NBDSPEC_VERSION);
        if (backend != NULL && backend->version != NULL)
            backend->version ();
        break;
    case DUMP_CONFIG:
    case DUMP_PLUGIN:
    case SERVE:
        usage_dump_config ();
        break;
    }
    return fflush (stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Calls one of the back end's functions, if it has it; what it logs bears its
 * name.  It has logged why when it failed. */
static int
call (int (*function) (void))
{
    int r;

    if (function == NULL)
        return 0;
    log_set_context (backend->name, 0);
    r = function ();
    log_set_context (NULL, 0);
    if (r == -1)
        exit (EXIT_FAILURE);
    return r;
}

static void
configure (const struct cmdline *cmd)
{
    log_set_context (backend->name, 0);
    if (backend->config && backend->config (cmd->argc, cmd->argv) == -1)
        exit (EXIT_FAILURE);
    log_set_context (NULL, 0);
}

static void
settle_thread_model (void)
{
    if (backend->thread_model != NULL)
        thread_model = (enum thread_model) call (backend->thread_model);
}

static int
dump_plugin (const struct cmdline *cmd)
{
    static const char *const models[] = {
        "serialize_connections",
        "serialize_all_requests",
        "serialize_requests",
        "parallel",
    };

    choose_backend (cmd->backend);
    if (cmd->argc > 0) {
        configure (cmd);
        settle_thread_model ();
    } else if (backend->thread_model != NULL) {
        /* Without a script there is still something to say, as in nbdkit. */
        thread_model = THREAD_MODEL_SERIALIZE_ALL_REQUESTS;
    }
    printf ("name=%s\n", backend->name);
    printf ("version=%s\n", NBDSPEC_VERSION);
    printf ("api_version=2\n");
    printf ("max_thread_model=parallel\n");
    printf ("thread_model=%s\n", models[thread_model]);
    fflush (stdout);
    if (backend->dump)
        backend->dump ();
    return fflush (stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Everything that a plugin may refuse, before anything can be seen from
 * outside. */
static void
prepare_backend (const struct cmdline *cmd)
{
    choose_backend (cmd->backend);
    configure (cmd);
    call (backend->config_complete);
    settle_thread_model ();
    log_debug ("thread model %d, %u threads", thread_model, config.threads);
    call (backend->get_ready);
}

static void
before_fork (void)
{
    fflush (NULL);
    log_flush ();
    call (backend->before_fork);
}

/* --run: this process goes on as the one that runs the command, its child as
 * the server. */
static void
fork_for_command (void)
{
    pid_t runner = getpid (), server;
    sigset_t all, old;

    before_fork ();
    sigfillset (&all);
    pthread_sigmask (SIG_BLOCK, &all, &old);
    server = fork ();
    if (server == -1)
        log_fatal ("fork: %m");
    if (server > 0) {
        if (config.exit_with_parent)
            process_exit_with_parent (parent);
        exit (run_command (server, &old));
    }
    quit_catch_signals (runner);
    parent = runner;
    pthread_sigmask (SIG_SETMASK, &old, NULL);
}

static void
detach (void)
{
    process_find_user ();
    if (config.run)
        fork_for_command ();
    process_change_user ();
    tls_check_access ();
    if (!config.foreground) {
        before_fork ();
        daemon_start ();
    }
    /* After the change of user, which forgets it. */
    if (config.exit_with_parent || config.run)
        process_exit_with_parent (parent);
    process_null_stdio ();
    if (config.swap)
        process_lock_memory ();
}

/* For print_uri: by then standard output is /dev/null. */
static FILE *
uri_stream (void)
{
    int fd = fcntl (STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);

    return fd >= 0 ? fdopen (fd, "w") : NULL;
}

static void
print_uri (void)
{
    AUTO_FREE char *uri = uri_make ();
    AUTO_FREE char *quoted = uri != NULL ? shell_quote (uri) : NULL;

    if (quoted != NULL)
        fprintf (uri_output, "%s\n%s\nnbdinfo %s\n", uri, quoted, quoted);
    fclose (uri_output);
}

static void
become_ready (void)
{
    if (watch_start () == -1)
        exit (EXIT_FAILURE);
    call (backend->after_fork);
    malloc_trim (0); /* what loading a plugin took and gave back */
    /* A script may have installed handlers of its own; they would never run,
     * and the server could not be ended. */
    quit_catch_signals (config.run ? parent : 0);
    if (uri_output != NULL)
        print_uri ();
    if (pidfile_write () == -1)
        exit (EXIT_FAILURE);
    log_started ();
    if (!config.foreground)
        log_detach ();
    daemon_ready ();
}

/* -s: the main thread serves, this one waits for the signal to end. */
static void *
watch_quit (void *arg)
{
    struct pollfd quit = { .fd = server_quit_fd (), .events = POLLIN };

    (void) arg;
    while (poll (&quit, 1, -1) == -1)
        ;
    connections_shutdown ();
    return NULL;
}

static void
serve_single (void)
{
    pthread_t watcher;

    if (pthread_create (&watcher, NULL, watch_quit, NULL) != 0)
        log_fatal ("-s: cannot start a thread");
    connection_run (stream_in, stream_out);
    server_quit ();
    pthread_join (watcher, NULL);
}

static int
serve (const struct cmdline *cmd)
{
    if (config.single)
        process_detach_stream (&stream_in, &stream_out);
    tls_setup ();
    prepare_backend (cmd);
    quit_catch_signals (0); /* before there is a file to be removed */
    pidfile_prepare ();
    if (!config.single)
        listen_open ();
    if (config.print_uri && !config.single
        && (uri_output = uri_stream ()) == NULL)
        log_fatal ("--print-uri: %m");
    detach ();
    become_ready ();
    if (config.single)
        serve_single ();
    else
        listen_serve ();
    connections_shutdown ();
    watch_stop ();
    log_debug ("shutting down");
    log_set_context (backend->name, 0);
    if (backend->cleanup)
        backend->cleanup ();
    if (backend->unload)
        backend->unload ();
    buffer_pool_free ();
    stats_write ();
    return EXIT_SUCCESS;
}

int
main (int argc, char **argv)
{
    struct cmdline cmd;

    parent = getppid ();
    process_check_stdio ();
    umask (022);
    /* Ignored, as it may have been inherited, it would take away the exit
     * statuses of children. */
    signal (SIGCHLD, SIG_DFL);
    mallopt (M_ARENA_MAX, MAX_ARENAS);
    if (quit_init () == -1)
        log_fatal ("eventfd: %m");
    cmd = cmdline_parse (argc, argv);
    if (cmd.action == DUMP_PLUGIN)
        return dump_plugin (&cmd);
    if (cmd.action != SERVE)
        return show (&cmd);
    return serve (&cmd);
}
