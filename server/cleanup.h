/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Things that end with their scope: memory, file descriptors, locks.
 */
#ifndef NBDSPEC_CLEANUP_H
#define NBDSPEC_CLEANUP_H

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static inline void
cleanup_free (void *pp)
{
    free (*(void **) pp);
}

static inline void
cleanup_close (const int *fd)
{
    if (*fd >= 0)
        close (*fd);
}

static inline void
cleanup_unlock (pthread_mutex_t **lock)
{
    if (*lock)
        pthread_mutex_unlock (*lock);
}

static inline pthread_mutex_t *
cleanup_lock (pthread_mutex_t *lock)
{
    pthread_mutex_lock (lock);
    return lock;
}

#define CLEANUP(function) __attribute__ ((cleanup (function)))
#define AUTO_FREE CLEANUP (cleanup_free)
#define AUTO_CLOSE CLEANUP (cleanup_close)

/* Holds LOCK from here to the end of the enclosing block. */
#define SCOPED_LOCK(lock) SCOPED_LOCK_ (lock, __LINE__)
#define SCOPED_LOCK_(lock, line) SCOPED_LOCK__ (lock, line)
#define SCOPED_LOCK__(lock, line)                                             \
    CLEANUP (cleanup_unlock)                                                  \
    __attribute__ ((unused)) pthread_mutex_t *scoped_lock_##line              \
        = cleanup_lock (lock)

#endif
