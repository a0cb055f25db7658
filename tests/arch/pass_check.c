/* SPDX-License-Identifier: Apache-2.0
 *
 * pass_check.c: the jumps of the fourth door (runtime/calls/pass_*.S) keep every argument, the
 * first time, when the function is looked up, and later. With pass_driver.c behind the door.
 */
#include <dlfcn.h>
#include <stdio.h>

#include <cuda.h>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "pass_check.c:%d: not so: %s\n", __LINE__, #condition);            \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)

int main(void)
{
    void *door = dlopen("libcuda.so.1", RTLD_NOW);
    typeof(&cuLinkAddData_v2) add;
    typeof(&cuParamSetf) set;
    typeof(&cuDriverGetVersion) absent;
    int version = 0;

    CHECK(door != NULL);
    CHECK(dlsym(door, "gpushare_door_driver") != NULL);
    add = (typeof(add))dlsym(door, "cuLinkAddData_v2");
    set = (typeof(set))dlsym(door, "cuParamSetf");
    absent = (typeof(absent))dlsym(door, "cuDriverGetVersion");
    CHECK(add != NULL && set != NULL && absent != NULL);
    for (int i = 0; i < 3; i++) {
        CHECK(add((CUlinkState)1, (CUjitInputType)2, (void *)3, 4, (const char *)5, 6,
                  (CUjit_option *)7, (void **)8) == CUDA_SUCCESS);
        CHECK(set((CUfunction)1, 2, 1.5f) == CUDA_SUCCESS);
        CHECK(absent(&version) == CUDA_ERROR_NOT_SUPPORTED); /* this driver does not have it */
    }
    return 0;
}
