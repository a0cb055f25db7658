/* SPDX-License-Identifier: Apache-2.0
 *
 * test_module.c: modules and libraries: what nvcc writes (kernels.cu), PTX, broken images;
 * parameters and attributes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/testkit.h"

static unsigned char *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = NULL;

    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    *size = (size_t)ftell(file);
    rewind(file);
    bytes = calloc(1, *size + 8);
    CHECK(bytes && fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}

static void from_nvcc(const char *path)
{
    CUlibrary library = NULL;
    CUmodule module = NULL;
    CUkernel kernel = NULL;
    CUfunction function = NULL;
    CUdeviceptr device = 0, global = 0, managed = 0;
    size_t size = 0, offset = 0, bytes = 0;
    const char *name = NULL;
    unsigned count = 0;
    int threads = 0;
    unsigned word = 0;
    double result = 0;

    unsigned char *image = read_whole(path, &bytes);
    OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernelCount(&count, library));
    CHECK(count == 2);
    OK(cuLibraryGetKernel(&kernel, library, "mixed"));
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuKernelGetName(&name, kernel));
    CHECK(strcmp(name, "mixed") == 0);
    OK(cuFuncGetParamInfo(function, 3, &offset, &size));
    CHECK(offset == 24 && size == 8); /* char, double, short, pointer: 0 8 16 24 */
    OK(cuFuncGetParamInfo(function, 2, &offset, &size));
    CHECK(offset == 16 && size == 2);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 4, &offset, &size));
    OK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    CHECK(threads == 1024);
    OK(cuMemAlloc(&device, 8));
    char a = 1;
    double b = 2.5;
    short c = 3;
    kit_launch((CUfunction)kernel, NULL,
               (void *[]){&a, &b, &c, &device}); /* a CUkernel will do */
    OK(cuMemcpyDtoH(&result, device, 8));
    CHECK(result == 6.5);
    struct {
        char a;
        double b;
        short c;
        CUdeviceptr to;
    } buffer = {2, 3.5, 4, device};
    size_t buffer_size = sizeof buffer;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &buffer_size, CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    OK(cuMemcpyDtoH(&result, device, 8));
    CHECK(result == 9.5);
    OK(cuLibraryGetModule(&module, library));
    OK(cuModuleGetGlobal(&global, &size, module, "counter"));
    OK(cuMemcpyDtoH(&word, global, 4));
    CHECK(size == 4 && word == 41);
    OK(cuLibraryGetGlobal(&global, &size, library, "table"));
    OK(cuMemcpyDtoH(&word, global + 3996, 4));
    CHECK(size == 4000 && word == 0);
    OK(cuLibraryGetGlobal(&global, &size, library, "factor"));
    OK(cuMemcpyDtoH(&word, global, 4));
    CHECK(size == 4 && word == 6);
    OK(cuLibraryGetManaged(&managed, &size, library, "shared_total"));
    CHECK(size == 8 && *(long *)managed == 5);
    GIVES(CUDA_ERROR_NOT_FOUND, cuLibraryGetGlobal(&global, &size, library, "none"));
    GIVES(CUDA_ERROR_NOT_FOUND,
          cuLibraryGetKernel(&kernel, library, "fill")); /* a stand-in, but not in the image */
    OK(cuLibraryGetKernel(&kernel, library, "no_standin"));
    GIVES(CUDA_ERROR_NOT_FOUND, cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL,
                                               (void *[]){&device}, NULL));
    OK(cuLibraryUnload(library));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuKernelGetName(&name, kernel));
    free(image);
}

static void nvcc_cubin(void)
{
    kit_context();
    from_nvcc(SIMCUDA_CUBIN);
}

static void nvcc_fatbin(void)
{
    CUmodule module = NULL;
    CUfunction function = NULL;

    kit_context();
    from_nvcc(SIMCUDA_FATBIN);
    OK(cuModuleLoad(&module, SIMCUDA_FATBIN));
    OK(cuModuleGetFunction(&function, module, "mixed"));
    OK(cuModuleUnload(module));
    GIVES(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nonexistent/file"));
}

/* No byte of an image, changed, may take the driver down: it gives an error or a module. */
static void broken_images(void)
{
    size_t size = 0;
    CUmodule module = NULL;

    kit_context();
    unsigned char *image = read_whole(SIMCUDA_FATBIN, &size);
    unsigned char *copy = malloc(size + 8);
    CHECK(copy);
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < 3000; i++) {
        memcpy(copy, image, size + 8);
        for (int k = 0; k < 4; k++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            /* the outer header's size is all that bounds the image: the caller's word */
            copy[16 + random % (size - 16)] = (unsigned char)(random >> 32);
        }
        if (cuModuleLoadData(&module, copy) == CUDA_SUCCESS)
            OK(cuModuleUnload(module));
    }
    free(copy);
    free(image);
    GIVES(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, ""));
    GIVES(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "no image at all"));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, NULL));
}

static void names_by_standin(void)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    size_t offset = 0, size = 0;
    int grid = 0, block = 0;

    kit_context();
    OK(cuModuleLoadData(&module, "// by hand\n.version 8.0\n"));
    GIVES(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "nobody"));
    OK(cuModuleGetFunction(&function, module, "mixed"));
    OK(cuFuncGetParamInfo(function, 3, &offset, &size));
    CHECK(offset == 24 && size == 8);
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL));
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    GIVES(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel((CUfunction)&grid, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
    CHECK(grid >= 132 && block >= 128);
}

TEST(nvcc_cubin, NULL)
TEST(nvcc_fatbin, NULL)
TEST(broken_images, NULL)
TEST(names_by_standin, NULL)

int kit_run_module(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nvcc_cubin),
        cmocka_unit_test(test_nvcc_fatbin),
        cmocka_unit_test(test_broken_images),
        cmocka_unit_test(test_names_by_standin),
    };

    return cmocka_run_group_tests_name("simcuda modules", tests, NULL, NULL);
}
