/* SPDX-License-Identifier: Apache-2.0
 *
 * door_load.c: prints the nanoseconds that a program needs to load libcuda.so.1, initialise it
 * and count its devices, which is what the library in the driver's place makes longer.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

#include <cuda.h>

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(void)
{
    const long long start = now_ns();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    typeof(&cuInit) init = driver != NULL ? (typeof(init))dlsym(driver, "cuInit") : NULL;
    typeof(&cuDeviceGetCount) get_count =
        driver != NULL ? (typeof(get_count))dlsym(driver, "cuDeviceGetCount") : NULL;
    int count = 0;

    if (init == NULL || get_count == NULL || init(0) != CUDA_SUCCESS ||
        get_count(&count) != CUDA_SUCCESS || count < 1) {
        fprintf(stderr, "door_load: no driver\n");
        return 1;
    }
    printf("%lld\n", now_ns() - start);
    return 0;
}
