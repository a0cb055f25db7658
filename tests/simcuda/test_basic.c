/* SPDX-License-Identifier: Apache-2.0
 *
 * test_basic.c: the driver's entry: initialisation, devices, contexts, look-up by name, faults
 * on order, fork.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/simcuda/testkit.h"

static void before_init(void)
{
    int count = 0, version = 0;
    void *pointer = NULL;

    GIVES(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    OK(cuDriverGetVersion(&version));
    CHECK(version == 13000);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    CHECK(count == 1);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc((CUdeviceptr *)&pointer, 1024));
}

static void device_facts(void)
{
    int value = 0;
    size_t total = 0, left = 0;
    char name[64], bus[32];
    CUuuid first, second;
    CUdevice device = 7;

    OK(cuInit(0));
    OK(cuDeviceGetCount(&value));
    CHECK(value == 2);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
    OK(cuDeviceGet(&device, 1));
    OK(cuDeviceGetUuid(&first, 0));
    OK(cuDeviceGetUuid(&second, device));
    CHECK(memcmp(&first, &second, sizeof first) != 0);
    OK(cuDeviceTotalMem(&total, device));
    CHECK(total == 64 * MIB);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                            device));
    CHECK(value == 1);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0));
    OK(cuDeviceGetName(name, sizeof name, device));
    CHECK(strstr(name, "Simulated"));
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, device));
    OK(cuDeviceGetByPCIBusId(&device, bus));
    CHECK(device == 1);
    kit_context();
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == 60 * MIB && total == 64 * MIB); /* a context takes 4 MiB */
}

static void context_stack(void)
{
    CUcontext primary = NULL, own = NULL, current = NULL;
    CUdevice device = 3;
    unsigned flags = 0;
    int active = 1;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active);
    OK(cuCtxGetCurrent(&current));
    CHECK(!current);
    primary = kit_context();
    OK(cuCtxCreate(&own, NULL, 0, 0));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == own && own != primary);
    OK(cuCtxGetDevice(&device));
    CHECK(device == 0);
    OK(cuCtxPopCurrent(&current));
    CHECK(current == own);
    OK(cuCtxGetCurrent(&current));
    CHECK(current == primary);
    OK(cuCtxPushCurrent(own));
    OK(cuCtxDestroy(own));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == primary);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(own));
    OK(cuDevicePrimaryCtxRelease(0));
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
}

static void symbol_lookups(void)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *found = NULL, *other = NULL;

    CHECK(self);
    OK(cuGetProcAddress("cuMemAlloc", &found, 2000, 0, &status));
    CHECK(found == dlsym(self, "cuMemAlloc"));
    OK(cuGetProcAddress("cuMemAlloc", &found, 12000, 0, NULL));
    CHECK(found == dlsym(self, "cuMemAlloc_v2"));
    OK(cuGetProcAddress("cuStreamSynchronize", &found, 7000,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
    CHECK(found == dlsym(self, "cuStreamSynchronize_ptsz"));
    OK(cuGetProcAddress("cuStreamSynchronize", &other, 7000, 0, NULL));
    CHECK(other == dlsym(self, "cuStreamSynchronize"));
    OK(cuGetProcAddress("cuInit", &found, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                        NULL));
    CHECK(found == dlsym(self, "cuInit")); /* no variant: the plain one */
    OK(cuGetProcAddress("cuGetProcAddress", &found, 11030, 0, NULL));
    CHECK(found == dlsym(self, "cuGetProcAddress"));
    OK(cuGetProcAddress("cuGetProcAddress", &found, 12000, 0, NULL));
    CHECK(found == dlsym(self, "cuGetProcAddress_v2"));
    GIVES(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("", &found, 0, 0, NULL));
    CHECK(!found);
    GIVES(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNoSuch", &found, 13000, 0, &status));
    CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    GIVES(CUDA_ERROR_NOT_FOUND,
          cuGetProcAddress("cuLibraryLoadData", &found, 11000, 0, &status));
    CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuInit", &found, 13000, 8, NULL));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress(NULL, &found, 13000, 0, NULL));
    /* the form of 11.3 has four arguments: a fifth must not be written through */
    OK(cuGetProcAddress("cuGetProcAddress", &found, 11030, 0, NULL));
    OK(((CUresult(*)(const char *, void **, int, cuuint64_t))found)("cuInit", &other, 13000,
                                                                    0));
    CHECK(other == dlsym(self, "cuInit"));
}

static void old_driver(void)
{
    void *found = NULL;
    int version = 0;

    OK(cuInit(0));
    OK(cuDriverGetVersion(&version));
    CHECK(version == 11040);
    OK(cuGetProcAddress("cuCtxCreate", &found, 13000, 0, NULL));
    CHECK(found == dlsym(RTLD_DEFAULT, "cuCtxCreate_v3"));
    GIVES(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuLibraryLoadData", &found, 13000, 0, NULL));
}

static void unsupported_calls(void)
{
    const void *table = &table;
    const char *text = NULL;
    CUuuid id = {{0}};

    OK(cuInit(0));
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuDeviceGetLuid((char *)&id, NULL, 0));
    GIVES(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &id));
    CHECK(!table);
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(strcmp(text, "out of memory") == 0);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)123456, &text));
}

static void faults_by_number(void)
{
    CUdeviceptr pointer = 0;

    kit_context();
    OK(cuMemAlloc(&pointer, 1024));
    OK(cuMemAlloc(&pointer, 1024));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY,
          cuMemAlloc(&pointer, 1024)); /* the third, by its base name */
    OK(cuMemAlloc(&pointer, 1024));
    GIVES(CUDA_ERROR_UNKNOWN, cuMemFree(pointer)); /* every one */
    GIVES(CUDA_ERROR_UNKNOWN, cuMemFree(pointer));
}

static void faults_by_chance(void)
{
    unsigned failed = 0;

    OK(cuInit(0));
    for (int i = 0; i < 1000; i++) {
        int count = 0;
        failed += cuDeviceGetCount(&count) == CUDA_ERROR_UNKNOWN;
    }
    CHECK(failed > 200 && failed < 300);
}

static void after_fork(void)
{
    int count = 0, status = 0;
    CUdeviceptr pointer = 0;
    size_t left = 0, total = 0;

    kit_context();
    OK(cuMemAlloc(&pointer, 8 * MIB));
    const int pid = fork();
    if (pid == 0) {
        const bool refused = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                             cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
        exit(refused ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    OK(cuMemGetInfo(&left, &total));
    CHECK(left == total - 12 * MIB); /* the child's end gave nothing of ours back */
}

static void log_and_statistics(void)
{
    CUdeviceptr pointer = 0;
    char path[256], bytes[1024] = "";

    snprintf(path, sizeof path, "%s/stats", getenv("SIMCUDA_CARD"));
    setenv("SIMCUDA_STATS", path, 1);
    const int pid = fork();
    if (pid == 0) {
        char log[280], text[2048] = "";
        snprintf(log, sizeof log, "%s/log", getenv("SIMCUDA_CARD"));
        setenv("SIMCUDA_LOG", log, 1);
        kit_context();
        OK(cuMemAlloc(&pointer, 2 * MIB));
        OK(cuMemcpyHtoD(pointer, path, sizeof path));
        kit_launch(kit_kernel("nothing"), NULL, NULL);
        OK(cuCtxSynchronize());
        GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&pointer, 1024 * MIB));
        FILE *file = fopen(log, "r");
        CHECK(file && fread(text, 1, sizeof text - 1, file) > 0);
        CHECK(strstr(text, "launch nothing") &&
              strstr(text, "cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY"));
        fclose(file);
        exit(0);
    }
    kit_join(pid);
    FILE *file = fopen(path, "r");
    CHECK(file && fread(bytes, 1, sizeof bytes - 1, file) > 0);
    fclose(file);
    CHECK(strstr(bytes, "\"to_device_bytes\": 256") && strstr(bytes, "\"launches\": 1"));
    CHECK(strstr(bytes, "\"memory_peak_bytes\": 2097152"));
}

static void bad_settings(void)
{
    GIVES(CUDA_ERROR_NO_DEVICE, cuInit(0));
    setenv("SIMCUDA_MEMORY", "64MiB", 1);
    OK(cuInit(0)); /* mended, it goes on */
}

TEST(before_init, NULL)
TEST(device_facts, "SIMCUDA_DEVICES=2", NULL)
TEST(context_stack, NULL)
TEST(symbol_lookups, NULL)
TEST(old_driver, "SIMCUDA_DRIVER_VERSION=11040", NULL)
TEST(unsupported_calls, NULL)
TEST(faults_by_number, "SIMCUDA_FAIL=cuMemAlloc:3:2,cuMemFree_v2:0:999", NULL)
TEST(faults_by_chance, "SIMCUDA_FAIL=cuDeviceGetCount:p0.25:999:7", NULL)
TEST(after_fork, NULL)
TEST(log_and_statistics, NULL)
TEST(bad_settings, "SIMCUDA_MEMORY=lots", NULL)

int kit_run_basic(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_init),      cmocka_unit_test(test_device_facts),
        cmocka_unit_test(test_context_stack),    cmocka_unit_test(test_symbol_lookups),
        cmocka_unit_test(test_old_driver),       cmocka_unit_test(test_unsupported_calls),
        cmocka_unit_test(test_faults_by_number), cmocka_unit_test(test_faults_by_chance),
        cmocka_unit_test(test_after_fork),       cmocka_unit_test(test_log_and_statistics),
        cmocka_unit_test(test_bad_settings),
    };

    return cmocka_run_group_tests_name("simcuda basic", tests, NULL, NULL);
}
