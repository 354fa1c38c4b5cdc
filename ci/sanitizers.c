/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Defaults of the sanitizers, for builds with SANITIZE=: linked in, so that
 * they hold however the program is started.  A report ends the program by
 * SIGABRT, which no test can take for a refusal.  Memory that cannot be had is
 * no report: a plugin may ask for too much.  Libraries that tests preload, such
 * as the counter of syncs, may stand before the sanitizer's own.
 */
#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature (x)
#else
#define HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
const char *__asan_default_options (void);
const char *__lsan_default_options (void);
const char *__lsan_default_suppressions (void);

const char *
__asan_default_options (void)
{
    return "abort_on_error=1:detect_stack_use_after_return=1"
           ":allocator_may_return_null=1:verify_asan_link_order=0";
}

const char *
__lsan_default_options (void)
{
    return "print_suppressions=0";
}

/* Python keeps much to the end of the process and frees none of it then, nor
 * do its extension modules, which are never unloaded, and what they link to. */
const char *
__lsan_default_suppressions (void)
{
    return "leak:libpython\nleak:.cpython-3\nleak:libcrypto\n";
}
#endif

#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
const char *__tsan_default_options (void);

const char *
__tsan_default_options (void)
{
    return "abort_on_error=1:halt_on_error=1:second_deadlock_stack=1"
           ":allocator_may_return_null=1";
}
#endif

const char *__ubsan_default_options (void);

const char *
__ubsan_default_options (void)
{
    return "abort_on_error=1:print_stacktrace=1";
}
