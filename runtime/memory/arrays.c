/* SPDX-License-Identifier: Apache-2.0
 *
 * arrays.c: the sizes of the program's arrays. If an array ends with its context, no call shows
 * it; the array counts until the driver uses its handle again.
 *
 * State: the list of arrays, under gs_memory_lock; the sum of each device is read without it.
 */
#include "runtime/memory/arrays.h"

static struct array {
    struct array *next;
    const void *handle;
    struct gs_device *device;
    uint64_t bytes;
} * arrays GS_ZERO_IN_CHILD;

static uint64_t format_bytes(CUarray_format format)
{
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default: /* 8 bits, and compressed formats, which take about as much */
        return 1;
    }
}

static uint64_t at_least_one(uint64_t value)
{
    return value != 0 ? value : 1;
}

uint64_t gs_arrays_bytes(const CUDA_ARRAY3D_DESCRIPTOR_v2 *shape, unsigned levels)
{
    const uint64_t element = format_bytes(shape->Format) * at_least_one(shape->NumChannels);
    const bool layered = (shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    uint64_t sum = 0;

    for (unsigned i = 0; i < levels && i < 32; i++)
        sum += element * at_least_one(shape->Width >> i) * at_least_one(shape->Height >> i) *
               at_least_one(layered ? shape->Depth : shape->Depth >> i);
    return sum;
}

/* Under the lock: takes the array out of the list; NULL: it is not there. */
static struct array *take_array(const void *handle)
{
    for (struct array **at = &arrays, *array; (array = *at) != NULL; at = &array->next)
        if (array->handle == handle) {
            *at = array->next;
            atomic_fetch_sub_explicit(&array->device->arrays, array->bytes,
                                      memory_order_relaxed);
            return array;
        }
    return NULL;
}

void gs_arrays_made(const void *handle, uint64_t bytes)
{
    struct gs_device *device = gs_device_current();
    struct array *array = device != NULL ? malloc(sizeof *array) : NULL;

    if (array == NULL)
        return;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    free(take_array(handle)); /* its context has ended */
    *array = (struct array){arrays, handle, device, bytes};
    arrays = array;
    atomic_fetch_add_explicit(&device->arrays, bytes, memory_order_relaxed);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_worker_wake();
}

void gs_arrays_ended(const void *handle)
{
    struct array *array = GS_WITH_MEMORY(take_array(handle));

    if (array == NULL)
        return;
    free(array);
    gs_worker_wake();
}
