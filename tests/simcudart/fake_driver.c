/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_driver.c: a libcuda.so.1 that can only be asked for functions, and writes down who asks
 * for what. Used to compare what a CUDA runtime looks up with lookups.txt.
 *
 * Each look-up is one line `name version flags` in the file that FAKE_DRIVER_LOG names; a
 * symbolStatus that is not NULL adds ` status`. Every function that it hands out says
 * CUDA_ERROR_NOT_INITIALIZED, but for the driver's version, which is 13.0 or that of
 * FAKE_DRIVER_VERSION.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, ERROR_NOT_INITIALIZED = 3, DRIVER_VERSION = 13000 };

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status);
int cuDriverGetVersion(int *version);

static int refuse_call(void)
{
    return ERROR_NOT_INITIALIZED;
}

static int get_version(int *version)
{
    const char *text = getenv("FAKE_DRIVER_VERSION");

    *version = text ? atoi(text) : DRIVER_VERSION; /* NOLINT(cert-err34-c): of a test */
    return SUCCESS;
}

/* runtimes since 13.1 ask for it by dlsym */
__attribute__((visibility("default"))) int cuDriverGetVersion(int *version)
{
    return get_version(version);
}

static int get_proc_address_v1(const char *symbol, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

__attribute__((visibility("default"))) int cuGetProcAddress_v2(const char *symbol,
                                                               void **function, int version,
                                                               uint64_t flags, int *status)
{
    const char *path = getenv("FAKE_DRIVER_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;

    if (log) {
        fprintf(log, "%s %d %llu%s\n", *symbol ? symbol : "\"\"", version,
                (unsigned long long)flags, status ? " status" : "");
        fclose(log);
    }
    *function = (void *)(uintptr_t)refuse_call;
    /* runtimes go on asking through what they get here */
    if (strcmp(symbol, "cuGetProcAddress") == 0)
        *function = version < 12000 ? (void *)(uintptr_t)get_proc_address_v1
                                    : (void *)(uintptr_t)cuGetProcAddress_v2;
    if (strcmp(symbol, "cuDriverGetVersion") == 0)
        *function = (void *)(uintptr_t)get_version;
    if (status)
        *status = 0;
    return SUCCESS;
}
