/* SPDX-License-Identifier: Apache-2.0
 *
 * procaddr.c: cuGetProcAddress in both signatures.
 *
 * The real resolver is called first. Its answer is replaced by our wrapper for (name, version,
 * flags), with no version newer than the driver's own. cuGetProcAddress itself is asked for at
 * 11030 (4 arguments) and at 12000 (5 arguments): the table has both, so each caller gets its own
 * signature. Source: CUDA driver API manual, "Driver Entry Point Access".
 */
#include <limits.h>

#include "runtime/base/past.h"
#include "runtime/base/stats.h"
#include "runtime/calls/hooks.h"
#include "runtime/calls/rows.h"
#include "runtime/calls/unknown.h"

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

/* The row for a request; some programs ask for a symbol (cuMemAlloc_v2) instead of a base name. */
static const struct gs_row *row_for(const char *symbol, int version, bool per_thread)
{
    const struct gs_row *row = gs_row_by_base(symbol, version, per_thread);

    return row == NULL && gs_row_by_base(symbol, INT_MAX, false) == NULL
               ? gs_row_by_symbol(symbol)
               : row;
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
    if (abi_is_known(symbol, version, flags, *function))
        row = row_for(symbol, version_there(version), per_thread);
    if (row == NULL && !gs_past_is_known(symbol)) {
        gs_unknown_given(symbol, version);
        if (!gs_runtime.config.strict)
            return CUDA_SUCCESS;
        *function = NULL;
        return CUDA_ERROR_NOT_FOUND;
    }
    if (row == NULL || row->wrapper == NULL)
        return CUDA_SUCCESS;
    *function = row->wrapper;
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
