/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c: what nvcc's host code registers: fat binaries, kernels and variables.
 *
 * Registration happens in static constructors and touches no driver. A fat binary is loaded
 * (cuLibraryLoadData, once per process for all contexts) when the first of its kernels or
 * variables is asked for.
 *
 * Invariants: `table` maps the address of a host stub, of a host shadow variable, or a kernel
 * handle, to its entry; all of it is read and written under `lock`. Entries of an unloaded fat
 * binary stay as dead ones (module == NULL, no kernel) until their key is registered again.
 */
#include "simcudart.h"
#include "module.h"

#include <pthread.h>
#include <stdlib.h>

#define FATBIN_WRAPPER_MAGIC 0x466243b1u

/* What __fatDeviceText is: crt/host_runtime.h hands out its address, fatbinary_section.h has
 * the layout. */
struct fatbin_wrapper {
    uint32_t magic, version;
    const void *image;
    const void *prelinked;
};

/* The handle that nvcc's code gets is the address of its module. */
struct module {
    const struct fatbin_wrapper *wrapper;
    CUlibrary library; /* NULL: not loaded */
};

enum entry_kind { ENTRY_KERNEL, ENTRY_VARIABLE, ENTRY_MANAGED, ENTRY_HANDLE };

struct entry {
    const void *key; /* NULL: free */
    struct module *module;
    const char *name;
    CUkernel kernel; /* NULL: not asked for yet */
    enum entry_kind kind;
};

static struct {
    struct entry *entries;
    size_t used, size; /* size is a power of two, at most half of it is used */
} table;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The entry of key, or the free one where it belongs. */
static struct entry *find_in(struct entry *entries, size_t size, const void *key)
{
    size_t i = (size_t)(((uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (size - 1);

    while (entries[i].key && entries[i].key != key)
        i = (i + 1) & (size - 1);
    return &entries[i];
}

static struct entry *find_entry(const void *key)
{
    struct entry *entry = table.size ? find_in(table.entries, table.size, key) : NULL;

    return entry && entry->key ? entry : NULL;
}

static bool grow_table(void)
{
    size_t size = table.size ? table.size * 2 : 64;
    struct entry *entries = calloc(size, sizeof(*entries));

    if (!entries)
        return false;
    for (size_t i = 0; i < table.size; i++) {
        if (table.entries[i].key)
            *find_in(entries, size, table.entries[i].key) = table.entries[i];
    }
    free(table.entries);
    table.entries = entries;
    table.size = size;
    return true;
}

/* Under lock. NULL when there is no memory. */
static struct entry *insert_entry(const void *key)
{
    if (table.used * 2 >= table.size && !grow_table())
        return NULL;
    struct entry *entry = find_in(table.entries, table.size, key);

    if (!entry->key)
        table.used++;
    *entry = (struct entry){.key = key};
    return entry;
}

static void add_entry(void **handle, const void *key, const char *name, enum entry_kind kind)
{
    pthread_mutex_lock(&lock);
    struct entry *entry = handle && key ? insert_entry(key) : NULL;

    if (entry) {
        entry->module = (struct module *)handle;
        entry->name = name;
        entry->kind = kind;
    }
    pthread_mutex_unlock(&lock);
}

void **__cudaRegisterFatBinary(void *fatbin)
{
    struct module *module = calloc(1, sizeof(*module));

    if (module)
        module->wrapper = fatbin;
    return (void **)module;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    struct module *module = (struct module *)handle;

    if (!module)
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < table.size; i++) {
        if (table.entries[i].module != module)
            continue;
        /* the handle was given out: it dies with its library */
        struct entry *known =
            table.entries[i].kernel ? find_entry(table.entries[i].kernel) : NULL;

        if (known)
            known->kernel = NULL;
        table.entries[i].module = NULL;
        table.entries[i].kernel = NULL;
    }
    if (module->library) /* refused by a driver that is shutting down, which is as good */
        (void)DRIVER(cuLibraryUnload)(module->library);
    pthread_mutex_unlock(&lock);
    free(module);
}

void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function,
                            const char *name, int thread_limit, uint3 *thread_id,
                            uint3 *block_id, dim3 *block, dim3 *grid, int *warp_size)
{
    (void)device_function, (void)thread_limit, (void)thread_id, (void)block_id;
    (void)block, (void)grid, (void)warp_size;
    add_entry(handle, host_function, name, ENTRY_KERNEL);
}

void __cudaRegisterVar(void **handle, char *host_variable, char *device_address,
                       const char *name, int external, size_t size, int constant, int global)
{
    (void)device_address, (void)external, (void)size, (void)constant, (void)global;
    add_entry(handle, host_variable, name, ENTRY_VARIABLE);
}

void __cudaRegisterManagedVar(void **handle, void **host_pointer, char *device_address,
                              const char *name, int external, size_t size, int constant,
                              int global)
{
    (void)device_address, (void)external, (void)size, (void)constant, (void)global;
    add_entry(handle, host_pointer, name, ENTRY_MANAGED);
}

/* Under lock, with a context. A program may launch a kernel for the first time while it
 * captures a stream: the load is none of the capture's business, so it is done in relaxed mode.
 */
static cudaError_t load_module(struct module *module)
{
    if (module->library)
        return cudaSuccess;
    if (!module->wrapper || module->wrapper->magic != FATBIN_WRAPPER_MAGIC)
        return cudaErrorInvalidKernelImage;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool exchanged = DRIVER(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS;
    cudaError_t error = simcudart_result(DRIVER(cuLibraryLoadData)(
        &module->library, module->wrapper->image, NULL, NULL, 0, NULL, NULL, 0));

    if (error)
        module->library = NULL;
    if (exchanged)
        (void)DRIVER(cuThreadExchangeStreamCaptureMode)(&mode);
    return error;
}

/* Under lock. Puts the address of a managed variable where nvcc's host code reads it. */
static cudaError_t place_managed(const struct entry *entry, CUdeviceptr *address, size_t *size)
{
    cudaError_t error = load_module(entry->module);

    if (!error)
        error = simcudart_result(
            DRIVER(cuLibraryGetManaged)(address, size, entry->module->library, entry->name));
    if (!error)
        *(void **)(uintptr_t)entry->key = simcudart_pointer(*address);
    return error;
}

char __cudaInitModule(void **handle)
{
    cudaError_t error = handle ? simcudart_enter() : cudaErrorInvalidValue;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < table.size && !error; i++) {
        const struct entry *entry = &table.entries[i];
        CUdeviceptr address;
        size_t size;

        if (entry->module == (struct module *)handle && entry->kind == ENTRY_MANAGED)
            error = place_managed(entry, &address, &size);
    }
    pthread_mutex_unlock(&lock);
    simcudart_note(error);
    return error == cudaSuccess ? 1 : 0; /* asked again at the next access while it is 0 */
}

cudaError_t simcudart_know_kernel(CUkernel kernel)
{
    pthread_mutex_lock(&lock);
    struct entry *entry = insert_entry(kernel);

    if (entry) {
        entry->kernel = kernel;
        entry->kind = ENTRY_HANDLE;
    }
    pthread_mutex_unlock(&lock);
    return entry ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* Under lock. Loads what is behind a host stub. */
static cudaError_t resolve_function(const void *func, CUkernel *kernel)
{
    struct entry *entry = find_entry(func);

    if (!entry || entry->kind == ENTRY_VARIABLE || entry->kind == ENTRY_MANAGED ||
        !entry->module)
        return cudaErrorInvalidDeviceFunction;
    cudaError_t error = load_module(entry->module);

    if (!error)
        error = simcudart_result(
            DRIVER(cuLibraryGetKernel)(kernel, entry->module->library, entry->name));
    if (error)
        return error == cudaErrorSymbolNotFound ? cudaErrorInvalidDeviceFunction : error;
    entry->kernel = *kernel;
    struct entry *known = insert_entry(*kernel); /* entry may have moved */

    if (known) {
        known->kernel = *kernel;
        known->kind = ENTRY_HANDLE;
    }
    return known ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t simcudart_kernel(const void *func, CUkernel *kernel)
{
    cudaError_t error = cudaSuccess;

    if (!func)
        return cudaErrorInvalidDeviceFunction;
    pthread_mutex_lock(&lock);
    const struct entry *entry = find_entry(func);

    if (entry && entry->kernel)
        *kernel = entry->kernel;
    else
        error = resolve_function(func, kernel);
    pthread_mutex_unlock(&lock);
    return error;
}

/* Under lock. A managed variable is also known by the address that it got. */
static const struct entry *find_variable(const void *symbol)
{
    const struct entry *entry = find_entry(symbol);

    if (entry && entry->module &&
        (entry->kind == ENTRY_VARIABLE || entry->kind == ENTRY_MANAGED))
        return entry;
    for (size_t i = 0; i < table.size; i++) {
        entry = &table.entries[i];
        if (entry->key && entry->module && entry->kind == ENTRY_MANAGED &&
            *(void *const *)entry->key == symbol)
            return entry;
    }
    return NULL;
}

cudaError_t simcudart_symbol(const void *symbol, CUdeviceptr *address, size_t *size)
{
    cudaError_t error;

    if (!symbol)
        return cudaErrorInvalidSymbol;
    pthread_mutex_lock(&lock);
    const struct entry *entry = find_variable(symbol);

    if (!entry) {
        error = cudaErrorInvalidSymbol;
    } else if (entry->kind == ENTRY_MANAGED) {
        error = place_managed(entry, address, size);
    } else {
        error = load_module(entry->module);
        if (!error)
            error = simcudart_result(
                DRIVER(cuLibraryGetGlobal)(address, size, entry->module->library, entry->name));
    }
    pthread_mutex_unlock(&lock);
    return error == cudaErrorSymbolNotFound ? cudaErrorInvalidSymbol : error;
}
