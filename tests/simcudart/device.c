/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: devices, and which context a thread works in.
 *
 * A thread has a device number (0 until cudaSetDevice). Its context is made current by the
 * first call that needs one: the primary context of that device, retained once per process. A
 * context that the program made current through the driver API wins.
 *
 * Invariants: primary[i].context is set and reset under primary_lock; `resets` rises with every
 * cudaDeviceReset, so that threads which still have a destroyed context current notice and bind
 * the new one.
 */
#include "simcudart.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEVICES_MAX 64

static struct {
    CUcontext context; /* NULL: not retained */
} primary[DEVICES_MAX];

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint resets;

static _Thread_local int thread_device;
static _Thread_local CUcontext
    thread_context; /* the primary context that we made current here */
static _Thread_local unsigned int thread_resets;

cudaError_t simcudart_device(int ordinal, CUdevice *device)
{
    cudaError_t error = simcudart_load();
    int count = 0;

    if (error)
        return error;
    error = simcudart_result(DRIVER(cuDeviceGetCount)(&count));
    if (error)
        return error;
    if (count == 0)
        return cudaErrorNoDevice;
    if (ordinal < 0 || ordinal >= count || ordinal >= DEVICES_MAX)
        return cudaErrorInvalidDevice;
    return simcudart_result(DRIVER(cuDeviceGet)(device, ordinal));
}

static cudaError_t retain_context(int ordinal, CUcontext *context)
{
    CUdevice device;
    cudaError_t error = simcudart_device(ordinal, &device);

    if (error)
        return error;
    pthread_mutex_lock(&primary_lock);
    if (!primary[ordinal].context)
        error = simcudart_result(
            DRIVER(cuDevicePrimaryCtxRetain)(&primary[ordinal].context, device));
    if (error)
        primary[ordinal].context = NULL;
    *context = primary[ordinal].context;
    pthread_mutex_unlock(&primary_lock);
    return error;
}

cudaError_t simcudart_primary_context(int ordinal, CUcontext *context)
{
    return retain_context(ordinal, context);
}

static cudaError_t bind_primary(int ordinal)
{
    /* before retain_context(): a reset in between makes the next call bind again. Pairs with the
     * release in cudaDeviceReset. */
    unsigned int seen = atomic_load_explicit(&resets, memory_order_acquire);
    CUcontext context;
    cudaError_t error = retain_context(ordinal, &context);

    if (!error)
        error = simcudart_result(DRIVER(cuCtxSetCurrent)(context));
    if (error)
        return error;
    thread_context = context;
    thread_resets = seen;
    return cudaSuccess;
}

cudaError_t simcudart_enter(void)
{
    CUcontext current = NULL;
    cudaError_t error = simcudart_load();

    if (error)
        return error;
    error = simcudart_result(DRIVER(cuCtxGetCurrent)(&current));
    if (error)
        return error;
    if (current && (current != thread_context ||
                    thread_resets == atomic_load_explicit(&resets, memory_order_acquire)))
        return cudaSuccess;
    return bind_primary(thread_device);
}

cudaError_t simcudart_current_device(CUdevice *device)
{
    return simcudart_result(DRIVER(cuCtxGetDevice)(device));
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = count ? simcudart_load() : cudaErrorInvalidValue;

    if (count)
        *count = 0;
    if (!error)
        error = simcudart_result(DRIVER(cuDeviceGetCount)(count));
    if (!error && *count == 0)
        error = cudaErrorNoDevice;
    return simcudart_note(error);
}

cudaError_t cudaSetDevice(int ordinal)
{
    CUdevice device;
    cudaError_t error = simcudart_device(ordinal, &device);

    if (!error)
        error = bind_primary(ordinal);
    if (!error)
        thread_device = ordinal;
    return simcudart_note(error);
}

cudaError_t cudaInitDevice(int ordinal, unsigned int device_flags, unsigned int flags)
{
    CUdevice device;
    CUcontext context;
    cudaError_t error = simcudart_device(ordinal, &device);

    if (!error && (flags & cudaInitDeviceFlagsAreValid))
        error = simcudart_result(DRIVER(cuDevicePrimaryCtxSetFlags_v2)(device, device_flags));
    return simcudart_note(error ?: retain_context(ordinal, &context));
}

cudaError_t cudaGetDevice(int *ordinal)
{
    CUcontext current = NULL;
    cudaError_t error = ordinal ? simcudart_load() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER(cuCtxGetCurrent)(&current));
    if (!error && current) /* a CUdevice is the device's number */
        error = simcudart_result(DRIVER(cuCtxGetDevice)(ordinal));
    else if (!error)
        *ordinal = thread_device;
    return simcudart_note(error);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    CUdevice device;
    cudaError_t error = simcudart_device(thread_device, &device);

    return simcudart_note(
        error ?: simcudart_result(DRIVER(cuDevicePrimaryCtxSetFlags_v2)(device, flags)));
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    CUdevice device;
    int active = 0;
    cudaError_t error =
        flags ? simcudart_device(thread_device, &device) : cudaErrorInvalidValue;

    return simcudart_note(
        error ?: simcudart_result(DRIVER(cuDevicePrimaryCtxGetState)(device, flags, &active)));
}

cudaError_t cudaSetValidDevices(int *ordinals, int count)
{
    CUdevice device;
    cudaError_t error =
        count >= 0 && (ordinals || !count) ? cudaSuccess : cudaErrorInvalidValue;

    for (int i = 0; i < count && !error; i++)
        error = simcudart_device(ordinals[i], &device);
    if (!error && count > 0)
        thread_device = ordinals[0];
    return simcudart_note(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    return simcudart_note(simcudart_enter() ?: simcudart_result(DRIVER(cuCtxSynchronize)()));
}

cudaError_t cudaDeviceReset(void)
{
    CUdevice device;
    cudaError_t error = simcudart_device(thread_device, &device);

    if (error)
        return simcudart_note(error);
    pthread_mutex_lock(&primary_lock);
    if (primary[thread_device].context) {
        error = simcudart_result(DRIVER(cuDevicePrimaryCtxReset)(device));
        /* our reference went with the reset where the driver counts it so; then this is
         * refused, which is fine */
        (void)DRIVER(cuDevicePrimaryCtxRelease)(device);
        primary[thread_device].context = NULL;
        atomic_fetch_add_explicit(&resets, 1, memory_order_release);
        (void)DRIVER(cuCtxSetCurrent)(NULL);
        thread_context = NULL;
    }
    pthread_mutex_unlock(&primary_lock);
    return simcudart_note(error);
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuCtxGetLimit)(value, (CUlimit)(int)limit)));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuCtxSetLimit)((CUlimit)(int)limit, value)));
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
    CUfunc_cache driver_config = CU_FUNC_CACHE_PREFER_NONE;
    cudaError_t error = config ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER(cuCtxGetCacheConfig)(&driver_config));
    if (!error)
        *config = (enum cudaFuncCache)(int)driver_config;
    return simcudart_note(error);
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuCtxSetCacheConfig)((CUfunc_cache)(int)config)));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuCtxGetStreamPriorityRange)(least, greatest)));
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int ordinal, int peer)
{
    CUdevice a;
    CUdevice b;
    cudaError_t error = can ? simcudart_device(ordinal, &a) : cudaErrorInvalidValue;

    error = error ?: simcudart_device(peer, &b);
    return simcudart_note(error ?: simcudart_result(DRIVER(cuDeviceCanAccessPeer)(can, a, b)));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    CUcontext context;
    cudaError_t error = simcudart_enter();

    error = error ?: retain_context(peer, &context);
    return simcudart_note(
        error ?: simcudart_result(DRIVER(cuCtxEnablePeerAccess)(context, flags)));
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    CUcontext context;
    cudaError_t error = simcudart_enter();

    error = error ?: retain_context(peer, &context);
    return simcudart_note(error ?: simcudart_result(DRIVER(cuCtxDisablePeerAccess)(context)));
}

cudaError_t cudaCtxResetPersistingL2Cache(void)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuCtxResetPersistingL2Cache)()));
}
