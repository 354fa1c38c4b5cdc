/* SPDX-License-Identifier: BSD-3-Clause */
#include "run.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "config.h"
#include "files.h"
#include "listen.h"
#include "log.h"
#include "pidfile.h"
#include "quit.h"
#include "uri.h"

static pid_t server_pid, command_pid;
static bool own_group;
static volatile sig_atomic_t signals;

/* Passes a signal on to both.  What a terminal sends, a command in our group
 * gets without our help, and the server does not mind a second time. */
static void
pass_on (int sig, siginfo_t *info, void *context)
{
    int saved = errno;

    (void) context;
    if ((own_group || info->si_code != SI_KERNEL) && command_pid > 0)
        kill (own_group ? -command_pid : command_pid, sig);
    if (server_pid > 0)
        kill (server_pid, signals > 0 ? SIGKILL : SIGTERM);
    signals = 1;
    errno = saved;
}

static void
catch_signals (void)
{
    struct sigaction sa = { .sa_sigaction = pass_on, .sa_flags = SA_SIGINFO };

    sigfillset (&sa.sa_mask);
    for (int i = 0; i < N_QUIT_SIGNALS; i++)
        sigaction (quit_signals[i], &sa, NULL);
}

/* The command with its variables in front; they are not exported. */
static char *
compose (void)
{
    AUTO_FREE char *uri = uri_make ();
    AUTO_FREE char *quoted_uri = uri ? shell_quote (uri) : NULL;
    AUTO_FREE char *name = shell_quote (config.export_name);
    AUTO_FREE char *path = shell_quote (listen_path ());
    char *text;

    if (quoted_uri == NULL || name == NULL || path == NULL
        || asprintf (&text,
                     "uri=%s\n"
                     "nbd=$uri\n"
                     "port=%s\n"
                     "unixsocket=%s\n"
                     "exportname=%s\n"
                     "%s\n"
                     "%s",
                     quoted_uri, listen_port (), path, name,
                     config.tls == TLS_REQUIRE ? "tls=2"
                     : config.tls == TLS_ON    ? "tls=1"
                                               : "unset tls",
                     config.run)
               == -1)
        return NULL;
    return text;
}

static void
become_command (const char *text, const sigset_t *mask)
{
    if (own_group)
        setpgid (0, 0);
    signal (SIGPIPE, SIG_DFL); /* being ignored would be inherited */
    /* One that came since the fork ends the command, not only the server. */
    quit_each_signal (SIG_DFL);
    sigprocmask (SIG_SETMASK, mask, NULL);
    execl ("/bin/sh", "sh", "-c", text, (char *) NULL);
    log_error ("/bin/sh: %m");
    _exit (127);
}

static int
status_of (int wait_status)
{
    return WIFSIGNALED (wait_status) ? 128 + WTERMSIG (wait_status)
                                     : WEXITSTATUS (wait_status);
}

/* The command's status, unless the server came to grief by itself. */
static int
overall_status (int command, int server, bool server_first)
{
    if (server_first && WIFSIGNALED (server))
        return status_of (server);
    if (status_of (command) == 0 && (server_first || signals == 0))
        return status_of (server);
    return status_of (command);
}

static int
wait_for_both (void)
{
    int command = 0, server = 0;
    bool command_ended = false, server_ended = false, server_first = false;

    while (!command_ended || !server_ended) {
        int status;
        pid_t pid = waitpid (-1, &status, 0);

        if (pid == -1 && errno == EINTR)
            continue;
        if (pid == -1)
            break;
        if (pid == command_pid) {
            command = status;
            command_ended = true;
            command_pid = 0;
            if (!server_ended)
                kill (server_pid, SIGTERM);
        } else if (pid == server_pid) {
            server = status;
            server_ended = true;
            server_first = !command_ended;
            server_pid = 0;
        }
    }
    return overall_status (command, server, server_first);
}

/* Ends the server without having run anything. */
static int
give_up (pid_t server)
{
    int status = 0;

    kill (server, SIGTERM);
    while (waitpid (server, &status, 0) == -1 && errno == EINTR)
        ;
    return status_of (status);
}

int
run_command (pid_t server, const sigset_t *mask)
{
    AUTO_FREE char *text = compose ();
    int status;

    listen_close ();
    pidfile_close ();
    if (server_quitting ()) /* a signal came before, or the parent has gone */
        return give_up (server);
    server_pid = server;
    /* Without a terminal the command gets a group of its own, so that all its
     * processes can be ended. */
    own_group = !isatty (STDIN_FILENO) && !isatty (STDOUT_FILENO)
                && !isatty (STDERR_FILENO);
    catch_signals ();
    command_pid = text != NULL ? fork () : -1;
    if (command_pid == 0)
        become_command (text, mask);
    if (command_pid == -1) {
        log_error ("--run: %m");
        give_up (server);
        return EXIT_FAILURE;
    }
    if (own_group)
        setpgid (command_pid, command_pid);
    sigprocmask (SIG_SETMASK, mask, NULL);
    status = wait_for_both ();
    files_remove ();
    return status;
}
