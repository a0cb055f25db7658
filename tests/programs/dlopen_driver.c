/* SPDX-License-Identifier: Apache-2.0
 *
 * dlopen_driver.c: a program that opens the driver itself and asks dlsym for every function, as
 * Python's ctypes, XLA and many libraries do.
 *
 * Exit status: 0 all right, 1 a wrong result or a CUDA error, 2 out of memory, 64 wrong command
 * line.
 */
#include <dlfcn.h>

static void *driver_function(const char *name);

/* twice, so that cuda.h's own renaming (cuMemAlloc -> cuMemAlloc_v2) comes first */
#define CU(name)  CU_(name)
#define CU_(name) ((__typeof__(&(name)))driver_function(#name))
#include "driver_work.h"

static void *driver;

static void *driver_function(const char *name)
{
    void *address = dlsym(driver, name);

    if (!address)
        sample_die(SAMPLE_WRONG, "libcuda.so.1: no function %s: %s", name, dlerror());
    return address;
}

int main(int argc, char **argv)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        sample_die(SAMPLE_WRONG,
                   "%s; is there a driver, or LD_LIBRARY_PATH for the simulated one?",
                   dlerror());
    return work_main(argc, argv);
}
