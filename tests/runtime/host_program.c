/* SPDX-License-Identifier: Apache-2.0
 *
 * host_program.c: a program that test_others.py patches, or not.
 *   hooked OBJECT    interposer.c stands before libc's dlsym; its cuMemAlloc_v2 calls one in
 *                    OBJECT
 *   alone            it works, whoever stands there
 *   guests FILE...   the plugins (guest.c) work one after another, each in its own scope
 * Exits 0, or 1 with a line for what was not so. Linked with libcuda, since what is behind a
 * library is looked for among the objects of the program's start.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cudaTypedefs.h>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "host_program.c:%d: not so: %s\n", __LINE__, #condition);          \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

static bool is_in(const void *address, const char *object)
{
    Dl_info info;

    return address != NULL && dladdr(address, &info) != 0 &&
           strstr(info.dli_fname, object) != NULL;
}

static void *find_variable(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    CHECK(found != NULL);
    return found;
}

static void use_driver(void *driver)
{
    CUdeviceptr address = 0;
    CUcontext context;

    CHECK(((PFN_cuInit_v2000)dlsym(driver, "cuInit"))(0) == CUDA_SUCCESS);
    CHECK(((PFN_cuDevicePrimaryCtxRetain_v7000)dlsym(driver, "cuDevicePrimaryCtxRetain"))(
              &context, 0) == CUDA_SUCCESS);
    CHECK(((PFN_cuCtxSetCurrent_v4000)dlsym(driver, "cuCtxSetCurrent"))(context) ==
          CUDA_SUCCESS);
    CHECK(((PFN_cuMemAlloc_v3020)dlsym(driver, "cuMemAlloc_v2"))(&address, 5 << 20) ==
          CUDA_SUCCESS);
    CHECK(((PFN_cuMemsetD8_v3020)dlsym(driver, "cuMemsetD8_v2"))(address, 1, 5 << 20) ==
          CUDA_SUCCESS);
    CHECK(((PFN_cuMemFree_v3020)dlsym(driver, "cuMemFree_v2"))(address) == CUDA_SUCCESS);
}

static void check_hooked(const char *object)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void **caller = find_variable("interposer_caller");
    unsigned *calls = find_variable("interposer_calls");
    void *(*real)(void) = (void *(*)(void))find_variable("interposer_real");

    CHECK(driver != NULL);
    *caller = NULL;
    CHECK(is_in(dlsym(driver, "cuMemAlloc_v2"), "interposer"));
    CHECK(is_in(*caller, "host_program"));
    *caller = NULL;
    CHECK(is_in(dlsym(RTLD_DEFAULT, "answer"), "interposer") &&
          is_in(*caller, "host_program")); /* a name like any other */
    CHECK(is_in(dlsym(driver, "cuMemHidden"), "interposer"));
    CHECK(is_in(dlsym(driver, "cuMemFree_v2"), getenv("HOST_OTHERS_FROM")));
    CHECK(is_in(dlsym(RTLD_NEXT, "malloc"), "libc.so"));
    CHECK(dlsym(driver, "cuNoSuchThing") == NULL && dlerror() != NULL);
    CHECK(dlsym(driver, "no_such_thing") == NULL && dlerror() != NULL);
    CHECK(is_in(real(), object));
    use_driver(driver);
    CHECK(*calls == 1);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "hooked") == 0) {
        check_hooked(argv[2]);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "alone") == 0) {
        use_driver(dlopen("libcuda.so.1", RTLD_NOW));
        return 0;
    }
    if (argc < 3 || strcmp(argv[1], "guests") != 0)
        return 2;
    for (int i = 2; i < argc; i++) {
        void *guest = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        int (*works)(void) = guest != NULL ? (int (*)(void))dlsym(guest, "guest_works") : NULL;

        CHECK(works != NULL);
        CHECK(works() == 0);
    }
    return 0;
}
