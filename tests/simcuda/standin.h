/* SPDX-License-Identifier: Apache-2.0
 *
 * standin.h: host code that stands in for a GPU kernel on the simulated card.
 *
 * A program (or a shared object named in SIMCUDA_KERNELS, colon-separated) exports an array
 * `simcuda_kernels` that ends with a NULL name. When the simulated driver launches the function
 * of that name it calls run() on a thread of its own, in stream order, with copies of the
 * parameters made at launch time. run() may touch "device" memory directly: an access to an
 * unmapped device address makes the launch fail as on a card (CUDA_ERROR_ILLEGAL_ADDRESS,
 * sticky).
 */
#pragma once

#include <stdint.h>

struct simcuda_launch {
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    void *const *params; /* params[i] points at parameter i, as in cuLaunchKernel */
};

struct simcuda_kernel {
    const char *name; /* as in the cubin: C++ names mangled, e.g. "_Z4fillPjj" */
    void (*run)(const struct simcuda_launch *launch);
    uint32_t param_count;
    const uint32_t *param_size; /* bytes of each parameter */
};

/* Must reach the dynamic symbol table: link executables with
 * -Wl,--export-dynamic-symbol=simcuda_kernels (or -rdynamic). */
extern const struct simcuda_kernel simcuda_kernels[] __attribute__((visibility("default")));
