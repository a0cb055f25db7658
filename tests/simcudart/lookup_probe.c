/* SPDX-License-Identifier: Apache-2.0
 *
 * lookup_probe.c: starts the CUDA runtime that it is linked with, and writes every dlsym call
 * of that runtime into the file FAKE_DRIVER_LOG, as `dlsym name`. Linked with --wrap=dlsym, so
 * it also shows that the runtime's own calls can be wrapped.
 *
 * Prints the name of the first call's error: the fake driver can do nothing.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);

void *__wrap_dlsym(void *handle, const char *name)
{
    const char *path = getenv("FAKE_DRIVER_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;

    if (log) {
        fprintf(log, "dlsym %s\n", name);
        fclose(log);
    }
    return __real_dlsym(handle, name);
}

int main(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);

    puts(cudaGetErrorName(error));
    return error == cudaSuccess;
}
