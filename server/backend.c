/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The back end in use, and the brackets that the thread model asks for.
 */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "backend.h"
#include "cleanup.h"

const struct backend *backend;
enum thread_model thread_model = THREAD_MODEL_PARALLEL;

static const struct backend *const all[] = {
    &backend_null,
    &backend_memory,
#ifndef NO_PYTHON
    &backend_python,
#endif
};

const struct backend *
backend_find (const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp (all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

/* A lock that is passed on in the order of asking.  A plain mutex lets the
 * thread that just released it have it again, and one busy connection would
 * starve the others. */
struct turn {
    pthread_cond_t cond;
    struct turn *next;
    int granted;
};
struct gate {
    pthread_mutex_t lock;
    int taken;
    struct turn *first, **last;
};

static struct gate requests = { PTHREAD_MUTEX_INITIALIZER, 0, NULL, NULL };
static struct gate connections = { PTHREAD_MUTEX_INITIALIZER, 0, NULL, NULL };

static void
gate_enter (struct gate *g)
{
    struct turn me = { PTHREAD_COND_INITIALIZER, NULL, 0 };
    SCOPED_LOCK (&g->lock);

    if (!g->taken) {
        g->taken = 1;
        return;
    }
    if (!g->first)
        g->last = &g->first;
    *g->last = &me;
    g->last = &me.next;
    while (!me.granted)
        pthread_cond_wait (&me.cond, &g->lock);
    pthread_cond_destroy (&me.cond);
}

static void
gate_leave (struct gate *g)
{
    SCOPED_LOCK (&g->lock);
    struct turn *next = g->first;

    if (!next) {
        g->taken = 0;
        return;
    }
    g->first = next->next;
    next->granted = 1;
    pthread_cond_signal (&next->cond);
}

void
backend_begin (void)
{
    if (thread_model <= THREAD_MODEL_SERIALIZE_ALL_REQUESTS)
        gate_enter (&requests);
    if (backend->enter)
        backend->enter ();
}

void
backend_end (void)
{
    if (backend->leave)
        backend->leave ();
    if (thread_model <= THREAD_MODEL_SERIALIZE_ALL_REQUESTS)
        gate_leave (&requests);
}

void
backend_connection_begin (void)
{
    if (thread_model == THREAD_MODEL_SERIALIZE_CONNECTIONS)
        gate_enter (&connections);
}

void
backend_connection_end (void)
{
    if (thread_model == THREAD_MODEL_SERIALIZE_CONNECTIONS)
        gate_leave (&connections);
}
