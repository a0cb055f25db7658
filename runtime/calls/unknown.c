/* SPDX-License-Identifier: Apache-2.0
 *
 * unknown.c: makes the program partly covered when it is given a driver function whose calls go
 * past gpushare. State: the names that were said; atomics only.
 */
#include "runtime/calls/unknown.h"
#include "runtime/base/past.h"
#include "runtime/range/range.h"

#define AWAIT_NS      1000000ull     /* between two looks */
#define AWAIT_MOST_NS 60000000000ull /* the turns of several programs; then calls may fail */

/* True the first time that a name is seen (FNV-1a; two names with the same hash count once,
 * which costs a log line). */
static bool is_new_name(const char *symbol)
{
    static _Atomic(uint32_t) seen[64]; /* relaxed: nothing else depends on it */
    uint32_t hash = 2166136261u, empty;

    for (; *symbol != '\0'; symbol++)
        hash = (hash ^ (unsigned char)*symbol) * 16777619u;
    for (unsigned i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        empty = 0;
        if (atomic_compare_exchange_strong(&seen[i], &empty, hash | 1))
            return true;
        if (empty == (hash | 1))
            return false;
    }
    return false;
}

/* Returns when the memory of a program that has become partly covered is on the device: what was
 * moved out before comes back, and stays. It does not wait at the gate: a suspended program's memory
 * comes back, but its gate stays closed. */
static void await_memory(void)
{
    const uint64_t until = gs_now() + AWAIT_MOST_NS;

    if (gs_device_at(0) == NULL || gs_worker_is_self())
        return;
    gs_worker_park(); /* it ends its step, and moves nothing out in the next */
    gs_worker_unpark();
    while (GS_ANY_DEVICE(gs_memory_accounts(device).missing != 0) && gs_now() < until)
        gs_pause(AWAIT_NS);
}

void gs_unknown_given(const char *symbol, int version)
{
    const bool refused = gs_runtime.config.strict;
    char text[GS_REMARK_BYTES], form[48] = "";

    atomic_fetch_add_explicit(&gs_runtime.uncovered, 1, memory_order_relaxed);
    if (version != 0)
        snprintf(form, sizeof form, " in the form of CUDA %d.%d", version / 1000,
                 version % 1000 / 10);
    snprintf(text, sizeof text, "%s%.64s%s, which this version of gpushare does not know: %s",
             refused ? "the program requested "
                     : "partly covered, memory not moved: the program requested ",
             symbol, form, refused ? "refused" : "update gpushare");
    if (is_new_name(symbol))
        gs_log("%s", text);
    if (refused)
        gs_daemon_say(text);
    else {
        gs_daemon_remark(text);
        await_memory(); /* the caller may call the function at once */
    }
}

void gs_unknown_copy(const char *symbol)
{
    char text[GS_REMARK_BYTES];

    snprintf(text, sizeof text,
             "partly covered, memory not moved: the program uses %.64s of a second libcuda.so",
             symbol);
    if (is_new_name(symbol))
        gs_log("%s", text);
    gs_daemon_remark(text);
    await_memory();
}

/* Is called by each object that the program loads, before the object's own code runs: crti.o, which
 * linkers put into every library, calls __gmon_start__ in its _init if there is such a function
 * (glibc sysdeps/x86_64/crti.S; it is meant for profilers).
 *
 * So an object whose calls go past gpushare is seen before it makes any. If memory of the program
 * has been moved out, the load returns when it is back. (An object without _init is seen by the
 * client thread, base/past.h.) Any thread, under the loader's lock. */
__attribute__((visibility("default"))) void __gmon_start__(void);

void __gmon_start__(void)
{
    if (gs_runtime.config.disabled || gs_device_at(0) == NULL)
        return;
    gs_past_look();
    if (atomic_load_explicit(&gs_runtime.partial, memory_order_acquire))
        await_memory();
}
