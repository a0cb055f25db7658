/* SPDX-License-Identifier: Apache-2.0
 *
 * mapping.h: the program's mappings of its own VMM memory (virtual.h), and the address space that
 * it has reserved for them.
 *
 * For handles and addresses that are not ours, a function with *ours sets it to false and does
 * nothing.
 */
#pragma once

#include "runtime/base/base.h"

CUresult gs_virtual_map(CUdeviceptr address, uint64_t bytes, uint64_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags,
                        bool *ours);

/* Also unmaps mappings of the driver's own beside ours. */
CUresult gs_virtual_unmap(CUdeviceptr address, uint64_t bytes, bool *ours);
CUresult gs_virtual_set_access(CUdeviceptr address, uint64_t bytes,
                               const CUmemAccessDesc *access, size_t count, bool *ours);
CUresult gs_virtual_get_access(CUdeviceptr address, const CUmemLocation *location,
                               unsigned long long *flags, bool *ours);

/* The program has reserved address space. */
void gs_reserved_add(CUdeviceptr address, uint64_t bytes);

/* The program frees reserved address space: refused while a mapping of ours lies in it, and if
 * it belongs to memory that we gave; else the driver decides. */
CUresult gs_reserved_free(CUdeviceptr address, uint64_t bytes);

/* The reservation of the program's that an address is in; false: none that we know. */
bool gs_reserved_find(CUdeviceptr address, CUdeviceptr *base, uint64_t *bytes);
