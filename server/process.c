/* SPDX-License-Identifier: BSD-3-Clause */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "config.h"
#include "files.h"
#include "log.h"
#include "quit.h"

void
process_check_stdio (void)
{
    if (fcntl (STDERR_FILENO, F_GETFD) == -1)
        exit (EXIT_FAILURE); /* nowhere to say so */
    if (fcntl (STDIN_FILENO, F_GETFD) == -1
        || fcntl (STDOUT_FILENO, F_GETFD) == -1)
        log_fatal ("stdin and stdout must be open: use /dev/null");
}

void
process_detach_stream (int *in, int *out)
{
    int null = open ("/dev/null", O_RDONLY | O_CLOEXEC);

    *in = fcntl (STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    *out = fcntl (STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (null == -1 || *in == -1 || *out == -1 || dup2 (null, STDIN_FILENO) == -1
        || dup2 (STDERR_FILENO, STDOUT_FILENO) == -1)
        log_fatal ("-s: %m");
    close (null);
}

void
process_null_stdio (void)
{
    int null = open ("/dev/null", O_RDWR | O_CLOEXEC);

    if (null == -1 || dup2 (null, STDIN_FILENO) == -1
        || dup2 (null, STDOUT_FILENO) == -1)
        log_fatal ("/dev/null: %m");
    close (null);
}

void
process_exit_with_parent (pid_t parent)
{
    if (prctl (PR_SET_PDEATHSIG, SIGTERM) == -1)
        log_fatal ("prctl: %m");
    if (getppid () != parent)
        server_quit (); /* it has gone before we asked for the signal */
}

static unsigned
parse_id (const char *option, const char *kind, const char *text)
{
    char *end;
    unsigned long n;

    errno = 0;
    n = strtoul (text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0
        || n >= UINT_MAX)
        log_fatal ("%s option: %s is not a valid %s name or number", option,
                   text, kind);
    return (unsigned) n;
}

static uid_t uid = (uid_t) -1;
static gid_t gid = (gid_t) -1;

void
process_find_user (void)
{
    if (config.user != NULL) {
        const struct passwd *pw = getpwnam (config.user);

        uid = pw ? pw->pw_uid : parse_id ("-u", "user", config.user);
    }
    if (config.group != NULL) {
        const struct group *gr = getgrnam (config.group);

        gid = gr ? gr->gr_gid : parse_id ("-g", "group", config.group);
    }
}

void
process_change_user (void)
{
    if (config.group != NULL && setgroups (1, &gid) == -1)
        log_fatal ("-g: setgroups: %s: %m", config.group);
    if (config.group != NULL && setgid (gid) == -1)
        log_fatal ("-g: setgid: %s: %m", config.group);
    if (config.unix_random)
        files_give_away (uid, gid);
    if (config.user != NULL && setuid (uid) == -1)
        log_fatal ("-u: setuid: %s: %m", config.user);
}

void
process_lock_memory (void)
{
    if (mlockall (MCL_CURRENT | MCL_FUTURE) == -1)
        log_fatal ("--swap: mlockall: %m");
}
