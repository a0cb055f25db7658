/* SPDX-License-Identifier: Apache-2.0
 *
 * managed_memory.h: managed memory as the program makes, advises, prefetches and frees it. The
 * memory is the driver's; ranges (range/program_managed.h) count it and give it turns. Any
 * thread.
 */
#pragma once

#include "runtime/base/base.h"

/* True if the driver has managed memory there. */
static inline bool gs_managed_is(CUdeviceptr address)
{
    unsigned managed = 0;

    return gs_driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                           address) == CUDA_SUCCESS &&
           managed != 0;
}

/* The driver has made managed memory in the current context: it counts from now on, unless it is
 * too small to matter. lent: it is not freed by cuMemFree. library: it is a variable of this
 * library. */
void gs_managed_adopt(CUdeviceptr address, uint64_t bytes, bool lent, const void *library);

/* All of this memory is attached to the host or to one stream. It no longer counts; the
 * program's advice, past and future, is kept until the memory is attached to all streams again. */
void gs_managed_set_aside(CUdeviceptr base, uint64_t bytes);
void gs_managed_take_back(CUdeviceptr base, uint64_t bytes);

/* The memory at this address no longer counts, and stays where it is. False: it did not count. */
bool gs_managed_disown(CUdeviceptr address);

/* The same for all variables of a library or module. */
void gs_managed_disown_library(const void *library);

/* True if lent memory was ever adopted; else nothing needs to look for it. */
bool gs_managed_has_lent(void);

/* The program's advice, which the driver has accepted. at_host: its location is not a device. */
void gs_managed_advised(CUdeviceptr address, uint64_t bytes, CUmem_advise advice, bool at_host);

/* The program's prefetch, which the driver has accepted. */
void gs_managed_prefetched(CUdeviceptr address, uint64_t bytes, const CUmemLocation *location);

/* The program's last prefetch of that memory, if gpushare has moved it meanwhile; the location
 * has type CU_MEM_LOCATION_TYPE_INVALID if there was none for all of it. False: the driver
 * knows. */
bool gs_managed_last_prefetch(CUdeviceptr address, uint64_t bytes, CUmemLocation *location);

/* Whether all of it is read-mostly by the program's advice. False: ask the driver. */
bool gs_managed_read_mostly(CUdeviceptr address, uint64_t bytes, bool *read_mostly);
