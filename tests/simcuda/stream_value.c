/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_value.c: waits for and writes of a value in memory, as operations of a stream. Threads: any,
 * under sim.lock; the operations run on workers.
 */
#include <time.h>
#include "tests/simcuda/sim.h"

struct value_op {
    struct sim_op op;
    CUdeviceptr address;
    uint64_t value;
    unsigned flags;
    bool wide, write;
};

static bool value_reached(const struct value_op *value)
{
    const uint64_t mask = value->wide ? UINT64_MAX : UINT32_MAX;
    const uint64_t now =
        value->wide ? __atomic_load_n((const uint64_t *)value->address, __ATOMIC_ACQUIRE)
                    : __atomic_load_n((const uint32_t *)value->address, __ATOMIC_ACQUIRE);

    switch (value->flags & 3u) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == value->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & value->value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return (~(now | value->value) & mask) != 0;
    default: /* greater or equal, cyclic */
        return value->wide ? (int64_t)(now - value->value) >= 0
                           : (int32_t)((uint32_t)now - (uint32_t)value->value) >= 0;
    }
}

static CUresult value_run(const struct sim_op *op, struct sim_context *context)
{
    const struct value_op *value = (const struct value_op *)op;

    if (value->write) {
        if (value->wide)
            __atomic_store_n((uint64_t *)value->address, value->value, __ATOMIC_RELEASE);
        else
            __atomic_store_n((uint32_t *)value->address, (uint32_t)value->value,
                             __ATOMIC_RELEASE);
        return CUDA_SUCCESS;
    }
    while (!value_reached(value) && !__atomic_load_n(&context->dying, __ATOMIC_RELAXED)) {
        const struct timespec pause = {.tv_nsec = 20000};
        nanosleep(&pause, NULL);
    }
    return CUDA_SUCCESS;
}

static CUresult value_submit(struct sim_call *call, struct sim_stream *stream,
                             CUdeviceptr address, uint64_t number, unsigned flags, bool wide,
                             bool write)
{
    const size_t size = wide ? 8 : 4;

    if (flags & ~(write ? 1u : (3u | (1u << 30))) || address % size)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_space_of(address) == SIM_SPACE_PAGEABLE ||
        sim_memory_check(address, size, write) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    struct value_op *value =
        (struct value_op *)sim_op_new(sizeof *value, write ? "value write" : "value wait",
                                      CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, value_run);
    if (value) {
        value->address = address;
        value->value = number;
        value->flags = flags;
        value->wide = wide;
        value->write = write;
    }
    return sim_submit(call, stream, value ? &value->op : NULL);
}

static CUresult value_batch(struct sim_call *call, struct sim_stream *stream, unsigned count,
                            const CUstreamBatchMemOpParams *batch)
{
    CUresult result = count && !batch ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

    for (unsigned i = 0; i < count && !result; i++) {
        const CUstreamBatchMemOpType type = batch[i].operation;
        const bool wide =
            type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        if (type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            result = value_submit(call, stream, batch[i].waitValue.address,
                                  wide ? batch[i].waitValue.value64 : batch[i].waitValue.value,
                                  batch[i].waitValue.flags, wide, false);
        else if (type == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                 type == CU_STREAM_MEM_OP_WRITE_VALUE_64)
            result =
                value_submit(call, stream, batch[i].writeValue.address,
                             wide ? batch[i].writeValue.value64 : batch[i].writeValue.value,
                             batch[i].writeValue.flags, wide, true);
        else if (type != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES &&
                 type != CU_STREAM_MEM_OP_BARRIER)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

#define STREAM sim_stream(&call, stream, per_thread)

#define VALUE_API(symbol, type, wide, write)                                                   \
    SIM_STREAM_API(symbol, _ptsz,                                                              \
                   (CUstream stream, CUdeviceptr address, type value, unsigned int flags),     \
                   SIM_CTX, value_submit(&call, STREAM, address, value, flags, wide, write))
VALUE_API(cuStreamWaitValue32, cuuint32_t, false, false)
VALUE_API(cuStreamWaitValue64, cuuint64_t, true, false)
VALUE_API(cuStreamWriteValue32, cuuint32_t, false, true)
VALUE_API(cuStreamWriteValue64, cuuint64_t, true, true)
VALUE_API(cuStreamWaitValue32_v2, cuuint32_t, false, false)
VALUE_API(cuStreamWaitValue64_v2, cuuint64_t, true, false)
VALUE_API(cuStreamWriteValue32_v2, cuuint32_t, false, true)
VALUE_API(cuStreamWriteValue64_v2, cuuint64_t, true, true)
SIM_STREAM_API(cuStreamBatchMemOp, _ptsz,
               (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *batch,
                unsigned int flags),
               SIM_CTX,
               flags ? CUDA_ERROR_INVALID_VALUE : value_batch(&call, STREAM, count, batch))
SIM_STREAM_API(cuStreamBatchMemOp_v2, _ptsz,
               (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *batch,
                unsigned int flags),
               SIM_CTX,
               flags ? CUDA_ERROR_INVALID_VALUE : value_batch(&call, STREAM, count, batch))
