/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The handshake: greeting and client flags, then the haggling over options;
 * or the oldstyle greeting, which leaves nothing to haggle over.
 *
 * Nothing is locked while the client is waited for.
 */
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "config.h"
#include "connection.h"
#include "log.h"
#include "options.h"
#include "wire.h"

#define OLDSTYLE_GREETING_SIZE 152

static int
send_bytes (struct connection *c, void *bytes, size_t len)
{
    struct iovec part = { .iov_base = bytes, .iov_len = len };

    return conn_send (c, &part, 1);
}

static int
oldstyle (struct connection *c)
{
    uint8_t greeting[OLDSTYLE_GREETING_SIZE] = { 0 };
    uint8_t *p = greeting;
    AUTO_FREE char *name = NULL;

    if (config.tls == TLS_REQUIRE) {
        log_client_error ("oldstyle has no TLS, which is required");
        return -1;
    }
    name = export_default_name (c);
    if (!name || export_open (c, name, &c->export) == -1)
        return -1;

    p = put_be64 (p, NBD_MAGIC);
    p = put_be64 (p, NBD_OLDSTYLE_MAGIC);
    p = put_be64 (p, c->export.size);
    /* Handshake flags, none of which exist here (HSF-05), then those of
     * transmission. */
    p = put_be16 (p, 0);
    put_be16 (p, export_flags (c, &c->export));
    if (send_bytes (c, greeting, sizeof greeting) == -1) {
        export_close (&c->export);
        return -1;
    }
    return 0;
}

static int
newstyle (struct connection *c)
{
    uint32_t offered =
        (NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES) & config.mask_handshake;
    uint8_t greeting[18], answer[4];
    uint32_t flags;

    put_be16 (put_be64 (put_be64 (greeting, NBD_MAGIC), NBD_OPTION_MAGIC),
              (uint16_t) offered); /* HS-07 */
    if (send_bytes (c, greeting, sizeof greeting) == -1
        || conn_recv (c, answer, sizeof answer) == -1)
        return -1;

    /* The client's flags have the numbers of those they answer. */
    flags = get_be32 (answer);
    if (flags & ~offered) { /* HS-09, HS-10 */
        log_client_error ("client flags %#x, but %#x were offered", flags,
                          offered);
        return -1;
    }
    c->fixed_newstyle = flags & NBD_FLAG_C_FIXED_NEWSTYLE;
    c->no_zeroes = flags & NBD_FLAG_C_NO_ZEROES;
    return options_run (c);
}

int
handshake (struct connection *c)
{
    return config.oldstyle ? oldstyle (c) : newstyle (c);
}
