/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing lines to a descriptor whose other end may be slow, without making
 * the caller wait, who may hold a lock.
 *
 * Normally a line is written at once.  Only when the descriptor does not take
 * it, it is queued, and a thread writes it.
 */
#ifndef NBDSPEC_LOG_OUTPUT_H
#define NBDSPEC_LOG_OUTPUT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct log_output {
    int fd;
    pthread_mutex_t lock;
    pthread_cond_t drained;
    struct queued_line *head, **tail;
    size_t queued;         /* bytes */
    unsigned long dropped; /* lines that found the queue full */
    bool draining;         /* the thread runs */
};

#define LOG_OUTPUT(descriptor)                                                \
    {                                                                         \
        .fd = (descriptor), .lock = PTHREAD_MUTEX_INITIALIZER,                \
        .drained = PTHREAD_COND_INITIALIZER                                   \
    }

/* Lines stay whole and in order. */
void log_output_write (struct log_output *o, const char *line, size_t len);

/* Around a fork.  The lines that the parent has queued, and the thread that
 * writes them, are the parent's. */
void log_output_lock (struct log_output *o);
void log_output_unlock (struct log_output *o);
void log_output_forked (struct log_output *o); /* instead of unlocking */

/* Waits until the queue is empty, for a few seconds at most. */
void log_output_flush (struct log_output *o);

#endif
