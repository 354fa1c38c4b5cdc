/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The Python bridge's own header: what its files share.  docs/python.md shows
 * how they work together.
 *
 * Everything here needs the GIL unless it says otherwise.
 */
#ifndef NBDSPEC_BRIDGE_H
#define NBDSPEC_BRIDGE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "../backend.h"
#include "../cleanup.h"

#if PY_VERSION_HEX < 0x03090000
#error "Python 3.9 or newer is needed"
#endif

/* A reference that ends with its scope. */
static inline void
cleanup_ref (PyObject **p)
{
    Py_XDECREF (*p);
}
/* unused: that it is released is use enough, which clang does not see */
#define AUTO_REF CLEANUP (cleanup_ref) __attribute__ ((unused))

/* ------------------------------------------------- interp.c: interpreter */

/* Starts the interpreter on the calling (main) thread, with ARGV as sys.argv.
 * The GIL is not held afterwards.  -1: failed (logged). */
int interp_start (int argc, char **argv);
bool interp_running (void);

/* Ends it: waits for the script's threads, runs its atexit functions. */
void interp_finish (void);

/* For struct backend. */
void interp_thread_start (const char *name);
void interp_thread_end (void);
void interp_enter (void);
void interp_leave (void);
int interp_before_fork (void);
void interp_after_fork (void);

/* The script's signal handlers run on the main thread, which has no Python to
 * do once the server serves.  From interp_watch_signals on, a signal makes the
 * descriptor readable, and interp_run_signals runs the handlers. */
void interp_watch_signals (void);
int interp_signal_fd (void);
void interp_run_signals (void);

/* True in a process that the script made with os.fork. */
extern volatile bool interp_forked;

/* What a script prints after start-up, or at any time under -s, would be lost
 * or get into the client's stream: sys.stdout becomes sys.stderr. */
void interp_redirect_stdout (void);

/* What the script has printed so far reaches the file, or the terminal. */
void interp_flush_stdout (void);

/* The bracket for the main thread's start-up functions. */
static inline void
cleanup_leave (const bool *held)
{
    if (*held)
        interp_leave ();
}
static inline bool
scoped_enter (void)
{
    interp_enter ();
    return true;
}
#define SCOPED_GIL()                                                          \
    CLEANUP (cleanup_leave)                                                   \
    __attribute__ ((unused)) const bool gil_held = scoped_enter ()

/* ----------------------------------------------- script.c: the script file */

extern const char *script_name;   /* as typed; for messages */
extern PyObject *script_globals;  /* the dictionary of __main__ */
extern int script_api_version;    /* 1 or 2 */

/* Runs FILE as __main__ and checks what it must have.  -1 (logged). */
int script_load (const char *file);

/* The module docstring of FILE, found without running it; NULL if there is
 * none or FILE cannot be read or parsed. */
PyObject *script_docstring (const char *file);

/* ------------------------------------------ callbacks.c: calling the script */

enum callback {
    CB_CONFIG,
    CB_CONFIG_COMPLETE,
    CB_THREAD_MODEL,
    CB_GET_READY,
    CB_AFTER_FORK,
    CB_CLEANUP,
    CB_UNLOAD,
    CB_DUMP_PLUGIN,
    CB_PRECONNECT,
    CB_LIST_EXPORTS,
    CB_DEFAULT_EXPORT,
    CB_OPEN,
    CB_CLOSE,
    CB_EXPORT_DESCRIPTION,
    CB_GET_SIZE,
    CB_BLOCK_SIZE,
    CB_CAN_WRITE,
    CB_CAN_ZERO,
    CB_CAN_FAST_ZERO,
    CB_CAN_TRIM,
    CB_CAN_FUA,
    CB_CAN_FLUSH,
    CB_IS_ROTATIONAL,
    CB_CAN_MULTI_CONN,
    CB_CAN_CACHE,
    CB_CAN_EXTENTS,
    CB_PREAD,
    CB_PWRITE,
    CB_FLUSH,
    CB_TRIM,
    CB_ZERO,
    CB_CACHE,
    CB_EXTENTS,
    N_CALLBACKS
};

/* Everything that a callback can be given; each takes what the table says. */
struct arguments {
    PyObject *handle, *view, *key, *value;
    uint64_t count, offset;
    uint32_t flags;
    bool readonly, tls;
};

int callbacks_init (void);
void callbacks_free (void);
const char *callback_name (enum callback cb);

/* Whether the script has a callable of that name now. */
bool callback_defined (enum callback cb);

/* Calls it.  NULL: an exception is set. */
PyObject *callback_call (enum callback cb, const struct arguments *a);

/* Calls a function without result on the main thread, which does not hold the
 * GIL; does nothing if the script lacks it.  -1: it failed (logged). */
int callback_run (enum callback cb);

/* ----------------------------------------------------- errors.c: exceptions */

/* What the running callback said through the module; one for each thread. */
struct call_state {
    int error;                   /* nbdkit.set_error; 0: not called */
    char *text;                  /* nbdkit.error, or NULL */
    const struct handle *handle; /* of the connection, or NULL */
};
extern __thread struct call_state call_state;

/* Before a data callback. */
static inline void
call_state_reset (void)
{
    call_state.error = 0;
    if (__builtin_expect (call_state.text != NULL, 0)) {
        free (call_state.text);
        call_state.text = NULL;
    }
}

void errors_free (void);

/* Takes the exception that is set (there must be one), logs it with its
 * traceback as an error of WHAT, and forgets it. */
void exception_log (const char *what);

/* If it is a SyntaxError: the same, in one line where it is FILE's.  -1: it is
 * another exception, and still set. */
int exception_log_syntax (const char *file);

/* The same for a data callback.  Returns the errno value and sets
 * io->error_text as docs/nbdkit-compat.md says. */
int exception_to_errno (enum callback cb, struct io *io);

/* "SCRIPT: CALLBACK: error: ...", and "warning: ..." for what does no harm
 * here but is not what the author can have meant. */
void callback_error (enum callback cb, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));
void callback_warning (enum callback cb, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));

/* Strings for people: UTF-8, with no control characters but line ends and tabs,
 * whatever STR holds; NULL only when there is no memory.  malloc'ed. */
char *text_of (PyObject *str);

/* ----------------------------------------------------- exporter.c: buffers */

int exporter_init (void);

/* A memoryview of the first LEN bytes of B. */
PyObject *exporter_view (struct buffer *b, size_t len, bool readonly);

/* After the callback, when the bridge has dropped its view.  1: the script
 * still refers to B's memory, which is the script's now; B has other memory,
 * into which the first KEEP bytes were copied.  0: it does not.  -1: it does,
 * and there was no other memory (logged); B is only good for buffer_put. */
int exporter_finish (struct buffer *b, size_t keep, enum callback cb);

/* For buffer_forget_owners. */
void exporter_drop (void *owner);

/* ---------------------------------------- control.c, data.c: connections */

struct handle {
    PyObject *object; /* what open returned */
    char *name;       /* the export's name as the client gave it */
    bool tls;
    bool can_zero; /* once asked: can_fast_zero's default depends on it */
};

int python_preconnect (bool readonly);
int python_list_exports (bool readonly, bool tls, struct export_list *list);
char *python_default_export (bool readonly, bool tls);
int python_open (bool readonly, bool tls, const char *name, void **handle);
void python_close (void *handle);
char *python_export_description (void *handle);
int64_t python_get_size (void *handle);
int python_block_size (void *handle, uint32_t *minimum, uint32_t *preferred,
                       uint32_t *maximum);
int python_can (void *handle, enum capability what);

int python_pread (void *handle, struct io *io);
int python_pwrite (void *handle, struct io *io);
int python_flush (void *handle, struct io *io);
int python_trim (void *handle, struct io *io);
int python_zero (void *handle, struct io *io);
int python_cache (void *handle, struct io *io);
int python_extents (void *handle, struct io *io);

/* ------------------------------------ module.c: what `import nbdkit' gives */

PyObject *module_init (void);

/* module_parse.c, module_peer.c, module_debug.c: its methods by subject. */
PyObject *module_parse_size (PyObject *self, PyObject *args);
PyObject *module_parse_bool (PyObject *self, PyObject *args);
PyObject *module_parse_delay (PyObject *self, PyObject *args);
PyObject *module_parse_probability (PyObject *self, PyObject *args);
PyObject *module_read_password (PyObject *self, PyObject *args);

PyObject *module_export_name (PyObject *self, PyObject *args);
PyObject *module_is_tls (PyObject *self, PyObject *args);
PyObject *module_peer_pid (PyObject *self, PyObject *args);
PyObject *module_peer_uid (PyObject *self, PyObject *args);
PyObject *module_peer_gid (PyObject *self, PyObject *args);
PyObject *module_peer_security_context (PyObject *self, PyObject *args);
PyObject *module_peer_tls_dn (PyObject *self, PyObject *args);
PyObject *module_peer_tls_issuer_dn (PyObject *self, PyObject *args);
PyObject *module_nanosleep (PyObject *self, PyObject *args);
PyObject *module_disconnect (PyObject *self, PyObject *args);

PyObject *module_debug (PyObject *self, PyObject *args);
PyObject *module_error (PyObject *self, PyObject *args);
PyObject *module_name (PyObject *self, PyObject *args);
PyObject *module_timestamp (PyObject *self, PyObject *args);
PyObject *module_debug_hexdump (PyObject *self, PyObject *args);
PyObject *module_debug_hexdiff (PyObject *self, PyObject *args);

#endif
