/* SPDX-License-Identifier: Apache-2.0
 *
 * bad_input_freed.c: the cases of bad_input.c about memory that was freed: freed again in
 * another way, and used.
 */
#include "tests/gpu/bad_input.h"

#include <stdio.h>

/* Crashes inside some drivers: each has a case of its own. */
static void free_twice(size_t bytes, int by_async, int free_by_async, int again_by_async)
{
    CUdeviceptr p = 0;

    show("allocate", by_async ? allocate_async(&p, bytes) : allocate(&p, bytes));
    show("free", free_by_async ? release_async(p) : release(p));
    show("synchronize", CALL(cuStreamSynchronize, cuStreamSynchronize_v2000)(stream));
    show("again", again_by_async ? release_async(p) : release(p));
}

static void async_async_async(void)
{
    free_twice(5 * MIB, 1, 1, 1);
}
static void async_async_sync(void)
{
    free_twice(5 * MIB, 1, 1, 0);
}
static void async_sync_sync(void)
{
    free_twice(5 * MIB, 1, 0, 0);
}
static void async_sync_async(void)
{
    free_twice(5 * MIB, 1, 0, 1);
}
static void sync_async_sync(void)
{
    free_twice(5 * MIB, 0, 1, 0);
}
static void sync_sync_async(void)
{
    free_twice(5 * MIB, 0, 0, 1);
}

static CUresult use_memory(unsigned how, CUdeviceptr p)
{
    switch (how) {
    case 0:
        return set(p, 256);
    case 1:
        return CALL(cuMemsetD32_v2, cuMemsetD32_v3020)(p, 7, 64);
    case 2:
        return CALL(cuMemcpyHtoD_v2, cuMemcpyHtoD_v3020)(p, host, 256);
    case 3:
        return CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(host, p, 256);
    case 4:
        return CALL(cuMemcpyDtoD_v2, cuMemcpyDtoD_v3020)(p, kept, 256);
    case 5:
        return CALL(cuMemcpyDtoD_v2, cuMemcpyDtoD_v3020)(kept, p, 256);
    case 6:
        return CALL(cuMemsetD8Async, cuMemsetD8Async_v3020)(p, 7, 256, stream);
    case 7:
        return CALL(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v3020)(p, host, 256, stream);
    default:
        return CALL(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v3020)(host, p, 256, stream);
    }
}
#define USES 9

/* every use of memory that was allocated and freed in one way; an error that stays shows in the
 * rest */
static void use_freed(size_t bytes, int by_async)
{
    CUdeviceptr p = 0;
    char name[32];

    show("allocate", by_async ? allocate_async(&p, bytes) : allocate(&p, bytes));
    show("synchronize", CALL(cuStreamSynchronize, cuStreamSynchronize_v2000)(stream));
    show("use before", use_memory(0, p)); /* it is known as in use then */
    show("free", by_async ? release_async(p) : release(p));
    show("synchronize", CALL(cuStreamSynchronize, cuStreamSynchronize_v2000)(stream));
    for (unsigned how = 0; how < USES; how++) {
        snprintf(name, sizeof name, "use %u", how);
        show(name, use_memory(how, p));
        show("synchronize", CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)());
    }
}

static void use_freed_small(void)
{
    use_freed(1000, 0);
}
static void use_freed_middle(void)
{
    use_freed(5 * MIB, 0);
}
static void use_freed_large(void)
{
    use_freed(70 * MIB, 0);
}
static void use_freed_small_async(void)
{
    use_freed(1000, 1);
}
static void use_freed_middle_async(void)
{
    use_freed(5 * MIB, 1);
}
static void use_freed_large_async(void)
{
    use_freed(70 * MIB, 1);
}

const struct bad_case freed_cases[] = {
    {"async_async_async", async_async_async},
    {"async_async_sync", async_async_sync},
    {"async_sync_sync", async_sync_sync},
    {"async_sync_async", async_sync_async},
    {"sync_async_sync", sync_async_sync},
    {"sync_sync_async", sync_sync_async},
    {"use_freed_small", use_freed_small},
    {"use_freed_middle", use_freed_middle},
    {"use_freed_large", use_freed_large},
    {"use_freed_small_async", use_freed_small_async},
    {"use_freed_middle_async", use_freed_middle_async},
    {"use_freed_large_async", use_freed_large_async},
    {NULL, NULL},
};
