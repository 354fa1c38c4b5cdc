/* SPDX-License-Identifier: BSD-3-Clause
 *
 * To be preloaded: makes the Nth call of one function fail, once.
 *
 *   FAIL=recv:3 FAIL_LOG=FILE LD_PRELOAD=fail_nth.so nbdspecd ...
 *
 * Calls count from the moment when the file FAIL_LOG exists, so that start-up
 * is not swept unless it exists from the beginning; "failed" is written to it
 * when the call has failed, so that a sweep sees where it may end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *function; /* NULL: nothing fails */
static const char *log_file;
static long nth;
static atomic_long calls;

__attribute__ ((constructor)) static void
read_environment (void)
{
    char *fail = getenv ("FAIL"), *colon;

    log_file = getenv ("FAIL_LOG");
    colon = fail ? strchr (fail, ':') : NULL;
    if (!colon || !log_file)
        return;
    nth = atol (colon + 1);
    *colon = '\0';
    function = strdup (fail);
    *colon = ':';
}

static int
fails (const char *name)
{
    int fd;

    if (!function || strcmp (name, function) != 0)
        return 0;
    if (atomic_load (&calls) >= nth || access (log_file, F_OK) == -1)
        return 0;
    if (atomic_fetch_add (&calls, 1) + 1 != nth)
        return 0;
    fd = open (log_file, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0) {
        if (write (fd, "failed\n", 7) != 7)
            abort ();
        close (fd);
    }
    return 1;
}

#define REAL(name)                                                            \
    static __typeof__ (name) *real;                                           \
    if (!real)                                                                \
        real = (__typeof__ (name) *) dlsym (RTLD_NEXT, #name)

ssize_t
recv (int fd, void *buf, size_t len, int flags)
{
    REAL (recv);
    if (fails ("recv")) {
        errno = ECONNRESET;
        return -1;
    }
    return real (fd, buf, len, flags);
}

ssize_t
sendmsg (int fd, const struct msghdr *msg, int flags)
{
    REAL (sendmsg);
    if (fails ("sendmsg")) {
        errno = EPIPE;
        return -1;
    }
    return real (fd, msg, flags);
}

int
accept4 (int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    REAL (accept4);
    if (fails ("accept4")) {
        errno = EMFILE;
        return -1;
    }
    return real (fd, addr, len, flags);
}

int
pthread_create (pthread_t *thread, const pthread_attr_t *attr,
                void *(*start) (void *), void *arg)
{
    REAL (pthread_create);
    return fails ("pthread_create") ? EAGAIN : real (thread, attr, start, arg);
}

void *
mmap (void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    REAL (mmap);
    if (fails ("mmap")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return real (addr, len, prot, flags, fd, offset);
}

/* glibc's own names: dlsym calls calloc, so it must not be needed here. */
extern void *__libc_malloc (size_t);
extern void *__libc_calloc (size_t, size_t);
extern void *__libc_realloc (void *, size_t);
extern void *__libc_memalign (size_t, size_t);

void *
malloc (size_t len)
{
    if (!fails ("malloc"))
        return __libc_malloc (len);
    errno = ENOMEM;
    return NULL;
}

void *
calloc (size_t n, size_t len)
{
    if (!fails ("malloc"))
        return __libc_calloc (n, len);
    errno = ENOMEM;
    return NULL;
}

void *
realloc (void *p, size_t len)
{
    if (!fails ("malloc"))
        return __libc_realloc (p, len);
    errno = ENOMEM;
    return NULL;
}

void *
aligned_alloc (size_t alignment, size_t len)
{
    if (!fails ("malloc"))
        return __libc_memalign (alignment, len);
    errno = ENOMEM;
    return NULL;
}
