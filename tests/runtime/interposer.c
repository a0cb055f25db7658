/* SPDX-License-Identifier: Apache-2.0
 *
 * interposer.c: a library with a dlsym of its own, which hands out its own cuMemAlloc_v2 and
 * counts the calls, as NVIDIA's sample cuHook does. Built in two ways: its real dlsym is
 * libc's, found with dlvsym, or (INTERPOSER_COMES_BACK) libgpushare's, which is what some find
 * that ask for the next one without a version.
 */
#include <dlfcn.h>
#include <string.h>

#include <cuda.h>

#define EXPORT __attribute__((visibility("default")))

typedef void *dlsym_function(void *handle, const char *name);

EXPORT unsigned interposer_calls;   /* of its cuMemAlloc_v2 */
EXPORT void *interposer_caller;     /* who called its dlsym last */
EXPORT void *interposer_real(void); /* what its cuMemAlloc_v2 calls */

#ifdef INTERPOSER_COMES_BACK
dlsym_function __wrap_dlsym;
#endif

static dlsym_function *real_dlsym(void)
{
#ifdef INTERPOSER_COMES_BACK
    return __wrap_dlsym;
#else
    static dlsym_function *real;

    if (real == NULL)
        real = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (real == NULL)
        real = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
    return real;
#endif
}

void *interposer_real(void)
{
    void *volatile found = real_dlsym()(RTLD_NEXT, "cuMemAlloc_v2"); /* no tail call */

    return found;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CUresult (*real)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))interposer_real();

    interposer_calls++;
    return real(address, bytes);
}

static int give_answer(void)
{
    return 42;
}

EXPORT void *dlsym(void *handle, const char *name)
{
    interposer_caller = __builtin_return_address(0);
    if (strcmp(name, "cuMemAlloc_v2") == 0)
        return (void *)cuMemAlloc_v2;
    if (strcmp(name, "cuMemHidden") == 0 || strcmp(name, "answer") == 0)
        return (void *)give_answer; /* nobody else has these */
    return real_dlsym()(handle, name);
}
