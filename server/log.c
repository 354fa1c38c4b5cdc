/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Composing lines, and choosing where they go; log_output.c writes them.
 */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "log_output.h"

/* Of errors that clients cause, this many a second are shown. */
#define CLIENT_ERRORS_PER_SECOND 5U

bool log_verbose;

static const char *program = "nbdspecd";
static enum log_sink log_sink = LOG_TO_DEFAULT;
static bool starting = true; /* errors are for who started the server, too */
static struct log_output to_stderr = LOG_OUTPUT (STDERR_FILENO);
static struct log_output to_file = LOG_OUTPUT (-1);

static __thread const char *context_name;
static __thread unsigned context_connection;

static struct {
    pthread_mutex_t lock;
    time_t second;
    unsigned shown;
    unsigned long hidden;
} client_errors = { .lock = PTHREAD_MUTEX_INITIALIZER };

static unsigned long client_errors_hidden (void);
static void log_hidden (unsigned long n);

void
log_set_name (const char *name)
{
    program = name;
}

const char *
log_name (void)
{
    return program;
}

void
log_set_context (const char *name, unsigned connection)
{
    context_name = name;
    context_connection = connection;
}

/* At the end nothing may be lost: neither lines nor counts. */
static void
at_exit (void)
{
    log_hidden (client_errors_hidden ());
    log_flush ();
}

/* A fork, a script's among them, must not leave the child a lock that another
 * thread held. */
static void
before_fork (void)
{
    log_output_lock (&to_stderr);
    log_output_lock (&to_file);
}

static void
in_parent (void)
{
    log_output_unlock (&to_file);
    log_output_unlock (&to_stderr);
}

static void
in_child (void)
{
    log_output_forked (&to_file);
    log_output_forked (&to_stderr);
}

int
log_open (enum log_sink sink, const char *path)
{
    log_sink = sink;
    pthread_atfork (before_fork, in_parent, in_child);
    if (sink == LOG_TO_FILE) {
        int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY;

        to_file.fd = open (path, flags, 0644);
        if (to_file.fd == -1)
            return -1;
    }
    if (sink == LOG_TO_SYSLOG)
        openlog (program, LOG_PID, LOG_DAEMON);
    atexit (at_exit);
    return 0;
}

void
log_detach (void)
{
    int null;

    if (log_sink == LOG_TO_DEFAULT) {
        openlog (program, LOG_PID, LOG_DAEMON);
        log_sink = LOG_TO_SYSLOG;
    }
    if (log_verbose || log_sink == LOG_TO_STDERR)
        return;
    log_flush ();
    null = open ("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2 (null, STDERR_FILENO);
        close (null);
    }
}

void
log_started (void)
{
    starting = false;
}

void
log_flush (void)
{
    log_output_flush (&to_stderr);
    log_output_flush (&to_file);
}

/* Returns a malloc'ed line with its end, or NULL. */
static char *
compose (const char *kind, const char *fmt, va_list ap, size_t *len)
{
    AUTO_FREE char *text = NULL;
    char where[80] = "";
    char *line;
    size_t n;
    int r;

    if (vasprintf (&text, fmt, ap) == -1) {
        text = NULL;
        return NULL;
    }
    n = strlen (text);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    if (context_name != NULL && context_connection != 0)
        snprintf (where, sizeof where, "%s[%u]: ", context_name,
                  context_connection);
    else if (context_name != NULL)
        snprintf (where, sizeof where, "%s: ", context_name);
    r = asprintf (&line, "%s: %s%s: %.*s\n", program, where, kind, (int) n,
                  text);
    if (r == -1)
        return NULL;
    *len = (size_t) r;
    return line;
}

static void
show (const char *kind, int priority, const char *fmt, va_list ap)
{
    AUTO_FREE char *line = NULL;
    size_t len = 0;

    bool to_starter = starting && priority == LOG_ERR
                      && log_sink != LOG_TO_DEFAULT
                      && log_sink != LOG_TO_STDERR;

    if (log_sink == LOG_TO_NULL && !to_starter)
        return;
    line = compose (kind, fmt, ap, &len);
    if (line == NULL)
        return;
    if (to_starter)
        log_output_write (&to_stderr, line, len);
    switch (log_sink) {
    case LOG_TO_SYSLOG:
        /* syslog puts the program's name in front by itself. */
        syslog (priority, "%s", line + strlen (program) + 2);
        break;
    case LOG_TO_FILE:
        log_output_write (&to_file, line, len);
        break;
    case LOG_TO_DEFAULT:
    case LOG_TO_STDERR:
        log_output_write (&to_stderr, line, len);
        break;
    case LOG_TO_NULL:
        break;
    }
}

void
log_error (const char *fmt, ...)
{
    int saved = errno;
    va_list ap;

    va_start (ap, fmt);
    show ("error", LOG_ERR, fmt, ap);
    va_end (ap);
    errno = saved;
}

void
log_warning (const char *fmt, ...)
{
    int saved = errno;
    va_list ap;

    va_start (ap, fmt);
    show ("warning", LOG_WARNING, fmt, ap);
    va_end (ap);
    errno = saved;
}

/* What has been hidden so far; the count starts anew. */
static unsigned long
client_errors_hidden (void)
{
    SCOPED_LOCK (&client_errors.lock);
    unsigned long n = client_errors.hidden;

    client_errors.hidden = 0;
    return n;
}

static void
log_hidden (unsigned long n)
{
    if (n > 0)
        log_error ("%lu more errors caused by clients were not shown", n);
}

/* Counts an error.  *HIDDEN: how many were hidden in an earlier second. */
static bool
client_error_is_shown (unsigned long *hidden)
{
    struct timespec now;

    clock_gettime (CLOCK_MONOTONIC, &now);
    SCOPED_LOCK (&client_errors.lock);
    if (now.tv_sec != client_errors.second) {
        client_errors.second = now.tv_sec;
        client_errors.shown = 0;
        *hidden = client_errors.hidden;
        client_errors.hidden = 0;
    }
    if (client_errors.shown >= CLIENT_ERRORS_PER_SECOND) {
        client_errors.hidden++;
        return false;
    }
    client_errors.shown++;
    return true;
}

void
log_client_error (const char *fmt, ...)
{
    int saved = errno;
    unsigned long hidden = 0;
    va_list ap;

    if (client_error_is_shown (&hidden)) {
        log_hidden (hidden);
        errno = saved;
        va_start (ap, fmt);
        show ("error", LOG_ERR, fmt, ap);
        va_end (ap);
    }
    errno = saved;
}

void
log_debug_ (const char *fmt, ...)
{
    int saved = errno;
    AUTO_FREE char *line = NULL;
    size_t len = 0;
    va_list ap;

    va_start (ap, fmt);
    line = compose ("debug", fmt, ap, &len);
    va_end (ap);
    if (line != NULL)
        log_output_write (&to_stderr, line, len);
    errno = saved;
}

void
log_fatal (const char *fmt, ...)
{
    va_list ap;

    starting = true;
    va_start (ap, fmt);
    show ("error", LOG_ERR, fmt, ap);
    va_end (ap);
    exit (EXIT_FAILURE);
}
