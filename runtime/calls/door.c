/* SPDX-License-Identifier: Apache-2.0
 *
 * door.c: the library in the driver's place (SONAME libcuda.so.1): finds the driver's own library
 * behind it, and the driver's functions that gpushare passes.
 *
 * State: the slots of pass_*.S, one for each name. Two threads that resolve at once write the same value. Any
 * thread.
 */
#include "runtime/calls/door.h"

#include <cuda.h>
#include <dlfcn.h>
#include <link.h>

#include "runtime/base/libc_symbols.h"

#define GS_PASS(symbol, base, since, variant, family) #symbol,
static const char *const names[] = {
#include "wrap/driver_api.def"
};

static CUresult answer_missing(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static const char *needed_path(void)
{
    static const char file[] = "/" GS_DOOR_REAL;
    const char *strings = NULL;

    for (const ElfW(Dyn) *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_STRTAB) /* relocated by glibc */
            strings = (const char *)entry->d_un.d_ptr;
    for (const ElfW(Dyn) *entry = _DYNAMIC; entry->d_tag != DT_NULL && strings != NULL;
         entry++) {
        const char *name = strings + entry->d_un.d_val;
        const size_t length = entry->d_tag == DT_NEEDED ? strlen(name) : 0;

        if (length >= sizeof file - 1 && strcmp(name + length - (sizeof file - 1), file) == 0)
            return name;
    }
    return NULL;
}

void *gpushare_door_driver(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const char *path = needed_path();

    return path != NULL ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
}

void *gs_door_resolve(size_t row, void **slots)
{
    void *function = NULL, *driver;

    gs_libc_symbols_init();
    driver = gpushare_door_driver();
    if (driver != NULL)
        function = gs_libc_dlsym(driver, names[row]);
    if (function == NULL)
        function = (void *)answer_missing;
    __atomic_store_n(&slots[row], function, __ATOMIC_RELAXED);
    return function;
}
