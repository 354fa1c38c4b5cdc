/* SPDX-License-Identifier: BSD-3-Clause */
#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

/* A directory, its socket, a temporary pid file and the pid file. */
#define MAX_FILES 4

static struct file {
    char *path;
    dev_t dev;
    ino_t ino;
} files[MAX_FILES];
static _Atomic unsigned n_files;

int
files_add (const char *path)
{
    return files_add_later (path, path);
}

int
files_add_later (const char *path, const char *now)
{
    struct stat st;
    struct file *f = &files[n_files];

    if (n_files == MAX_FILES || lstat (now, &st) == -1
        || (f->path = strdup (path)) == NULL) {
        log_error ("%s: %m", path);
        return -1;
    }
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    if (n_files == 0)
        atexit (files_remove);
    n_files++;
    return 0;
}

void
files_give_away (uid_t uid, gid_t gid)
{
    for (unsigned i = 0; i < n_files; i++) {
        if (lchown (files[i].path, uid, gid) == -1)
            log_debug ("chown: %s: %m", files[i].path);
    }
}

void
files_remove (void)
{
    int saved = errno;
    struct stat st;

    for (unsigned i = n_files; i > 0; i--) {
        const struct file *f = &files[i - 1];

        if (lstat (f->path, &st) == -1 || st.st_dev != f->dev
            || st.st_ino != f->ino)
            continue;
        if (S_ISDIR (st.st_mode))
            rmdir (f->path);
        else
            unlink (f->path);
    }
    errno = saved;
}
