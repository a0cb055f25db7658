/* SPDX-License-Identifier: Apache-2.0
 *
 * past_library.c: a library that uses the driver, built in several ways: its functions are
 * imported (IMPORTS), looked up by dlsym (LOOKS_UP), asked of cuGetProcAddress (ASKS), or looked up
 * by names that stand in writable data (IN_DATA). No state but the driver's handle.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int past_alloc(unsigned long long *address, size_t bytes);
EXPORT int past_copy(void *to, unsigned long long from, size_t bytes);
EXPORT int past_given(const char *name, int version, void *to, unsigned long long from,
                      size_t bytes);

static void *driver(void)
{
    static void *handle;

    if (handle == NULL)
        handle = dlopen("libcuda.so.1", RTLD_NOW);
    return handle;
}

#if defined(IMPORTS)
#define FIND(name, version) ((void)driver, (__typeof__(&name))name)
#elif defined(LOOKS_UP)
#define FIND(name, version) ((__typeof__(&name))dlsym(driver(), NAME(name)))
#elif defined(IN_DATA)
static char names[][32] = {
    "cuInit",        "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2",
    "cuMemsetD8_v2", "cuMemcpyDtoH_v2",          "cuCtxSynchronize"};

static const char *name_of(const char *start, size_t length)
{
    size_t i = 0;

    while (strncmp(names[i], start, length) != 0)
        i++;
    return names[i];
}
#define FIND(name, version)                                                                    \
    ((__typeof__(&name))dlsym(driver(), name_of(NAME(name) + 0, sizeof NAME(name) - 1)))
#else
static void *ask(const char *name, int version)
{
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        (CUresult(*)(const char *, void **, int, cuuint64_t,
                     CUdriverProcAddressQueryResult *))dlsym(driver(), "cuGetProcAddress_v2");
    void *function = NULL;

    return get != NULL && get(name, &function, version, 0, NULL) == CUDA_SUCCESS ? function
                                                                                 : NULL;
}

/* cuMemAlloc of cuMemAlloc_v2 */
static const char *base_of(const char *name)
{
    static const char *const bases[] = {"cuMemAlloc", "cuMemsetD8", "cuMemcpyDtoH"};

    for (unsigned i = 0; i < 3; i++)
        if (strncmp(name, bases[i], strlen(bases[i])) == 0)
            return bases[i];
    return name;
}
#define FIND(name, version) ((__typeof__(&name))ask(base_of(NAME(name)), version))
#endif

/* cuda.h makes cuMemAlloc cuMemAlloc_v2 */
#define NAME(name)      NAME_TEXT(name)
#define NAME_TEXT(name) #name
#define BASE(name)      #name

int past_alloc(unsigned long long *address, size_t bytes)
{
    CUdeviceptr made = 0;
    CUcontext context;
    int result = (int)FIND(cuInit, 2000)(0);

    result = result ? result : (int)FIND(cuDevicePrimaryCtxRetain, 7000)(&context, 0);
    result = result ? result : (int)FIND(cuCtxSetCurrent, 4000)(context);
    result = result ? result : (int)FIND(cuMemAlloc, 3020)(&made, bytes);
    result = result ? result : (int)FIND(cuMemsetD8, 3020)(made, 7, bytes);
    result = result ? result : (int)FIND(cuCtxSynchronize, 2000)();
    *address = made;
    return result;
}

int past_copy(void *to, unsigned long long from, size_t bytes)
{
    return (int)FIND(cuMemcpyDtoH, 3020)(to, from, bytes);
}

/* a function that the driver has under this name; -1: it gives none */
int past_given(const char *name, int version, void *to, unsigned long long from, size_t bytes)
{
#ifdef ASKS
    int (*function)(void *, unsigned long long, size_t) =
        (int (*)(void *, unsigned long long, size_t))ask(name, version);

    return function == NULL ? -1 : function(to, from, bytes);
#else
    (void)name, (void)version, (void)to, (void)from, (void)bytes;
    return -1;
#endif
}
