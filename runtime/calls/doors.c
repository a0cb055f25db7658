/* SPDX-License-Identifier: Apache-2.0
 *
 * doors.c: decides about dlsym and dlvsym of names that begin with "cu". doors_*.S passes the
 * others straight on, to libc's function or to that of an object before libc (others.h).
 *
 * Rule: the real function is called first. Its result is replaced only if it succeeded, the
 * result lies in libcuda, and no other object has a function of its own for that name. Any
 * thread; no locks; the only state is counters. dlerror() is left as libc set it.
 */
#include "runtime/base/others.h"
#include "runtime/base/past.h"
#include "runtime/base/stats.h"
#include "runtime/calls/hooks.h"
#include "runtime/calls/rows.h"
#include "runtime/range/range.h"

#include <dlfcn.h>
#include <limits.h>

/* The wrapper of each row, NULL for GS_ACTION_PASS. Here and not in the rows: two of them are below, and
 * look there. Each has exactly the prototype of its function (hooks.h). */
#define GS_PASS(...)        NULL,
#define GS_API(symbol, ...) (void *)__wrap_##symbol,
static void *const wrappers[GS_ROW_COUNT] = {
#include "wrap/driver_api.def"
};

/* Makes the program partly covered when it is given a driver function whose calls go past
 * gpushare. State: the names that were said; atomics only. */

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

/* The program is given such a function (version 0: in no form that has a number): it is partly
 * covered from now on, and the call returns when its memory is on the device. With GPUSHARE_STRICT
 * nothing happens but a message, since the caller refuses the function. Said once for each name.
 * Any thread, outside the gate. */
static void gs_unknown_given(const char *symbol, int version)
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

/* The same for a function of another copy of the driver. */
static void gs_unknown_copy(const char *symbol)
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

/* Returned in two registers; doors_*.S reads them. */
struct decision {
    void *result;
    uintptr_t decided; /* 0: calls the next one (others.h) with the caller's arguments and
                          return address */
};

struct decision gs_door_dlsym(void *handle, const char *name, void *unused, void *caller);
struct decision gs_door_dlvsym(void *handle, const char *name, const char *version,
                               void *caller);

static const struct decision leave_it = {NULL, 0};

/* True if another library's dlsym, behind us, has a function of its own, or none, for a name for
 * which libc has found this door. It is then called again in the caller's name. */
static bool is_anothers(void *other, void *found)
{
    return other != found &&
           (other == NULL || (!gs_driver_is_wrapper(other) && !gs_driver_owns(other)));
}

/* from libc's answer for a name that we cover to the program's */
static struct decision substitute_symbol(const struct gs_row *row, void *found,
                                         const char *name, void *caller)
{
    if (found == NULL)
        return leave_it; /* libc is called again in the caller's name and sets dlerror() */
    if (gs_driver_is_wrapper(found)) {
        /* found in the global scope, where we come before libcuda: only valid if there is a
         * libcuda */
        if (gs_driver_present()) {
            gs_stats_routed((unsigned)(row - gs_rows), caller, true);
            return (struct decision){found, 1};
        }
        return (struct decision){gs_libc_dlsym(RTLD_NEXT, name), 1};
    }
    if (!gs_driver_owns(found)) {
        gs_stats_escaped();
        if (gs_driver_is_copy(found))
            gs_unknown_copy(name);
        return (struct decision){found, 1};
    }
    if (gs_driver_owns(caller))
        return (struct decision){found, 1}; /* the driver looks up its own function */
    gs_stats_routed((unsigned)(row - gs_rows), caller, true);
    return (struct decision){wrappers[row - gs_rows], 1};
}

/* A name that the table does not have may be a function of a newer driver. */
static struct decision look_beyond_table(void *found, const char *name, void *caller)
{
    if (name[2] < 'A' || name[2] > 'Z' || found == NULL || !gs_driver_owns(found) ||
        gs_driver_owns(caller) || gs_past_is_known(name))
        return leave_it;
    gs_unknown_given(name, 0);
    if (!gs_runtime.config.strict)
        return leave_it;
    return (struct decision){gs_libc_dlsym(RTLD_NEXT, "gpushare_refuses"), 1}; /* dlerror() */
}

struct decision gs_door_dlsym(void *handle, const char *name, void *unused, void *caller)
{
    const struct gs_row *row = gs_row_by_symbol(name);
    gs_dlsym_fn *next;
    void *found;

    (void)unused;
    if (row == NULL && handle != RTLD_NEXT && !gs_runtime.config.disabled &&
        gs_others_dlsym() == gs_libc_dlsym)
        return look_beyond_table(gs_libc_dlsym(handle, name), name, caller);
    if (row == NULL || row->action == GS_ACTION_PASS || handle == RTLD_NEXT ||
        gs_runtime.config.disabled) {
        if (row != NULL && handle != RTLD_NEXT && !gs_runtime.config.disabled)
            gs_stats_routed((unsigned)(row - gs_rows), caller, false);
        return leave_it;
    }
    next = gs_others_dlsym();
    found = gs_libc_dlsym(handle, name);
    if (next != gs_libc_dlsym && is_anothers(next(handle, name), found))
        return leave_it;
    return substitute_symbol(row, found, name, caller);
}

struct decision gs_door_dlvsym(void *handle, const char *name, const char *version,
                               void *caller)
{
    const struct gs_row *row = gs_row_by_symbol(name);
    gs_dlvsym_fn *next;
    void *found;

    if (row == NULL || row->action == GS_ACTION_PASS || handle == RTLD_NEXT ||
        gs_runtime.config.disabled)
        return leave_it;
    next = gs_others_dlvsym();
    found = gs_libc_dlvsym(handle, name, version);
    if (next != gs_libc_dlvsym && is_anothers(next(handle, name, version), found))
        return leave_it;
    return substitute_symbol(row, found, name, caller);
}

/* CuGetProcAddress in both signatures. The real resolver is called first. Its answer is replaced
 * by our wrapper for (name, version, flags), with no version newer than the driver's own.
 * cuGetProcAddress itself is asked for at 11030 (4 arguments) and at 12000 (5 arguments): the
 * table has both, so each caller gets its own signature. Source: CUDA driver API manual, "Driver
 * Entry Point Access". */

#define OLDEST_VERSION 1000

/* The version at which the row for a request is looked up: the request's or the driver's,
 * whichever is older. A runtime of 12.2 asks a driver of 12.0 for 12.2's form of a function, and
 * gets the newest form that the driver has. */
static int version_there(int version)
{
    static _Atomic(int)
        driver_version; /* 0: not asked yet; relaxed: each thread finds the same */
    int there = atomic_load_explicit(&driver_version, memory_order_relaxed);

    if (there == 0 &&
        (gs_driver.cuDriverGetVersion(&there) != CUDA_SUCCESS || there < OLDEST_VERSION))
        return version; /* no answer: as new as the request */
    atomic_store_explicit(&driver_version, there, memory_order_relaxed);
    return version < there ? version : there;
}

/* A driver newer than the table may answer with an ABI that we do not know. It is known if the
 * newest version that the table knows gives the same address. */
static bool abi_is_known(const char *symbol, int version, cuuint64_t flags, const void *found)
{
    void *at_table = NULL;

    if (version <= GS_TABLE_VERSION)
        return true;
    if (gs_driver.cuGetProcAddress_v2(symbol, &at_table, GS_TABLE_VERSION, flags, NULL) !=
        CUDA_SUCCESS)
        return false;
    return at_table == found;
}

/* `result` is the driver's. */
static CUresult replace_function(CUresult result, const char *symbol, void **function,
                                 int version, cuuint64_t flags, void *caller)
{
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const struct gs_row *row = NULL;

    gs_stats_lookup();
    if (result != CUDA_SUCCESS)
        return result;
    if (symbol == NULL || function == NULL || *function == NULL || gs_runtime.config.disabled ||
        *symbol == '\0')
        return CUDA_SUCCESS;
    if (!gs_driver_owns(*function)) {
        gs_stats_escaped();
        return CUDA_SUCCESS;
    }
    if (abi_is_known(symbol, version, flags, *function)) {
        row = gs_row_by_base(symbol, version_there(version), per_thread);
        /* some programs ask for a symbol (cuMemAlloc_v2) instead of a base name */
        if (row == NULL && gs_row_by_base(symbol, INT_MAX, false) == NULL)
            row = gs_row_by_symbol(symbol);
    }
    if (row == NULL && !gs_past_is_known(symbol)) {
        gs_unknown_given(symbol, version);
        if (!gs_runtime.config.strict)
            return CUDA_SUCCESS;
        *function = NULL;
        return CUDA_ERROR_NOT_FOUND;
    }
    if (row == NULL || row->action == GS_ACTION_PASS)
        return CUDA_SUCCESS;
    *function = wrappers[row - gs_rows];
    gs_stats_routed((unsigned)(row - gs_rows), caller, true);
    return CUDA_SUCCESS;
}

CUresult __wrap_cuGetProcAddress(const char *symbol, void **pfn, int driverVersion,
                                 cuuint64_t flags)
{
    if (!gs_driver_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    return replace_function(gs_driver.cuGetProcAddress(symbol, pfn, driverVersion, flags),
                            symbol, pfn, driverVersion, flags, __builtin_return_address(0));
}

CUresult __wrap_cuGetProcAddress_v2(const char *symbol, void **pfn, int driverVersion,
                                    cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *symbolStatus)
{
    CUresult found, result;

    if (!gs_driver_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    found = gs_driver.cuGetProcAddress_v2(symbol, pfn, driverVersion, flags, symbolStatus);
    result =
        replace_function(found, symbol, pfn, driverVersion, flags, __builtin_return_address(0));
    if (found == CUDA_SUCCESS && result != CUDA_SUCCESS && symbolStatus != NULL)
        *symbolStatus = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return result;
}
