/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c: owns launches and the questions about functions.
 *
 * A launch copies its parameters when it is submitted, by the sizes that the stand-in declares,
 * and runs the stand-in on the stream's worker, one kernel at a time on the card if the card
 * slices time. Invariants: a launch operation owns its parameter copies. Threads: calls under
 * sim.lock; kernels run on workers.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/module.h"
#include "tests/simcuda/managed.h"

struct launch_op {
    struct sim_op op;
    struct simcuda_launch launch;
    const struct simcuda_kernel *standin;
    struct sim_function *function;
    void **pointers;
    unsigned char *bytes;
};

/* Returns the card even if the kernel faults: the jump out of it lands in sim_guarded_run(). */
static CUresult kernel_run(const struct sim_op *op, struct sim_context *context)
{
    const struct launch_op *self = (const struct launch_op *)op;

    (void)context;
    self->standin->run(&self->launch);
    return CUDA_SUCCESS;
}

static CUresult launch_run(const struct sim_op *op, struct sim_context *context)
{
    struct sim_card *card = sim_context_device(context)->card;
    struct launch_op kernel = *(const struct launch_op *)op;

    kernel.op.run = kernel_run;
    sim_card_compute_begin(card);
    const uint64_t least = sim_is_builtin(kernel.standin) ? 0 : card->properties.kernel_ns;
    const uint64_t until = sim_now_ns() + least;
    sim_managed_close();
    const CUresult result = sim_guarded_run(&kernel.op, context);
    if (least)
        sim_sleep_until(until);
    sim_card_compute_end(card);
    sim_count(&sim_stats.launches, 1);
    return result;
}

static void launch_release(struct sim_op *op)
{
    struct launch_op *self = (struct launch_op *)op;

    free(self->pointers);
    free(self->bytes);
}

int sim_function_parameters(struct sim_function *function, struct sim_parameter *parameter)
{
    const struct sim_image_kernel *kernel = function->kernel;

    if (kernel->known) {
        memcpy(parameter, kernel->parameter, kernel->parameter_count * sizeof *parameter);
        return (int)kernel->parameter_count;
    }
    if (!function->standin)
        function->standin = sim_standin_find(kernel->name);
    if (!function->standin || function->standin->param_count > SIM_PARAMS_MAX)
        return -1;
    uint32_t offset = 0;
    for (unsigned i = 0; i < function->standin->param_count; i++) {
        const uint32_t size = function->standin->param_size[i];
        uint32_t alignment = 1; /* as C lays out scalars and vectors of that size */
        while (alignment < 16 && size % (alignment * 2) == 0)
            alignment *= 2;
        offset = (offset + alignment - 1) / alignment * alignment;
        parameter[i] = (struct sim_parameter){offset, size};
        offset += size;
    }
    return (int)function->standin->param_count;
}

/* The form with one buffer of all parameters: its address and size from `extra`. */
static CUresult extra_buffer(void **extra, const unsigned char **buffer, size_t *size)
{
    *buffer = NULL;
    *size = 0;
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *size = extra[1] ? *(const size_t *)extra[1] : 0;
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult copy_parameters(struct launch_op *self, void **values, void **extra)
{
    const struct simcuda_kernel *standin = self->standin;
    struct sim_parameter place[SIM_PARAMS_MAX];
    const unsigned char *buffer = NULL;
    size_t buffer_size = 0, total = 0;
    CUresult result = values ? CUDA_SUCCESS : extra_buffer(extra, &buffer, &buffer_size);
    const int declared = sim_function_parameters(self->function, place);

    for (unsigned i = 0; i < standin->param_count; i++)
        total += ((size_t)standin->param_size[i] + 15) / 16 * 16;
    self->pointers = calloc(standin->param_count + 1u, sizeof *self->pointers);
    self->bytes = calloc(1, total + 1);
    if (!self->pointers || !self->bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (declared >= 0 && (unsigned)declared != standin->param_count) {
        sim_log("kernel %s: the stand-in has %u parameters, the cubin %d", standin->name,
                standin->param_count, declared);
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned char *at = self->bytes;
    for (unsigned i = 0; i < standin->param_count && !result; i++) {
        const size_t size = standin->param_size[i];
        if (declared >= 0 && place[i].size != size) {
            sim_log("kernel %s: parameter %u has %zu bytes in the stand-in, %u in the cubin",
                    standin->name, i, size, place[i].size);
            return CUDA_ERROR_INVALID_VALUE;
        }
        const void *value = values ? values[i] : NULL;
        if (!values && buffer && place[i].offset + size <= buffer_size)
            value = buffer + place[i].offset;
        if (value)
            memcpy(at, value, size);
        else
            result = CUDA_ERROR_INVALID_VALUE;
        self->pointers[i] = at;
        at += (size + 15) / 16 * 16;
    }
    self->launch.params = self->pointers;
    return result;
}

static bool shape_valid(const CUDA_KERNEL_NODE_PARAMS_v2 *launch,
                        const struct sim_function *function)
{
    const uint64_t threads =
        (uint64_t)launch->blockDimX * launch->blockDimY * (uint64_t)launch->blockDimZ;

    if (!launch->gridDimX || !launch->gridDimY || !launch->gridDimZ || !threads)
        return false;
    if (launch->gridDimX > 2147483647u || launch->gridDimY > 65535 || launch->gridDimZ > 65535)
        return false;
    if (launch->blockDimX > 1024 || launch->blockDimY > 1024 || launch->blockDimZ > 64)
        return false;
    const unsigned most =
        function->dynamic_shared > 49152 ? (unsigned)function->dynamic_shared : 49152;
    return threads <= function->kernel->max_threads && launch->sharedMemBytes <= most;
}

CUresult sim_launch_op(struct sim_context *context, const CUDA_KERNEL_NODE_PARAMS_v2 *launch,
                       struct sim_op **out)
{
    struct sim_function *function = sim_function_get(launch->func ? (const void *)launch->func
                                                                  : (const void *)launch->kern);

    (void)context;
    *out = NULL;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!shape_valid(launch, function))
        return CUDA_ERROR_INVALID_VALUE;
    if (!function->standin)
        function->standin = sim_standin_find(function->kernel->name);
    if (!function->standin) {
        sim_log("kernel %s has no stand-in: list its shared object in SIMCUDA_KERNELS",
                function->kernel->name);
        return CUDA_ERROR_NOT_FOUND;
    }
    struct launch_op *self = (struct launch_op *)sim_op_new(
        sizeof *self, function->standin->name, CU_GRAPH_NODE_TYPE_KERNEL, launch_run);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->op.release = launch_release;
    self->function = function;
    self->standin = function->standin;
    self->launch = (struct simcuda_launch){
        .grid = {launch->gridDimX, launch->gridDimY, launch->gridDimZ},
        .block = {launch->blockDimX, launch->blockDimY, launch->blockDimZ},
        .shared_bytes = launch->sharedMemBytes};
    const CUresult result = copy_parameters(self, launch->kernelParams, launch->extra);
    if (result)
        sim_op_put(&self->op);
    else
        *out = &self->op;
    return result;
}

void sim_launch_params(const struct sim_op *op, CUDA_KERNEL_NODE_PARAMS_v2 *out)
{
    const struct launch_op *self = (const struct launch_op *)op;
    const struct simcuda_launch *launch = &self->launch;

    *out = (CUDA_KERNEL_NODE_PARAMS_v2){.func = (CUfunction)self->function,
                                        .gridDimX = launch->grid[0],
                                        .gridDimY = launch->grid[1],
                                        .gridDimZ = launch->grid[2],
                                        .blockDimX = launch->block[0],
                                        .blockDimY = launch->block[1],
                                        .blockDimZ = launch->block[2],
                                        .sharedMemBytes = launch->shared_bytes,
                                        .kernelParams = self->pointers};
}

static CUresult launch_submit(struct sim_call *call, struct sim_stream *stream,
                              const CUDA_KERNEL_NODE_PARAMS_v2 *launch)
{
    struct sim_op *op = NULL;

    if (!stream)
        return call->result;
    const uint64_t until =
        sim_now_ns() + sim_context_device(stream->context)->card->properties.launch_ns;
    CUresult result = sim_launch_op(stream->context, launch, &op);
    if (result)
        return result;
    const struct simcuda_launch *shape = &((struct launch_op *)op)->launch;
    sim_log("launch %s <<<%ux%ux%u, %ux%ux%u>>> on stream %llu", op->name, shape->grid[0],
            shape->grid[1], shape->grid[2], shape->block[0], shape->block[1], shape->block[2],
            (unsigned long long)stream->id);
    result = sim_submit(call, stream, op);
    if (sim_now_ns() < until)
        sim_sleep_until(until);
    return result;
}

static CUresult launch_config(struct sim_call *call, const CUlaunchConfig *config,
                              CUfunction function, void **values, void **extra, bool per_thread)
{
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS_v2 launch = {.func = function,
                                               .gridDimX = config->gridDimX,
                                               .gridDimY = config->gridDimY,
                                               .gridDimZ = config->gridDimZ,
                                               .blockDimX = config->blockDimX,
                                               .blockDimY = config->blockDimY,
                                               .blockDimZ = config->blockDimZ,
                                               .sharedMemBytes = config->sharedMemBytes,
                                               .kernelParams = values,
                                               .extra = extra};
    return launch_submit(call, sim_stream(call, config->hStream, per_thread), &launch);
}

#define SHAPE                                                                                  \
    unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,       \
        unsigned int block_y, unsigned int block_z, unsigned int shared
#define LAUNCH(parameters, buffer)                                                             \
    &(const CUDA_KERNEL_NODE_PARAMS_v2)                                                        \
    {                                                                                          \
        .func = function, .gridDimX = grid_x, .gridDimY = grid_y, .gridDimZ = grid_z,          \
        .blockDimX = block_x, .blockDimY = block_y, .blockDimZ = block_z,                      \
        .sharedMemBytes = shared, .kernelParams = (parameters), .extra = (buffer)              \
    }

SIM_STREAM_API(cuLaunchKernel, _ptsz,
               (CUfunction function, SHAPE, CUstream stream, void **values, void **extra),
               SIM_INIT,
               launch_submit(&call, sim_stream(&call, stream, per_thread),
                             LAUNCH(values, extra)))
SIM_STREAM_API(cuLaunchCooperativeKernel, _ptsz,
               (CUfunction function, SHAPE, CUstream stream, void **values), SIM_INIT,
               launch_submit(&call, sim_stream(&call, stream, per_thread),
                             LAUNCH(values, NULL)))
SIM_STREAM_API(cuLaunchKernelEx, _ptsz,
               (const CUlaunchConfig *config, CUfunction function, void **values, void **extra),
               SIM_INIT, launch_config(&call, config, function, values, extra, per_thread))
