/* SPDX-License-Identifier: BSD-3-Clause */
#include "uri.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "config.h"
#include "listen.h"

static bool
is_unreserved (char c, const char *also)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
           || (c >= '0' && c <= '9')
           || (c != '\0' && (strchr ("-._~", c) || strchr (also, c)));
}

static char *
percent_encode (const char *text, const char *also)
{
    char *result = malloc (3 * strlen (text) + 1);
    char *p = result;

    if (result == NULL)
        return NULL;
    for (; *text != '\0'; text++) {
        if (is_unreserved (*text, also))
            *p++ = *text;
        else
            p += sprintf (p, "%%%02X", (unsigned char) *text);
    }
    *p = '\0';
    return result;
}

char *
uri_make (void)
{
    const char *s = config.tls == TLS_REQUIRE ? "s" : "";
    AUTO_FREE char *name = percent_encode (config.export_name, "/");
    AUTO_FREE char *path = percent_encode (listen_path (), "/");
    const char *host = config.ip_addr != NULL ? config.ip_addr : "localhost";
    bool numeric_v6 = strchr (host, ':') != NULL;
    char *uri;
    int r;

    if (name == NULL || path == NULL)
        return NULL;
    if (path[0] != '\0')
        r = asprintf (&uri, "nbd%s+unix://%s%s?socket=%s", s,
                      name[0] != '\0' ? "/" : "", name, path);
    else if (config.vsock) /* 1: this machine, by the loopback transport */
        r = asprintf (&uri, "nbd%s+vsock://1:%s%s%s", s, listen_port (),
                      name[0] != '\0' ? "/" : "", name);
    else
        r = asprintf (&uri, "nbd%s://%s%s%s:%s%s%s", s, numeric_v6 ? "[" : "",
                      host, numeric_v6 ? "]" : "", listen_port (),
                      name[0] != '\0' ? "/" : "", name);
    return r == -1 ? NULL : uri;
}

char *
shell_quote (const char *text)
{
    char *result = malloc (4 * strlen (text) + 3);
    char *p = result;

    if (result == NULL)
        return NULL;
    *p++ = '\'';
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            p = stpcpy (p, "'\\''");
        else
            *p++ = *text;
    }
    *p++ = '\'';
    *p = '\0';
    return result;
}
