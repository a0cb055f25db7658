/* SPDX-License-Identifier: Apache-2.0
 *
 * simcudart.h: what the parts of our small CUDA runtime share. None of it is visible to
 * programs.
 *
 * Files in the list SIMCUDART_TWICE of CMakeLists.txt are compiled a second time with
 * SIMCUDART_PER_THREAD: that gives the functions that `nvcc --default-stream per-thread` calls
 * (cudaMemcpyAsync_ptsz, ...). SIMCUDART_PTSZ(name) is the name of the public function in this
 * compilation, DRIVER_PTSZ(name) the driver function that belongs to it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#pragma GCC visibility push(hidden)

/* One slot per function that libcuda exports; only those of lookups.txt are ever filled. */
enum simcudart_slot {
#define GS_API(symbol, base, since, variant, family, kind) SIMCUDART_SLOT_##symbol,
#include "wrap/driver_api.def"
    SIMCUDART_SLOT_COUNT,
};

/* Filled once by simcudart_load(), read-only afterwards. A name that the driver did not have
 * holds a function that returns cudaErrorCallRequiresNewerDriver. */
extern void *simcudart_slots[SIMCUDART_SLOT_COUNT];

#define DRIVER(symbol) ((typeof(&(symbol)))simcudart_slots[SIMCUDART_SLOT_##symbol])

#ifdef SIMCUDART_PER_THREAD
#define SIMCUDART_PTSZ(name) name##_ptsz
#define SIMCUDART_PTDS(name) name##_ptds
#define DRIVER_PTSZ(symbol)  ((typeof(&(symbol)))simcudart_slots[SIMCUDART_SLOT_##symbol##_ptsz])
#define DRIVER_PTDS(symbol)  ((typeof(&(symbol)))simcudart_slots[SIMCUDART_SLOT_##symbol##_ptds])
#else
#define SIMCUDART_PTSZ(name) name
#define SIMCUDART_PTDS(name) name
#define DRIVER_PTSZ(symbol)  DRIVER(symbol)
#define DRIVER_PTDS(symbol)  DRIVER(symbol)
#endif

/* driver.c */

/* Loads the driver and looks its functions up, once per process; later calls return the same
 * answer. cudaErrorInsufficientDriver: no libcuda.so.1, or one without cuGetProcAddress_v2, or
 * older than this runtime. */
cudaError_t simcudart_load(void);

/* The driver's cuGetProcAddress_v2, as it gave it itself; valid after simcudart_load()
 * succeeded. */
extern typeof(&cuGetProcAddress_v2) simcudart_get_proc_address;

/* The row of the table that (name, version, flags) asks for: the newest ABI that is not newer
 * than version, per-thread variant if flags say so and there is one. -1 when the table has
 * none. */
int simcudart_slot_of(const char *name, int version, unsigned int flags);

/* error.c */

/* Keeps error as the calling thread's last error, unless it is cudaSuccess or
 * cudaErrorNotReady, and returns it. */
cudaError_t simcudart_note(cudaError_t error);

/* CUresult and cudaError_t agree in every number that the driver returns. */
static inline cudaError_t simcudart_result(CUresult result)
{
    return (cudaError_t)(int)result;
}

/* device.c */

/* Makes sure that the driver is loaded and the calling thread has a current context: the one
 * that the program made current itself, else the primary context of the thread's device, which
 * is created if need be. */
cudaError_t simcudart_enter(void);

/* The driver's handle of device number ordinal. cudaErrorInvalidDevice when there is none. */
cudaError_t simcudart_device(int ordinal, CUdevice *device);

/* The device of the calling thread's current context; simcudart_enter() first. */
cudaError_t simcudart_current_device(CUdevice *device);

/* The primary context of a device, created if need be. */
cudaError_t simcudart_primary_context(int ordinal, CUcontext *context);

/* module.c */

/* The driver's kernel for what a program passes as `func`: the address of a host stub that nvcc
 * registered, or a kernel handle that this runtime gave out. Loads the module on first use.
 * cudaErrorInvalidDeviceFunction for anything else. */
cudaError_t simcudart_kernel(const void *func, CUkernel *kernel);

/* Remembers a kernel handle that was given to the program, so that simcudart_kernel() knows it.
 */
cudaError_t simcudart_know_kernel(CUkernel kernel);

/* Address and size (bytes) of a __device__, __constant__ or __managed__ variable in the current
 * context, from the address of its host shadow. cudaErrorInvalidSymbol when it is none. */
cudaError_t simcudart_symbol(const void *symbol, CUdeviceptr *address, size_t *size);

/* copy_params.c */

/* How a copy's pointers are to be read, from its direction. cudaErrorInvalidMemcpyDirection for
 * a direction out of range. */
cudaError_t simcudart_memory_types(enum cudaMemcpyKind kind, CUmemorytype *dst,
                                   CUmemorytype *src);
cudaError_t simcudart_copy_3d(const struct cudaMemcpy3DParms *params, CUDA_MEMCPY3D *copy);
cudaError_t simcudart_copy_3d_peer(const struct cudaMemcpy3DPeerParms *params,
                                   CUDA_MEMCPY3D_PEER *copy);
/* Bytes per element of an array. */
cudaError_t simcudart_element_size(CUarray array, size_t *size);

/* The same launch for the driver: attributes are its own, under other names (driver_types.h).
 * The shared memory must fit 32 bits. */
static inline CUlaunchConfig simcudart_launch_config(const cudaLaunchConfig_t *config)
{
    return (CUlaunchConfig){.gridDimX = config->gridDim.x,
                            .gridDimY = config->gridDim.y,
                            .gridDimZ = config->gridDim.z,
                            .blockDimX = config->blockDim.x,
                            .blockDimY = config->blockDim.y,
                            .blockDimZ = config->blockDim.z,
                            .sharedMemBytes = (unsigned int)config->dynamicSmemBytes,
                            .hStream = config->stream,
                            .attrs = (CUlaunchAttribute *)config->attrs,
                            .numAttrs = config->numAttrs};
}

static inline CUdeviceptr simcudart_address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static inline void *simcudart_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* An opaque handle that the runtime calls const and the driver does not. */
static inline CUarray simcudart_array(const struct cudaArray *array)
{
    return (CUarray)(uintptr_t)array;
}

#pragma GCC visibility pop
