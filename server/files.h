/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The files that the server has made (sockets, the pid file, the directory of
 * -U -) and takes away when it ends, however it ends.
 */
#ifndef NBDSPEC_FILES_H
#define NBDSPEC_FILES_H

#include <sys/types.h>

/* PATH, absolute, is ours as it is now: should another file have taken its
 * place, that one stays.  (It has another inode as long as ours is in use, so
 * keep the file or socket open.)  -1 (logged): it cannot be noted. */
int files_add (const char *path);

/* PATH will be ours once NOW, which exists, has been renamed to it. */
int files_add_later (const char *path, const char *now);

/* Makes them another user's, as far as this can be done: -u. */
void files_give_away (uid_t uid, gid_t gid);

/* Removes one, or them all, the last one first.  Async-signal-safe; the latter
 * happens at exit by itself. */
void files_remove_one (const char *path);
void files_remove (void);

#endif
