/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmdline_values.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cleanup.h"
#include "log.h"

uint32_t
parse_number (const char *what, const char *text, uint32_t max)
{
    char *end;
    unsigned long n;

    errno = 0;
    n = strtoul (text, &end, 0);
    if (!isdigit ((unsigned char) text[0]) || *end != '\0' || errno != 0
        || n > max)
        log_fatal ("%s: '%s': expected a number from 0 to %lu", what, text,
                   (unsigned long) max);
    return (uint32_t) n;
}

unsigned
parse_seconds (const char *what, const char *text)
{
    char *end;
    unsigned long n;

    errno = 0;
    n = strtoul (text, &end, 10);
    if (strcmp (end, "ms") == 0) {
        n = n / 1000 + (n % 1000 != 0);
        end += 2;
    } else if (strcmp (end, "s") == 0)
        end++;
    if (!isdigit ((unsigned char) text[0]) || *end != '\0' || errno != 0
        || n > INT_MAX / 1000)
        log_fatal ("%s: '%s': expected seconds, as in 30, 30s or 500ms", what,
                   text);
    return (unsigned) n;
}

char *
absolute_path (const char *what, const char *path)
{
    char *result;

    if (path[0] == '\0')
        log_fatal ("%s: empty file name", what);
    if (path[0] == '/') {
        result = strdup (path);
    } else {
        AUTO_FREE char *cwd = getcwd (NULL, 0);

        if (cwd == NULL || asprintf (&result, "%s/%s", cwd, path) == -1)
            result = NULL;
    }
    if (result == NULL)
        log_fatal ("%s: %s: %m", what, path);
    return result;
}

static bool
is_one_of (const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcasecmp (text, *words) == 0)
            return true;
    }
    return false;
}

enum tls_mode
parse_tls (const char *text)
{
    static const char *const always[] = { "require", "required", "force",
                                          NULL };
    static const char *const yes[] = {
        "on", "yes", "y", "true", "t", "1", NULL
    };
    static const char *const no[] = {
        "off", "no", "n", "false", "f", "0", NULL
    };

    if (is_one_of (text, always))
        return TLS_REQUIRE;
    if (is_one_of (text, yes))
        return TLS_ON;
    if (!is_one_of (text, no))
        log_fatal ("--tls: '%s': expected off, on or require", text);
    return TLS_OFF;
}

enum python_buffer
parse_python_buffer (const char *text)
{
    if (strcmp (text, "memoryview") == 0)
        return BUFFER_MEMORYVIEW;
    if (strcmp (text, "bytearray") == 0)
        return BUFFER_BYTEARRAY;
    if (strcmp (text, "bytes") != 0)
        log_fatal ("--python-buffer: '%s': expected memoryview, bytearray or "
                   "bytes",
                   text);
    return BUFFER_BYTES;
}
