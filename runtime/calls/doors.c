/* SPDX-License-Identifier: Apache-2.0
 *
 * doors.c: decides about dlsym and dlvsym of names that begin with "cu". doors_*.S passes the
 * others straight on, to libc's function or to that of an object before libc (others.h).
 *
 * Rule: the real function is called first. Its result is replaced only if it succeeded, the
 * result lies in libcuda, and no other object has a function of its own for that name. Any
 * thread; no locks; the only state is counters. dlerror() is left as libc set it.
 */
#include <dlfcn.h>

#include "runtime/calls/rows.h"
#include "runtime/base/others.h"
#include "runtime/base/past.h"
#include "runtime/base/stats.h"
#include "runtime/calls/unknown.h"

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
    return (struct decision){row->wrapper, 1};
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
