/* SPDX-License-Identifier: Apache-2.0
 *
 * memset.c: owns the cuMemsetD* calls: lines and rectangles of 1, 2 and 4 byte values.
 * Invariants: the range is checked when submitted, or when a graph is made ready; none of the calls is waited for by the host,
 * as on a card. Threads: calls under sim.lock; the writing is done on workers.
 */
#include <string.h>
#include "tests/simcuda/graph.h"
#include "tests/simcuda/sim.h"

struct memset_op {
    struct sim_op op;
    CUDA_MEMSET_NODE_PARAMS set;
    size_t span;
};

static CUresult memset_run(const struct sim_op *op, struct sim_context *context)
{
    const CUDA_MEMSET_NODE_PARAMS *set = &((const struct memset_op *)op)->set;

    (void)context;
    for (size_t y = 0; y < set->height; y++) {
        char *row = (char *)set->dst + y * set->pitch;
        if (set->elementSize == 1)
            memset(row, (int)(set->value & 0xff), set->width);
        else if (set->elementSize == 2)
            for (size_t x = 0; x < set->width; x++)
                ((uint16_t *)(void *)row)[x] = (uint16_t)set->value;
        else
            for (size_t x = 0; x < set->width; x++)
                ((uint32_t *)(void *)row)[x] = set->value;
    }
    return CUDA_SUCCESS;
}

/* A set of no bytes gives *out NULL and CUDA_SUCCESS. */
CUresult sim_memset_op(const CUDA_MEMSET_NODE_PARAMS *set, struct sim_op **out)
{
    const size_t size = set->elementSize;
    size_t width = 0, span = 0;

    *out = NULL;
    if (size != 1 && size != 2 && size != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (!set->width || !set->height)
        return CUDA_SUCCESS;
    if (set->dst % size || (set->height > 1 && set->pitch % size) ||
        __builtin_mul_overflow(set->width, size, &width) ||
        (set->height > 1 && set->pitch < width) ||
        __builtin_mul_overflow(set->height - 1, set->pitch, &span) ||
        __builtin_add_overflow(span, width, &span))
        return CUDA_ERROR_INVALID_VALUE;
    struct memset_op *op = (struct memset_op *)sim_op_new(
        sizeof *op, "memset", CU_GRAPH_NODE_TYPE_MEMSET, memset_run);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->set = *set;
    op->span = span;
    *out = &op->op;
    return CUDA_SUCCESS;
}

void sim_memset_params(const struct sim_op *op, CUDA_MEMSET_NODE_PARAMS *set)
{
    *set = ((const struct memset_op *)op)->set;
}

CUresult sim_memset_check(const struct sim_op *op)
{
    const CUdeviceptr at = ((const struct memset_op *)op)->set.dst;

    return sim_space_of(at) == SIM_SPACE_PAGEABLE
               ? CUDA_ERROR_INVALID_VALUE
               : sim_memory_check(at, ((const struct memset_op *)op)->span, true);
}

static CUresult set_box(struct sim_call *call, struct sim_stream *stream, CUdeviceptr to,
                        size_t pitch, unsigned value, unsigned size, size_t width,
                        size_t height)
{
    const CUDA_MEMSET_NODE_PARAMS set = {.dst = to,
                                         .pitch = pitch,
                                         .value = value,
                                         .elementSize = size,
                                         .width = width,
                                         .height = height};
    struct sim_op *op = NULL;

    if (!stream)
        return call->result;
    CUresult result = sim_capture_check_submit(stream);
    if (!result)
        result = sim_memset_op(&set, &op);
    if (!result && op && !stream->capture) /* a real driver (580) records any fill */
        result = sim_memset_check(op);
    if (result)
        sim_op_put(op);
    return result || !op ? result : sim_submit(call, stream, op);
}

#define STREAM  sim_stream(&call, stream, per_thread)
#define DEFAULT sim_stream(&call, NULL, per_thread)

#define SET_API(bits, type)                                                                    \
    SIM_STREAM_API(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr to, type value, size_t count),    \
                   SIM_CTX, set_box(&call, DEFAULT, to, 0, value, bits / 8, count, 1))         \
    SIM_STREAM_API(cuMemsetD##bits##Async, _ptsz,                                              \
                   (CUdeviceptr to, type value, size_t count, CUstream stream), SIM_INIT,      \
                   set_box(&call, STREAM, to, 0, value, bits / 8, count, 1))                   \
    SIM_STREAM_API(cuMemsetD2D##bits##_v2, _ptds,                                              \
                   (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),    \
                   SIM_CTX,                                                                    \
                   set_box(&call, DEFAULT, to, pitch, value, bits / 8, width, height))         \
    SIM_STREAM_API(cuMemsetD2D##bits##Async, _ptsz,                                            \
                   (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,     \
                    CUstream stream),                                                          \
                   SIM_INIT,                                                                   \
                   set_box(&call, STREAM, to, pitch, value, bits / 8, width, height))

SET_API(8, unsigned char)
SET_API(16, unsigned short)
SET_API(32, unsigned int)
