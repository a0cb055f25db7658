/* SPDX-License-Identifier: Apache-2.0
 *
 * module.h: modules, their images (image.c), functions and stand-ins (standin.c, builtin.c).
 */
#pragma once

#include "tests/simcuda/sim.h"

#define SIM_PARAMS_MAX 256

struct sim_parameter {
    uint32_t offset, size;
};
struct sim_image_kernel {
    char *name;
    unsigned registers, local_bytes, shared_bytes, max_threads, parameter_count;
    struct sim_parameter *parameter;
    bool known; /* parameters read from a cubin */
};
struct sim_image_global {
    char *name;
    size_t size;
    void *data; /* first value, or NULL: zero */
    bool managed;
};
struct sim_image {
    bool any_name; /* PTX only: names are not known before they are asked for */
    struct sim_image_kernel *kernel;
    size_t kernel_count;
    struct sim_image_global *global;
    size_t global_count;
};
CUresult sim_image_read(const void *code, struct sim_image *image);
void sim_image_free(struct sim_image *image);

struct sim_function {
    struct sim_function *next;
    struct sim_module *module;
    struct sim_image_kernel *kernel; /* in the image, or own if the image has no names */
    bool own_kernel;
    const struct simcuda_kernel *standin; /* NULL: not found so far */
    int dynamic_shared, carveout;
};
struct sim_function *sim_function_get(const void *handle);
const struct simcuda_kernel *sim_standin_find(const char *name);
const struct simcuda_kernel *sim_builtin_find(const char *name); /* builtin.c */
bool sim_is_builtin(const struct simcuda_kernel *kernel);
/* Number of parameters and where each lies in the parameter buffer; -1 if neither cubin nor
 * stand-in tells. */
int sim_function_parameters(struct sim_function *function, struct sim_parameter *parameter);
void sim_modules_of_context_free(uint64_t context_id);

/* `of` is what the program's handle stands for; NULL: nothing. */
static inline CUresult sim_handle_out(void **out, const void *of, void *answer)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!of)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = answer;
    return CUDA_SUCCESS;
}
