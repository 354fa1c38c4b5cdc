/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The fuzzers' entry: an input is all that a client sends in one connection,
 * behind a first byte that says how the server is set up.  The engine runs as
 * in nbdspecd, with the memory back end, on the calling thread; its replies go
 * to nowhere.  Works for libFuzzer, AFL++ (afl-clang-fast -fsanitize=fuzzer)
 * and replay.c.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend.h"
#include "config.h"
#include "connection.h"
#include "log.h"
#include "quit.h"
#include "watch.h"

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

/* The first byte of an input. */
#define SETUP_READ_ONLY 1U
#define SETUP_OLDSTYLE 2U
#define SETUP_NO_STRUCTURED 4U
#define SETUP_NO_META 8U
#define SETUP_TLS_REQUIRED 16U

#define DISK_SIZE "65537" /* so that there are edges */

static void
die (const char *what)
{
    perror (what);
    abort ();
}

static void
set_up_once (void)
{
    char *words[] = { (char *) DISK_SIZE, NULL };

    config.threads = 1;
    config.mask_handshake = UINT32_MAX;
    log_open (LOG_TO_NULL, NULL);
    backend = &backend_memory;
    if (quit_init () == -1 || backend->config (1, words) == -1
        || backend->get_ready () == -1 || watch_start () == -1)
        die ("set-up");
}

static void
set_up (uint8_t how)
{
    static bool done;

    if (!done)
        set_up_once ();
    done = true;
    config.read_only = how & SETUP_READ_ONLY;
    config.oldstyle = how & SETUP_OLDSTYLE;
    config.no_structured_replies = how & SETUP_NO_STRUCTURED;
    config.no_meta_contexts = how & SETUP_NO_META;
    config.tls = how & SETUP_TLS_REQUIRED ? TLS_REQUIRE : TLS_OFF;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    int in, out;

    if (size == 0)
        return 0;
    set_up (data[0]);
    in = memfd_create ("input", MFD_CLOEXEC);
    out = open ("/dev/null", O_WRONLY | O_CLOEXEC);
    if (in == -1 || out == -1)
        die ("descriptors");
    if (write (in, data + 1, size - 1) != (ssize_t) (size - 1)
        || lseek (in, 0, SEEK_SET) == -1)
        die ("input");
    connection_run (in, out);
    return 0;
}
