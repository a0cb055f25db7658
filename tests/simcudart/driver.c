/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c: finds the driver and asks it for its functions.
 *
 * Does what NVIDIA's runtime was seen to do (shared/CUDART.md): dlopen("libcuda.so.1"), one
 * dlsym("cuGetProcAddress_v2"), then the look-ups of lookups.txt in that order, without a
 * symbolStatus. Nothing here links libcuda.
 *
 * Invariants: the slots are written once, under pthread_once, and only read afterwards. Any
 * thread may be the first.
 */
#include "simcudart.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct lookup {
    const char *name;
    int version;
    unsigned int flags;
};

static const struct lookup lookups[] = {
#include "lookups.inc"
};

struct row {
    const char *symbol, *base;
    int since;
    bool per_thread;
};

/* sizeof("" #variant): 1 without a variant, more with _ptsz or _ptds */
static const struct row rows[] = {
#define GS_API(symbol, base, since, variant, family, kind)                                     \
    {#symbol, #base, since, sizeof("" #variant) > 1},
#include "wrap/driver_api.def"
};

void *simcudart_slots[SIMCUDART_SLOT_COUNT];
typeof(&cuGetProcAddress_v2) simcudart_get_proc_address;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static cudaError_t load_status = cudaErrorInsufficientDriver;

/* Stands in for a function that the driver does not have. Callers pass more arguments than it
 * reads, which the calling conventions of x86-64 and aarch64 allow. */
static CUresult fail_missing(void)
{
    return (CUresult)(int)cudaErrorCallRequiresNewerDriver;
}

/* The first row whose symbol is not below name: the rows are in strcmp order, and every symbol
 * starts with its base. */
static int first_row(const char *name)
{
    int low = 0;
    int high = SIMCUDART_SLOT_COUNT;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (strcmp(rows[middle].symbol, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int simcudart_slot_of(const char *name, int version, unsigned int flags)
{
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    size_t length = strlen(name);
    int best = -1;

    if (length == 0)
        return -1;
    for (int i = first_row(name);
         i < SIMCUDART_SLOT_COUNT && strncmp(rows[i].symbol, name, length) == 0; i++) {
        if (strcmp(rows[i].base, name) != 0 || rows[i].since > version ||
            (rows[i].per_thread && !per_thread))
            continue;
        if (best < 0 || rows[i].per_thread > rows[best].per_thread ||
            (rows[i].per_thread == rows[best].per_thread && rows[i].since > rows[best].since))
            best = i;
    }
    return best;
}

static void look_up(const struct lookup *lookup)
{
    void *address = NULL;
    CUresult result = simcudart_get_proc_address(lookup->name, &address, lookup->version,
                                                 lookup->flags, NULL);
    int slot = simcudart_slot_of(lookup->name, lookup->version, lookup->flags);

    if (result == CUDA_SUCCESS && address && slot >= 0)
        simcudart_slots[slot] = address;
    if (slot == SIMCUDART_SLOT_cuGetProcAddress_v2 && result == CUDA_SUCCESS && address)
        simcudart_get_proc_address = DRIVER(cuGetProcAddress_v2);
}

/* dlsym only: a driver whose one entry point has a symbol version and no default is asked for
 * that version instead. */
static void *entry_point(void *handle)
{
    void *address = dlsym(handle, "cuGetProcAddress_v2");

    return address ? address : dlvsym(handle, "cuGetProcAddress_v2", "libcuda.so.1");
}

static void load_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    int version = 0;

    if (!handle)
        return;
    void *address = entry_point(handle);

    if (!address) {
        dlclose(handle);
        return;
    }
    memcpy(&simcudart_get_proc_address, &address, sizeof(address));
    for (size_t i = 0; i < SIMCUDART_SLOT_COUNT; i++)
        simcudart_slots[i] = (void *)(uintptr_t)fail_missing;
    for (size_t i = 0; i < sizeof(lookups) / sizeof(lookups[0]); i++)
        look_up(&lookups[i]);
    load_status = simcudart_result(DRIVER(cuDriverGetVersion)(&version));
    /* any driver of this major release will do, older ones will not (minor version
     * compatibility) */
    if (!load_status && version < CUDART_VERSION / 1000 * 1000)
        load_status = cudaErrorInsufficientDriver;
    if (!load_status)
        load_status = simcudart_result(DRIVER(cuInit)(0));
}

cudaError_t simcudart_load(void)
{
    pthread_once(&load_once, load_driver);
    return load_status;
}
