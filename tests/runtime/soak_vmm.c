/* SPDX-License-Identifier: Apache-2.0
 *
 * soak_vmm.c: blocks of the program's own VMM memory for soak.c: made, moved to another address
 * with their contents, dropped; handles released early, retained by address, two kinds of
 * properties. Not in faulty runs: a step that failed half-way would have to be undone here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/runtime/random.h"
#include "tests/runtime/soak.h"

#define GRANULE ((size_t)2 << 20)

static void must_succeed(struct soak_thread *thread, CUresult result, const char *what)
{
    soak_ok(thread, result, what);
}

static void must_fail(struct soak_thread *thread, CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS)
        return;
    fprintf(stderr, "soak[%d] seed %llu: %s: was allowed\n", (int)getpid(),
            (unsigned long long)thread->config->seed, what);
    _exit(1);
}

static CUresult allow_access(const struct soak_thread *thread, const struct soak_block *block,
                             size_t size)
{
    const CUmemAccessDesc here = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)thread->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    return cuMemSetAccess(block->device, size, &here, 1);
}

/* now and then the handle goes while the mapping stays, as many programs do */
static void maybe_release(struct soak_thread *thread, struct soak_block *block)
{
    if (random_below(&thread->random, 3) != 0 || block->handle == 0)
        return;
    must_succeed(thread, cuMemRelease(block->handle), "cuMemRelease of a mapped handle");
    block->handle = 0;
}

/* What may be exported has to be on the card, where a program with overcommit may have other memory. */
static bool may_be_refused(const CUmemAllocationProp *prop)
{
    return prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
           getenv("GPUSHARE_OVERCOMMIT") != NULL;
}

bool soak_vmm_allocate(struct soak_thread *thread, struct soak_block *block, size_t bytes)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)thread->device}};
    const size_t size = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    CUresult created;

    if (random_below(&thread->random, 2) == 0)
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    must_succeed(thread, cuMemAddressReserve(&block->device, size, 0, 0, 0),
                 "cuMemAddressReserve");
    created = cuMemCreate(&block->handle, size, &prop, 0);
    if (created == CUDA_ERROR_OUT_OF_MEMORY && may_be_refused(&prop)) {
        must_succeed(thread, cuMemAddressFree(block->device, size), "cuMemAddressFree");
        return false;
    }
    must_succeed(thread, created, "cuMemCreate");
    must_succeed(thread, cuMemMap(block->device, size, 0, block->handle, 0), "cuMemMap");
    must_succeed(thread, allow_access(thread, block, size), "cuMemSetAccess");
    block->mapped = size;
    maybe_release(thread, block);
    return true;
}

void soak_vmm_free(struct soak_thread *thread, struct soak_block *block)
{
    must_succeed(thread, cuStreamSynchronize(thread->stream), "cuStreamSynchronize");
    must_fail(thread, cuMemFree(block->device), "cuMemFree of a mapping");
    must_fail(thread, cuMemAddressFree(block->device, block->mapped),
              "cuMemAddressFree of a mapping");
    must_succeed(thread, cuMemUnmap(block->device, block->mapped), "cuMemUnmap");
    if (block->handle != 0) {
        must_succeed(thread, cuMemRelease(block->handle), "cuMemRelease");
        must_fail(thread, cuMemRelease(block->handle), "cuMemRelease twice");
    }
    must_succeed(thread, cuMemAddressFree(block->device, block->mapped), "cuMemAddressFree");
}

void soak_vmm_move(struct soak_thread *thread, struct soak_block *block)
{
    const CUdeviceptr before = block->device;
    CUmemGenericAllocationHandle handle;

    must_succeed(thread, cuStreamSynchronize(thread->stream), "cuStreamSynchronize");
    if (block->handle == 0) {
        must_succeed(thread,
                     cuMemRetainAllocationHandle(&handle, (void *)(before + block->bytes - 1)),
                     "cuMemRetainAllocationHandle");
        block->handle = handle;
    }
    must_succeed(thread, cuMemUnmap(before, block->mapped), "cuMemUnmap");
    if (random_below(&thread->random, 2) == 0) { /* elsewhere */
        must_succeed(thread, cuMemAddressReserve(&block->device, block->mapped, 0, 0, 0),
                     "cuMemAddressReserve");
        must_succeed(thread, cuMemAddressFree(before, block->mapped), "cuMemAddressFree");
    }
    must_succeed(thread, cuMemMap(block->device, block->mapped, 0, block->handle, 0),
                 "cuMemMap again");
    must_succeed(thread, allow_access(thread, block, block->mapped), "cuMemSetAccess again");
    maybe_release(thread, block);
}
