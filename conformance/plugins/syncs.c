/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loaded into a server ahead of the C library: counts what puts data on stable
 * storage.  The count is eight bytes at the start of the file $NBDSPEC_SYNCS.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static void
count (void)
{
    static _Atomic uint64_t *counter;
    const char *name = getenv ("NBDSPEC_SYNCS");
    void *p;
    int fd;

    if (!counter && name) {
        fd = open (name, O_RDWR | O_CLOEXEC);
        if (fd == -1)
            return;
        p = mmap (NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                  0);
        close (fd);
        if (p != MAP_FAILED)
            counter = p;
    }
    if (counter)
        ++*counter;
}

#define REAL(name) __typeof__ (&name) real = (__typeof__ (&name)) dlsym (RTLD_NEXT, #name)

int
fsync (int fd)
{
    REAL (fsync);

    count ();
    return real (fd);
}

int
fdatasync (int fd)
{
    REAL (fdatasync);

    count ();
    return real (fd);
}

int
msync (void *address, size_t length, int flags)
{
    REAL (msync);

    if (flags & MS_SYNC)
        count ();
    return real (address, length, flags);
}

ssize_t
pwritev2 (int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
    REAL (pwritev2);

    if (flags & (RWF_DSYNC | RWF_SYNC))
        count ();
    return real (fd, iov, n, offset, flags);
}

ssize_t
pwritev64v2 (int fd, const struct iovec *iov, int n, off64_t offset, int flags)
{
    REAL (pwritev64v2);

    if (flags & (RWF_DSYNC | RWF_SYNC))
        count ();
    return real (fd, iov, n, offset, flags);
}
