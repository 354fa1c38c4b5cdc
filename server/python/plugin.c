/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The back end `python': its functions on the main thread, and the table.
 */
#include "bridge.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "../config.h"
#include "../log.h"

/* Values are the command line's bytes.  A path need not be UTF-8: what is not
 * becomes lone surrogates, as in sys.argv, and os.fsencode gives it back. */
static PyObject *
decode_value (const char *value)
{
    return PyUnicode_DecodeUTF8 (value, (Py_ssize_t) strlen (value),
                                 config.nbdkit_compat ? "strict"
                                                      : "surrogateescape");
}

/* The length of KEY in KEY=VALUE; 0 if WORD is not of this form. */
static size_t
key_length (const char *word)
{
    if (!isalpha ((unsigned char) word[0]))
        return 0;
    size_t n = strspn (word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "abcdefghijklmnopqrstuvwxyz0123456789._-");
    return word[n] == '=' ? n : 0;
}

static int
config_parameter (const char *word)
{
    size_t n = key_length (word);

    if (n == 0) {
        log_error ("%s: expected a parameter of the form key=value, not '%s'",
                   script_name, word);
        return -1;
    }

    SCOPED_GIL ();
    if (!callback_defined (CB_CONFIG)) {
        log_error ("%s: this script does not need command line configuration "
                   "(parameter '%s'): it has no function config",
                   script_name, word);
        return -1;
    }
    AUTO_REF PyObject *key = PyUnicode_DecodeASCII (word, (Py_ssize_t) n,
                                                    "strict");
    AUTO_REF PyObject *value = key ? decode_value (word + n + 1) : NULL;
    AUTO_REF PyObject *result = NULL;
    if (value)
        result = callback_call (
            CB_CONFIG, &(struct arguments) { .key = key, .value = value });
    if (!result) {
        exception_log (callback_name (CB_CONFIG));
        interp_flush_stdout ();
        return -1;
    }
    return 0;
}

/* The script's file from the first word: FILE or script=FILE; NULL: neither
 * (logged). */
static char *
script_word (char *word)
{
    size_t n = key_length (word);

    if (n == 0)
        return word;
    if (n == strlen ("script") && strncmp (word, "script", n) == 0)
        return word + n + 1;
    log_error ("python: the first parameter must be the script: "
               "script=FILE or FILE, not '%s'",
               word);
    return NULL;
}

static int
python_config (int argc, char **argv)
{
    log_set_context ("python", 0);
    if (argc < 1) {
        log_error ("python: expected the file name of a script after "
                   "'python'");
        return -1;
    }
    char *script = script_word (argv[0]);
    if (!script)
        return -1;
    argv[0] = script;
    if (interp_start (argc, argv) == -1)
        return -1;
    {
        SCOPED_GIL ();
        if (script_load (script) == -1) {
            interp_flush_stdout ();
            return -1;
        }
    }
    for (int i = 1; i < argc; i++) {
        if (config_parameter (argv[i]) == -1)
            return -1;
    }
    return 0;
}

static int
python_config_complete (void)
{
    return callback_run (CB_CONFIG_COMPLETE);
}

static int
python_thread_model (void)
{
    SCOPED_GIL ();
    if (!callback_defined (CB_THREAD_MODEL))
        return THREAD_MODEL_SERIALIZE_ALL_REQUESTS;
    AUTO_REF PyObject *result
        = callback_call (CB_THREAD_MODEL, &(struct arguments) { 0 });
    if (!result) {
        exception_log (callback_name (CB_THREAD_MODEL));
        interp_flush_stdout ();
        return -1;
    }
    int overflow = 0;
    long n = PyLong_Check (result)
                 ? PyLong_AsLongAndOverflow (result, &overflow)
                 : -1;
    if (n < 0 || n > INT_MAX || overflow) {
        AUTO_REF PyObject *repr = PyObject_Repr (result);
        PyErr_Clear ();
        AUTO_FREE char *text = repr ? text_of (repr) : NULL;
        callback_error (CB_THREAD_MODEL,
                        "returned %.200s; expected one of the constants "
                        "nbdkit.THREAD_MODEL_*, 0 to 3",
                        text ? text : "something else");
        return -1;
    }
    if (n > THREAD_MODEL_PARALLEL) {
        callback_warning (CB_THREAD_MODEL,
                          "returned %ld; expected one of the constants "
                          "nbdkit.THREAD_MODEL_*, 0 to 3; taken for 3",
                          n);
        n = THREAD_MODEL_PARALLEL;
    }
    return (int) n;
}

static int
python_get_ready (void)
{
    int r = callback_run (CB_GET_READY);
    SCOPED_GIL ();
    if (config.nbdkit_compat)
        interp_flush_stdout (); /* what is printed from here on is lost */
    else
        interp_redirect_stdout ();
    return r;
}

static int
python_after_fork (void)
{
    interp_after_fork ();
    int r = callback_run (CB_AFTER_FORK);
    SCOPED_GIL ();
    interp_watch_signals ();
    return r;
}

static void
python_cleanup (void)
{
    if (script_globals)
        callback_run (CB_CLEANUP);
}

static void
python_unload (void)
{
    if (script_globals && !config.nbdkit_compat)
        callback_run (CB_UNLOAD);
    interp_finish ();
}

static void
python_version (void)
{
    printf ("Python %s\n", PY_VERSION);
}

static void
python_dump (void)
{
    printf ("python_version=%s\n", PY_VERSION);
    printf ("python_executable=%s\n", PYTHON_EXECUTABLE);
    printf ("python_pep_384_abi_version=%d\n", PYTHON_ABI_VERSION);
    printf ("nbdkit_python_maximum_api_version=2\n");
    if (script_globals)
        printf ("python_api_version=%d\n", script_api_version);
    fflush (stdout);
    if (!script_globals || callback_run (CB_DUMP_PLUGIN) == -1)
        return;

    SCOPED_GIL ();
    interp_flush_stdout ();
}

static void
python_help (int argc, char **argv)
{
    printf ("python SCRIPT [KEY=VALUE...]\n"
            "\n"
            "Serves what SCRIPT, a plugin in Python, says; the parameters are "
            "for its\nfunction config.\n");
    fflush (stdout);
    if (argc < 1)
        return;
    char *script = script_word (argv[0]);
    if (!script || interp_start (argc, argv) == -1)
        return;

    SCOPED_GIL ();
    AUTO_REF PyObject *doc = script_docstring (script);
    AUTO_FREE char *text = doc ? text_of (doc) : NULL;
    if (text)
        printf ("\n%s:\n\n%s\n", script, text);
}

const struct backend backend_python = {
    .name = "python",
    .runs_scripts = true,
    .config = python_config,
    .config_complete = python_config_complete,
    .thread_model = python_thread_model,
    .get_ready = python_get_ready,
    .before_fork = interp_before_fork,
    .after_fork = python_after_fork,
    .wake_fd = interp_signal_fd,
    .wake = interp_run_signals,
    .cleanup = python_cleanup,
    .unload = python_unload,
    .dump = python_dump,
    .help = python_help,
    .version = python_version,

    .thread_start = interp_thread_start,
    .thread_end = interp_thread_end,
    .enter = interp_enter,
    .leave = interp_leave,

    .preconnect = python_preconnect,
    .list_exports = python_list_exports,
    .default_export = python_default_export,
    .open = python_open,
    .close = python_close,
    .export_description = python_export_description,
    .get_size = python_get_size,
    .block_size = python_block_size,
    .can = python_can,

    .pread = python_pread,
    .pwrite = python_pwrite,
    .flush = python_flush,
    .trim = python_trim,
    .zero = python_zero,
    .cache = python_cache,
    .extents = python_extents,
};
