/* SPDX-License-Identifier: BSD-3-Clause */
#include "pidfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "files.h"
#include "log.h"

static int fd = -1;
static char *temporary; /* to be renamed, or NULL: FD is the file itself */
static bool is_ours;    /* to be removed at the end */

/* Who waits for the file to appear must not see it before it is written, so it
 * is made under another name in the same directory. */
static void
make_temporary (void)
{
    const char *slash = strrchr (config.pid_file, '/');

    if (asprintf (&temporary, "%.*s/.nbdspecd-XXXXXX",
                  (int) (slash - config.pid_file), config.pid_file)
        == -1)
        log_fatal ("-P: %s: %m", config.pid_file);
    fd = mkostemp (temporary, O_CLOEXEC);
    if (fd == -1 || fchmod (fd, 0644) == -1)
        log_fatal ("-P: %s: %m", config.pid_file);
    if (files_add (temporary) == -1
        || files_add_later (config.pid_file, temporary) == -1)
        exit (EXIT_FAILURE);
}

void
pidfile_prepare (void)
{
    struct stat st;
    bool exists;

    if (config.pid_file == NULL)
        return;
    exists = stat (config.pid_file, &st) == 0;
    is_ours = !exists || S_ISREG (st.st_mode); /* may be a pipe */
    /* Another user may not be able to rename in that directory: then the file
     * is there before, but empty. */
    if (!exists && errno == ENOENT && !config.user && !config.group) {
        make_temporary ();
        return;
    }
    fd =
        open (config.pid_file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd == -1)
        log_fatal ("-P: %s: %m", config.pid_file);
    if (!exists && files_add (config.pid_file) == -1)
        exit (EXIT_FAILURE);
}

void
pidfile_close (void)
{
    if (fd != -1)
        close (fd);
    fd = -1;
}

int
pidfile_write (void)
{
    char text[24];
    int len = snprintf (text, sizeof text, "%ld\n", (long) getpid ());
    int r;

    if (config.pid_file == NULL)
        return 0;
    r = is_ours && ftruncate (fd, 0) == -1 ? -1 : 0;
    if (r == 0 && write (fd, text, (size_t) len) != len)
        r = -1;
    if (r == 0 && temporary != NULL)
        r = rename (temporary, config.pid_file);
    if (r == -1) {
        log_error ("-P: %s: %m", config.pid_file);
        return -1;
    }
    if (!is_ours)
        pidfile_close ();
    return is_ours && temporary == NULL ? files_add (config.pid_file) : 0;
}
