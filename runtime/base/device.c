/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: owns the devices and contexts of this process.
 *
 * Invariants: a device slot is complete before it is counted and never changes, except its UUID.
 * Context slots come in blocks, and are claimed and freed under the lock; the client thread reads
 * them while it is not parked. The lock (rank GS_LOCK_DEVICES) is never held across a driver
 * call.
 */
#include "runtime/base/device.h"
#include "runtime/base/base.h"
#include "common/memory_left.h"

#define BLOCK      64 /* contexts */
#define MAX_BLOCKS 1024
#define PUSHES     16

#define GROUP_SPARE (512ull << 20) /* a context with its modules, on an H100 */

pthread_mutex_t gs_memory_lock GS_ZERO_IN_CHILD;
static pthread_mutex_t lock GS_ZERO_IN_CHILD;
static struct gs_device devices[GS_MAX_DEVICES] GS_ZERO_IN_CHILD;
static _Atomic(unsigned) device_count
    GS_ZERO_IN_CHILD; /* release: pairs with the acquire of readers */
static struct gs_context first_contexts[BLOCK] GS_ZERO_IN_CHILD;
/* release, for blocks with free slots: pairs with the acquire of readers; blocks are never freed */
static struct gs_context *_Atomic blocks[MAX_BLOCKS] = {first_contexts};
static _Atomic(unsigned) greens;     /* green contexts ever noted; 0: nothing looks for them */
static _Atomic(uint32_t) generation; /* relaxed: a context ends in one thread at a time */

struct gs_device *gs_device_at(unsigned i)
{
    return i < atomic_load_explicit(&device_count, memory_order_acquire) ? &devices[i] : NULL;
}

struct gs_device *gs_device_find(CUdevice ordinal)
{
    struct gs_device *device;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        if (device->ordinal == ordinal)
            return device;
    return NULL;
}

/* Beyond the limit of its control groups the driver refuses memory, or the kernel ends the
 * process: the program sees a smaller device, and never asks for more. The limit at this moment
 * counts, less a context, which the driver takes from the same account. */
static void limit_by_groups(struct gs_device *device)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    char pci[32] = "";
    uint64_t most;

    if (gs_driver.cuDeviceGetPCIBusId(pci, (int)sizeof pci, device->ordinal) != CUDA_SUCCESS)
        return;
    most = gs_memory_device_max("", pci);
    if (most == UINT64_MAX)
        return;
    most -= most / 4 < GROUP_SPARE ? most / 4 : GROUP_SPARE;
    if (most < device->total)
        device->total = most;
}

static bool describe_device(CUdevice ordinal, struct gs_device *device)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
    size_t total = 0, granule = 0;
    CUuuid uuid;
    int vmm = 0, prefetch = 0, integrated = 0;

    memset(device, 0, sizeof *device);
    device->ordinal = ordinal;
    if (gs_driver.cuDeviceGetUuid_v2(&uuid, ordinal) != CUDA_SUCCESS &&
        gs_driver.cuDeviceGetUuid(&uuid, ordinal) != CUDA_SUCCESS)
        return false;
    memcpy(device->uuid, uuid.bytes, sizeof device->uuid);
    if (gs_driver.cuDeviceTotalMem_v2(&total, ordinal) != CUDA_SUCCESS)
        return false;
    if (gs_driver.cuDeviceGetName(device->name, (int)sizeof device->name, ordinal) !=
        CUDA_SUCCESS)
        device->name[0] = '\0';
    gs_driver.cuDeviceGetAttribute(
        &vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal);
    if (vmm != 0 && gs_driver.cuMemGetAllocationGranularity(
                        &granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        vmm = 0;
    gs_driver.cuDeviceGetAttribute(&prefetch, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                                   ordinal);
    gs_driver.cuDeviceGetAttribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, ordinal);
    device->integrated = integrated != 0;
    device->prefetches = prefetch != 0;
    device->managed = prefetch != 0 && (vmm == 0 || gs_runtime.config.managed_memory);
    atomic_init(&device->movable, (vmm != 0 || device->managed) && !device->integrated &&
                                      !gs_runtime.config.native_memory);
    device->granule = granule != 0 ? granule : 2u << 20;
    device->physical = total;
    device->total = total;
    if (gs_runtime.config.device_limit != 0 && gs_runtime.config.device_limit < total)
        device->total = gs_runtime.config.device_limit;
    limit_by_groups(device);
    atomic_init(&device->target.capacity, device->total);
    return true;
}

struct gs_device *gs_device_get(CUdevice ordinal)
{
    struct gs_device *device = gs_device_find(ordinal), described;
    bool is_new = false;
    unsigned count;

    if (device != NULL)
        return device;
    if (!describe_device(
            ordinal,
            &described)) /* outside the lock: two threads may both ask, and one entry stays */
        return NULL;
    gs_lock(&lock, GS_LOCK_DEVICES);
    device = gs_device_find(ordinal);
    count = atomic_load_explicit(&device_count, memory_order_relaxed);
    if (device == NULL && count < GS_MAX_DEVICES) {
        device = &devices[count];
        memcpy(device, &described, sizeof described);
        is_new = true;
        atomic_store_explicit(&device_count, count + 1, memory_order_release);
        gs_log("device %d (%s): %llu bytes%s", ordinal, device->name,
               (unsigned long long)device->total,
               !gs_device_is_movable(device) ? ", its memory is not moved"
               : device->managed             ? ", as managed memory"
                                             : "");
    }
    gs_unlock(&lock, GS_LOCK_DEVICES);
    if (is_new && described.integrated)
        gs_daemon_say(
            "memory not moved: this GPU has no memory of its own, it uses the host's");
    return device;
}

struct gs_device *gs_device_at_location(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? gs_device_get(location->id) : NULL;
}

uint64_t gs_device_room(const struct gs_device *device)
{
    return atomic_load_explicit(&device->target.capacity, memory_order_relaxed) +
           atomic_load_explicit(&device->moving.kept, memory_order_relaxed);
}

struct gs_device *gs_device_current(void)
{
    CUdevice ordinal;

    return gs_driver.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS ? gs_device_get(ordinal) : NULL;
}

/* under the lock: adds a block of free slots, and returns the first of them */
static struct gs_context *more_contexts(void)
{
    struct gs_context *block;

    for (unsigned i = 0; i < MAX_BLOCKS; i++) {
        if (atomic_load_explicit(&blocks[i], memory_order_relaxed) != NULL)
            continue;
        block = calloc(BLOCK, sizeof *block);
        atomic_store_explicit(&blocks[i], block, memory_order_release);
        return block;
    }
    return NULL;
}

static bool add_context(CUcontext handle, CUcontext home, struct gs_device *device)
{
    struct gs_context *slot = NULL, *at;

    GS_HOLD(&lock, GS_LOCK_DEVICES);
    for (unsigned i = 0; (at = gs_context_at(i)) != NULL && at->handle != handle; i++)
        if (at->handle == NULL && slot == NULL)
            slot = at;
    if (at == NULL && slot == NULL)
        slot = more_contexts();
    if (at == NULL && slot != NULL) {
        slot->device = device;
        slot->home = home;
        slot->hash = NULL;
        slot->kernel_attempts = 0;
        atomic_store_explicit(&slot->broken, false, memory_order_relaxed);
        atomic_store_explicit(&slot->suspect, false, memory_order_relaxed);
        atomic_store_explicit(&slot->handle, handle, memory_order_release);
    }
    return at != NULL || slot != NULL;
}

bool gs_context_add(CUcontext handle, struct gs_device *device)
{
    return add_context(handle, NULL, device);
}

bool gs_context_add_green(CUcontext handle, CUcontext home, struct gs_device *device)
{
    atomic_fetch_add_explicit(&greens, 1, memory_order_release);
    return add_context(handle, home, device);
}

struct gs_context *gs_context_find(CUcontext handle)
{
    struct gs_context *context;

    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++)
        if (handle != NULL &&
            atomic_load_explicit(&context->handle, memory_order_acquire) == handle)
            return context;
    return NULL;
}

_Atomic(bool) gs_any_suspect GS_ZERO_IN_CHILD;

/* True for results after which cuda.h wants the process ended, and for those that say that a
 * part of the device has gone. A wrong one among them costs one query. */
static bool may_be_final(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
        return true;
    default:
        return false;
    }
}

void gs_context_failed(CUcontext handle, CUresult result)
{
    struct gs_context *context;

    if (!may_be_final(result) ||
        (handle == NULL && gs_driver.cuCtxGetCurrent(&handle) != CUDA_SUCCESS) ||
        gs_context_find(handle) == NULL)
        return;
    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++)
        atomic_store_explicit(&context->suspect, true, memory_order_relaxed);
    atomic_store_explicit(&gs_any_suspect, true, memory_order_relaxed);
}

CUresult gs_context_ask(CUcontext handle)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* a capture goes on beside it */
    struct gs_context *context = gs_context_find(handle);
    CUcontext current = NULL;
    CUdeviceptr probe;
    CUresult result;
    bool pushed;

    if (context == NULL || !atomic_load_explicit(&context->suspect, memory_order_relaxed))
        return CUDA_SUCCESS;
    gs_driver.cuCtxGetCurrent(&current);
    pushed = current != handle && gs_context_push(handle) == CUDA_SUCCESS;
    if (current != handle && !pushed)
        return CUDA_SUCCESS; /* not known: the probe would ask another context */
    gs_driver.cuThreadExchangeStreamCaptureMode(&mode);
    result = gs_driver.cuMemAlloc_v2(&probe, 1);
    if (result == CUDA_SUCCESS) {
        gs_driver.cuMemFree_v2(probe);
        atomic_store_explicit(&context->suspect, false, memory_order_relaxed);
    }
    gs_driver.cuThreadExchangeStreamCaptureMode(&mode);
    if (pushed)
        gs_context_pop();
    return may_be_final(result) ? result : CUDA_SUCCESS;
}

CUresult gs_context_ask_current(void)
{
    CUcontext current = NULL;

    return gs_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL
               ? gs_context_ask(current)
               : CUDA_SUCCESS;
}

CUresult gs_context_refusal(void)
{
    CUcontext current = NULL;
    CUresult result = gs_driver.cuCtxGetCurrent(&current);

    if (result == CUDA_SUCCESS)
        result = current != NULL ? gs_context_check(current) : CUDA_ERROR_INVALID_CONTEXT;
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

CUcontext gs_context_home(CUcontext handle)
{
    const struct gs_context *context = NULL;

    if (atomic_load_explicit(&greens, memory_order_acquire) != 0)
        context = gs_context_find(handle);
    return context != NULL && context->home != NULL ? context->home : handle;
}

void gs_context_remove(CUcontext handle)
{
    struct gs_context *context;

    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
    GS_HOLD(&lock, GS_LOCK_DEVICES);
    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++)
        if (context->handle == handle || (context->handle != NULL && context->home == handle)) {
            free(context->mover); /* its streams ended with the context */
            context->mover = NULL;
            atomic_store_explicit(&context->handle, NULL, memory_order_release);
        }
}

CUresult gs_context_push(CUcontext handle)
{
    CUresult result = CUDA_ERROR_UNKNOWN;

    for (unsigned attempt = 0; attempt < PUSHES && result != CUDA_SUCCESS; attempt++)
        result = gs_driver.cuCtxPushCurrent_v2(handle);
    return result;
}

uint32_t gs_contexts_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

struct gs_context *gs_context_at(unsigned i)
{
    struct gs_context *block =
        i < BLOCK * MAX_BLOCKS ? atomic_load_explicit(&blocks[i / BLOCK], memory_order_acquire)
                               : NULL;

    return block != NULL ? &block[i % BLOCK] : NULL;
}

struct gs_context *gs_context_for(const struct gs_device *device)
{
    struct gs_context *context, *broken = NULL;

    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++) {
        if (atomic_load_explicit(&context->handle, memory_order_acquire) == NULL ||
            context->device != device || context->home != NULL)
            continue;
        if (!atomic_load_explicit(&context->broken, memory_order_relaxed))
            return context;
        broken = context;
    }
    return broken;
}

void gs_device_set_uuid(struct gs_device *device, const uint8_t uuid[16])
{
    memcpy(device->uuid, uuid, sizeof device->uuid);
}

void gs_devices_after_fork(void)
{
    for (unsigned i = 1; i < MAX_BLOCKS; i++) /* as with ranges: left to the parent */
        atomic_store_explicit(&blocks[i], NULL, memory_order_relaxed);
}
