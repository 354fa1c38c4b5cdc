/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The interpreter, and each thread's state in it.
 *
 * A thread of the server keeps one Python thread state for its life, so that
 * threading.local and contextvars last from one callback to the next; entering
 * and leaving is taking and giving up the GIL with that state, nothing more.
 */
#include "bridge.h"

#include <fcntl.h>
#include <pthread.h>

#include "../config.h"
#include "../log.h"

volatile bool interp_forked;

static __thread PyThreadState *thread_state;
static PyInterpreterState *interpreter;
static PyThreadState *main_state;
static PyObject *threading; /* the module */
static int signal_pipe[2] = { -1, -1 };
static bool fork_prepared;  /* interp_before_fork ran, the fork has not */

static void
note_fork (void)
{
    interp_forked = true;
}

/* Logs why a step of the configuration failed. */
static int
config_failed (PyStatus status, PyConfig *py)
{
    log_error ("python: cannot start the interpreter: %s",
               status.err_msg ? status.err_msg : "it asked to exit");
    PyConfig_Clear (py);
    return -1;
}

static int
initialize (int argc, char **argv)
{
    PyPreConfig pre;
    PyConfig py;
    PyStatus status;

    PyPreConfig_InitPythonConfig (&pre);
    pre.parse_argv = 0;
    status = Py_PreInitialize (&pre);
    PyConfig_InitPythonConfig (&py);
    if (PyStatus_Exception (status))
        return config_failed (status, &py);

    py.parse_argv = 0;
    /* SIGINT and SIGPIPE are the server's. */
    py.install_signal_handlers = 0;

    /* The prefix and with it the standard library must be those of the Python
     * that the bridge is linked with; left to itself the interpreter would
     * look for the python3 that is first on PATH. */
    status = PyConfig_SetBytesString (&py, &py.program_name,
                                      PYTHON_EXECUTABLE);
    if (!PyStatus_Exception (status))
        status = PyConfig_SetBytesString (&py, &py.executable,
                                          PYTHON_EXECUTABLE);
    if (!PyStatus_Exception (status) && !config.nbdkit_compat)
        status = PyConfig_SetBytesArgv (&py, argc, argv);
    if (!PyStatus_Exception (status))
        status = Py_InitializeFromConfig (&py);
    if (PyStatus_Exception (status))
        return config_failed (status, &py);
    PyConfig_Clear (&py);
    return 0;
}

/* Gives the calling thread's threading.Thread object the server's name. */
static void
name_thread (const char *name)
{
    AUTO_REF PyObject *thread
        = PyObject_CallMethod (threading, "current_thread", NULL);
    AUTO_REF PyObject *value = PyUnicode_DecodeFSDefault (name);

    if (!thread || !value
        || PyObject_SetAttrString (thread, "name", value) == -1)
        exception_log ("threading");
}

/* threading keeps an object for each thread that it did not start itself, by
 * the thread's number, which the next thread can have again.  Takes the calling
 * thread's out, or puts THREAD in; returns what was there. */
static PyObject *
exchange_thread (PyObject *thread)
{
    AUTO_REF PyObject *active = PyObject_GetAttrString (threading, "_active");
    AUTO_REF PyObject *ident
        = PyLong_FromUnsignedLong (PyThread_get_thread_ident ());
    PyObject *old = NULL;

    if (active && ident && PyDict_Check (active)) {
        old = PyDict_GetItemWithError (active, ident);
        Py_XINCREF (old);
        if (thread)
            PyDict_SetItem (active, ident, thread);
        else if (old)
            PyDict_DelItem (active, ident);
    }
    PyErr_Clear ();
    return old;
}

/* Around os.fork in a callback.  The forking thread is the child's main thread,
 * but some versions of threading take a thread that they did not start for one
 * only if they do not know it; else a child of multiprocessing fails. */
static __thread PyObject *forking_thread;

static PyObject *
before_script_fork (PyObject *self, PyObject *unused)
{
    (void) self;
    (void) unused;
    if (thread_state && thread_state != main_state)
        forking_thread = exchange_thread (NULL);
    Py_RETURN_NONE;
}

static PyObject *
after_script_fork (PyObject *self, PyObject *unused)
{
    (void) self;
    (void) unused;
    if (forking_thread) {
        AUTO_REF PyObject *none = exchange_thread (forking_thread);
        Py_CLEAR (forking_thread);
    }
    Py_RETURN_NONE;
}

static int
register_fork_functions (void)
{
    static PyMethodDef before
        = { "before_fork", before_script_fork, METH_NOARGS, NULL };
    static PyMethodDef after
        = { "after_fork", after_script_fork, METH_NOARGS, NULL };
    AUTO_REF PyObject *f = PyCFunction_New (&before, NULL);
    AUTO_REF PyObject *g = PyCFunction_New (&after, NULL);
    AUTO_REF PyObject *os = PyImport_ImportModule ("os");
    AUTO_REF PyObject *reg
        = os ? PyObject_GetAttrString (os, "register_at_fork") : NULL;
    AUTO_REF PyObject *args = PyTuple_New (0);
    AUTO_REF PyObject *kwargs
        = f && g ? Py_BuildValue ("{sOsO}", "before", f, "after_in_parent", g)
                 : NULL;
    AUTO_REF PyObject *done
        = reg && args && kwargs ? PyObject_Call (reg, args, kwargs) : NULL;
    return done ? 0 : -1;
}

int
interp_start (int argc, char **argv)
{
    if (PyImport_AppendInittab ("nbdkit", module_init) == -1) {
        log_error ("python: no memory");
        return -1;
    }
    if (initialize (argc, argv) == -1)
        return -1;

    main_state = PyThreadState_Get ();
    interpreter = PyThreadState_GetInterpreter (main_state);

    int r = 0;
    if (callbacks_init () == -1 || exporter_init () == -1
        /* Imported here so that threading's main thread is the main thread,
         * whichever thread a script imports it from. */
        || !(threading = PyImport_ImportModule ("threading"))
        || register_fork_functions () == -1) {
        exception_log ("start");
        r = -1;
    }
    else if (pthread_atfork (NULL, NULL, note_fork) != 0) {
        log_error ("python: no memory");
        r = -1;
    }
    if (config.single)
        interp_redirect_stdout ();
    thread_state = PyEval_SaveThread ();
    return r;
}

bool
interp_running (void)
{
    return interpreter != NULL;
}

/* signal.set_wakeup_fd: signals are written to FD.  The module behind `signal'
 * has it, too, and does not bring in the enumerations: 0.2 MiB. */
static void
set_wakeup_fd (int fd)
{
    AUTO_REF PyObject *module = PyImport_ImportModule ("_signal");
    AUTO_REF PyObject *old
        = module ? PyObject_CallMethod (module, "set_wakeup_fd", "i", fd)
                 : NULL;
    if (!old)
        exception_log ("signal");
}

void
interp_watch_signals (void)
{
    if (signal_pipe[0] == -1
        && pipe2 (signal_pipe, O_CLOEXEC | O_NONBLOCK) == -1) {
        log_error ("python: the script's signal handlers will not run: %m");
        return;
    }
    set_wakeup_fd (signal_pipe[1]);
}

void
interp_finish (void)
{
    if (!interpreter)
        return;
    interp_enter ();
    if (signal_pipe[0] != -1)
        set_wakeup_fd (-1);
    buffer_forget_owners (exporter_drop);
    callbacks_free ();
    errors_free ();
    Py_CLEAR (script_globals);
    Py_CLEAR (threading);
    interpreter = NULL;
    thread_state = NULL;
    if (Py_FinalizeEx () == -1)
        log_error ("python: output could not be written at the end");
}

void
interp_enter (void)
{
    PyEval_RestoreThread (thread_state);
}

void
interp_leave (void)
{
    thread_state = PyEval_SaveThread ();
}

void
interp_thread_start (const char *name)
{
    if (thread_state) /* the main thread, under -s */
        return;
    PyThreadState *state = PyThreadState_New (interpreter);
    if (!state)
        log_fatal ("python: no memory for a thread");
    thread_state = state;

    SCOPED_GIL ();
    name_thread (name);
}

void
interp_thread_end (void)
{
    if (!thread_state || thread_state == main_state)
        return;
    interp_enter ();
    Py_XDECREF (exchange_thread (NULL));
    PyThreadState_Clear (thread_state);
    thread_state = NULL;
    PyThreadState_DeleteCurrent ();
    call_state_reset ();
}

/* Around the fork of a daemon, so that os.register_at_fork's functions run.
 * The GIL stays with the forking thread, as PyOS_BeforeFork wants it. */
int
interp_before_fork (void)
{
    if (fork_prepared) /* this is the child of another fork already */
        interp_after_fork ();
    interp_enter ();
    PyOS_BeforeFork ();
    fork_prepared = true;
    return 0;
}

void
interp_after_fork (void)
{
    if (fork_prepared) {
        fork_prepared = false;
        PyOS_AfterFork_Child ();
        interp_leave ();
    }
    /* This process is the server, although it may be a child. */
    interp_forked = false;
}

int
interp_signal_fd (void)
{
    return signal_pipe[0];
}

void
interp_run_signals (void)
{
    char some[64];

    while (read (signal_pipe[0], some, sizeof some) > 0)
        ;
    SCOPED_GIL ();
    if (PyErr_CheckSignals () == -1)
        exception_log ("signal handler");
}

void
interp_flush_stdout (void)
{
    PyObject *out = PySys_GetObject ("stdout"); /* borrowed */

    if (!out || out == Py_None)
        return;
    Py_INCREF (out);
    AUTO_REF PyObject *flushed = PyObject_CallMethod (out, "flush", NULL);
    if (!flushed)
        PyErr_Clear ();
    Py_DECREF (out);
}

void
interp_redirect_stdout (void)
{
    PyObject *err = PySys_GetObject ("stderr"); /* borrowed */

    interp_flush_stdout ();
    if (err && PySys_SetObject ("stdout", err) == -1)
        PyErr_Clear ();
}
