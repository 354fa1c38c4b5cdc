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

static void
take_away (const struct file *f)
{
    struct stat st;

    if (lstat (f->path, &st) == -1 || st.st_dev != f->dev
        || st.st_ino != f->ino)
        return;
    if (S_ISDIR (st.st_mode))
        rmdir (f->path);
    else
        unlink (f->path);
}

void
files_remove_one (const char *path)
{
    for (unsigned i = 0; i < n_files; i++) {
        if (strcmp (files[i].path, path) == 0)
            take_away (&files[i]);
    }
}

void
files_remove (void)
{
    int saved = errno;

    for (unsigned i = n_files; i > 0; i--)
        take_away (&files[i - 1]);
    errno = saved;
}
