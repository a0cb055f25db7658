/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime.c: the beginning and the end of the library in a process, and its forked children.
 *
 * The constructor runs before that of every other object (-z initfirst). It only reads the
 * environment, and prepares what would be slow once there are threads; no thread, no connection
 * and no driver before the program makes a context. A copy of the library that is not the first
 * in its process does nothing at all (others.h). A forked child starts fresh: no client, a closed
 * gate, no memory.
 */
#include "runtime/base/others.h"
#include "runtime/base/stats.h"
#include "runtime/client/client.h"
#include "runtime/client/connect.h"
#include "runtime/client/reconcile.h"
#include "runtime/gate/gate.h"
#include "runtime/memory/openings.h"
#include "runtime/range/handover.h"
#include "runtime/range/host_file.h"

static void start_fresh_in_child(void)
{
    gs_gate_after_fork();
    gs_handover_in_child();
    gs_shares_after_fork();
    gs_openings_after_fork();
    gs_host_file_after_fork();
    gs_devices_after_fork();
    gs_reconcile_after_fork();
    gs_client_after_fork();
    gs_child_clear();
}

/* Of clang's and gcc's ThreadSanitizer, in a program that was built with it: its versions of libc's
 * functions, which stand before libc's, do not work before this. */
extern void gs_tsan_init(void) __asm__("__tsan_init") __attribute__((weak));

/* -z initfirst: this runs even before libc's own constructor, which sets environ (glibc
 * csu/init-first.c); constructors get the environment as their third argument. */
__attribute__((constructor)) static void begin_process(int argc, char **argv,
                                                       char **environment)
{
    const bool starts = environ == NULL; /* not loaded by a program that runs already */

    (void)argc;
    (void)argv;
    if (starts)
        environ = environment;
    if (gs_tsan_init != NULL)
        gs_tsan_init();
    gs_others_init();
    gs_log_init();
    gs_config_read(&gs_runtime.config, false);
    gs_gate_init(gs_client_wish);
    if (!gs_runtime.config.disabled) {
        gs_own_fd_prepare();
        if (!starts)
            gs_others_publish();
    }
    pthread_atfork(gs_handover_before_fork, gs_handover_after_fork, start_fresh_in_child);
}

__attribute__((destructor)) static void end_process(void)
{
    static bool said;

    if (gs_runtime.config.disabled)
        return;
    if (!gs_stats_any() && (gs_stats_any_escaped() || gs_driver_was_used())) {
        static const char text[] =
            "this program used CUDA, but none of its calls reached gpushare: it did "
            "not share the GPU";

        gs_say_once(&said, "%s (`gpusharectl doctor FILE` says whether its file is patched)",
                    text);
        gs_connect_last_word(GS_NOTE_UNROUTED, text);
    }
    if (gs_runtime.config.stats != NULL)
        gs_stats_write(gs_runtime.config.stats, gs_gate_calls());
}
