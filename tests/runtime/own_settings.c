/* SPDX-License-Identifier: Apache-2.0
 *
 * own_settings.c: a program that sets variables of gpushare in its own environment, before its
 * first call of CUDA.
 */
#include "tests/runtime/check.h"

const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

int main(int argc, char **argv)
{
    size_t free, total = 0;

    if (argc != 3)
        return 64;
    setenv("GPUSHARE_DEVICE_LIMIT", argv[1], 1);
    setenv("GPUSHARE_LOG", argv[2], 1);
    begin_context();
    OK(cuMemGetInfo(&free, &total));
    printf("%zu MiB\n", total / MIB);
    return 0;
}
