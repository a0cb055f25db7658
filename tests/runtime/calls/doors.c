/* SPDX-License-Identifier: Apache-2.0
 *
 * doors.c: what dlsym, dlvsym and cuGetProcAddress give a program that has libgpushare first
 * and finds libcuda by itself: doors CASE. Exits 0, or 1 with a line that says what was not so.
 * One thread.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "doors.c:%d: not so: %s\n", __LINE__, #condition);                 \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

typedef CUresult lookup_4(const char *, void **, int, cuuint64_t);
typedef CUresult lookup_5(const char *, void **, int, cuuint64_t,
                          CUdriverProcAddressQueryResult *);

/* begins with "cu", and is no driver function */
__attribute__((visibility("default"))) int cure_me(void);
int cure_me(void)
{
    return 42;
}

static bool is_in(const void *address, const char *library)
{
    Dl_info info;

    return address != NULL && dladdr(address, &info) != 0 &&
           strstr(info.dli_fname, library) != NULL;
}

static bool error_names(const char *name)
{
    const char *error = dlerror();

    return error != NULL && strstr(error, name) != NULL;
}

static void *open_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);

    CHECK(handle != NULL);
    return handle;
}

static void case_absent(void)
{
    void *self = dlopen(NULL, RTLD_NOW);

    CHECK(dlsym(RTLD_DEFAULT, "cuInit") == NULL);
    CHECK(error_names("cuInit"));
    CHECK(dlsym(self, "cuLaunchKernel") == NULL);
    CHECK(error_names("cuLaunchKernel"));
    CHECK(dlsym(RTLD_DEFAULT, "cuDriverGetVersion") == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "cure_me") == (void *)cure_me);
}

static void case_handle(void)
{
    void *handle = open_driver(), *self = dlopen(NULL, RTLD_NOW),
         *libc = dlopen("libc.so.6", RTLD_NOW);

    CHECK(is_in(dlsym(handle, "cuInit"), "libgpushare"));
    CHECK(is_in(dlsym(handle, "cuMemAlloc_v2"), "libgpushare"));
    CHECK(is_in(dlsym(handle, "cuLaunchKernel_ptsz"), "libgpushare"));
    CHECK(is_in(dlsym(handle, "cuDriverGetVersion"), "libcuda"));
    CHECK(is_in(dlsym(handle, "cuGetExportTable"), "libcuda"));
    CHECK(is_in(dlsym(self, "cuInit"), "libgpushare"));
    CHECK(is_in(dlsym(RTLD_DEFAULT, "cuInit"), "libgpushare"));
    CHECK(dlsym(RTLD_DEFAULT, "cure_me") == (void *)cure_me &&
          dlsym(self, "cure_me") == (void *)cure_me);
    CHECK(dlsym(handle, "cure_me") == NULL && error_names("cure_me"));
    CHECK(dlsym(handle, "cuNoSuchThing") == NULL && error_names("cuNoSuchThing"));
    CHECK(dlsym(libc, "cuInit") == NULL && error_names("cuInit"));
    CHECK(dlsym(handle, "no_such_thing") == NULL && error_names("no_such_thing"));
    CHECK(dlsym(handle, "") == NULL && dlerror() != NULL);
    CHECK(dlsym(handle, "c") == NULL && dlerror() != NULL);
    CHECK(dlsym(handle, "cu") == NULL && dlerror() != NULL);
    CHECK(dlsym(handle, "cuInit") != NULL && dlerror() == NULL);
    CHECK(is_in(dlsym(RTLD_NEXT, "malloc"), "libc.so"));
    CHECK(is_in(dlvsym(libc, "malloc", "GLIBC_2.2.5"), "libc.so"));
    CHECK(dlvsym(libc, "malloc", "GLIBC_9.9") == NULL && error_names("GLIBC_9.9"));
}

static void case_disabled(void)
{
    void *handle = open_driver();

    CHECK(is_in(dlsym(handle, "cuInit"), "libcuda"));
    CHECK(is_in(dlsym(handle, "cuGetProcAddress_v2"), "libcuda"));
}

static void *look_up(lookup_5 *resolve, const char *name, int version, cuuint64_t flags,
                     CUresult expected)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    void *with = NULL, *without = NULL;

    CHECK(resolve(name, &with, version, flags, &status) == expected);
    CHECK(resolve(name, &without, version, flags, NULL) == expected);
    CHECK(with == without);
    CHECK((status == CU_GET_PROC_ADDRESS_SUCCESS) == (with != NULL));
    return with;
}

static void case_lookups(void)
{
    void *handle = open_driver(), *found;
    lookup_5 *resolve = (lookup_5 *)dlsym(handle, "cuGetProcAddress_v2");
    lookup_4 *resolve_old;

    CHECK(is_in((void *)resolve, "libgpushare"));
    found = look_up(resolve, "cuGetProcAddress", 12000, 0, CUDA_SUCCESS);
    CHECK(found == dlsym(handle, "cuGetProcAddress_v2"));
    found = look_up(resolve, "cuGetProcAddress", 11030, 0, CUDA_SUCCESS);
    CHECK(found == dlsym(handle, "cuGetProcAddress"));
    resolve_old = (lookup_4 *)found;
    CHECK(resolve_old("cuMemAlloc", &found, 11030, 0) == CUDA_SUCCESS);
    CHECK(found == dlsym(handle, "cuMemAlloc_v2") && is_in(found, "libgpushare"));
    CHECK(look_up(resolve, "cuMemAlloc", 12000, 0, CUDA_SUCCESS) == found);
    CHECK(look_up(resolve, "cuCtxCreate", 11030, 0, CUDA_SUCCESS) ==
          dlsym(handle, "cuCtxCreate_v2"));
    CHECK(look_up(resolve, "cuCtxCreate", 13000, 0, CUDA_SUCCESS) ==
          dlsym(handle, "cuCtxCreate_v4"));
    CHECK(look_up(resolve, "cuMemcpyHtoD", 12000, 2, CUDA_SUCCESS) ==
          dlsym(handle, "cuMemcpyHtoD_v2_ptds"));
    CHECK(look_up(resolve, "cuMemcpyHtoD", 12000, 0, CUDA_SUCCESS) ==
          dlsym(handle, "cuMemcpyHtoD_v2"));
    CHECK(is_in(look_up(resolve, "cuDriverGetVersion", 12000, 0, CUDA_SUCCESS), "libcuda"));
    CHECK(look_up(resolve, "cuNoSuchThing", 12000, 0, CUDA_ERROR_NOT_FOUND) == NULL);
    resolve("", &found, 0, 0, NULL); /* cudart's first question; any answer will do */
}

/* newer_driver.c: cuLaunchKernel has a new ABI in 14.0 */
static void ask_newer(bool strict)
{
    void *handle = open_driver();
    lookup_5 *resolve = (lookup_5 *)dlsym(handle, "cuGetProcAddress_v2");

    CHECK(is_in(look_up(resolve, "cuLaunchKernel", 13000, 0, CUDA_SUCCESS), "libgpushare"));
    CHECK(is_in(look_up(resolve, "cuInit", 14000, 0, CUDA_SUCCESS),
                "libgpushare")); /* no new ABI */
    if (strict)
        CHECK(look_up(resolve, "cuLaunchKernel", 14000, 0, CUDA_ERROR_NOT_FOUND) == NULL);
    else
        CHECK(is_in(look_up(resolve, "cuLaunchKernel", 14000, 0, CUDA_SUCCESS), "libcuda"));
}

static void case_newer(void)
{
    ask_newer(false);
}

static void case_strict(void)
{
    ask_newer(true);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"absent", case_absent},     {"handle", case_handle},
                 {"disabled", case_disabled}, {"lookups", case_lookups},
                 {"newer", case_newer},       {"strict", case_strict}};

    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "usage: doors CASE\n");
    return 2;
}
