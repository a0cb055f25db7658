/* SPDX-License-Identifier: Apache-2.0
 *
 * mappings.h: what the files of the program `mappings` share.
 */
#pragma once

#include "tests/runtime/check.h"

#define GRANULE (2 * MIB)

typedef CUmemGenericAllocationHandle handle_type;

/* For cuMemSetAccess(): device 0 reads and writes. */
extern const CUmemAccessDesc mappings_opened;

/* mappings_freed.c: copies with a shape, lists of copies, and nodes, all of freed memory. */
void mappings_case_freed(void);

/* mappings_multicast.c: tile pools; multicast objects, bound by handle and by address. */
void mappings_case_tiles(void);
void mappings_case_multicast(void);
void mappings_case_multicast_address(void);

/* mappings_newer.c: functions of CUDA 13.1 to 13.5. */
void mappings_case_newer_calls(void);
void mappings_case_multicast_newer(void);
void mappings_case_endpoint(void);

static inline handle_type create_memory(size_t bytes, bool exportable)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                     : CU_MEM_HANDLE_TYPE_NONE,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    handle_type handle = 0;

    OK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static inline CUdeviceptr reserve_addresses(size_t bytes)
{
    CUdeviceptr address = 0;

    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static inline void *as_pointer(CUdeviceptr address)
{
    return (void *)address; /* NOLINT(performance-no-int-to-ptr): it is one */
}
