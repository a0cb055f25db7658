/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c: owns copies: boxes of bytes between device, page-locked and pageable memory, with the
 * bus they take.
 *
 * As on a card: a copy from pageable memory has read its source before the call returns (small
 * ones are staged, large ones waited for); a copy to pageable memory is waited for; page-locked
 * memory is read and written when the stream gets there. A synchronous copy within the device
 * is not waited for by the host. Invariants: every range is checked against the driver's tables
 * when the copy is submitted. Threads: calls under sim.lock; copies run on workers.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/sim.h"

#define STAGE_MOST (1u << 20) /* bytes that are staged; more is waited for */
#define BUS_CHUNK  (2u << 20) /* bytes booked on the bus at once */

enum copy_way { WAY_TO_DEVICE, WAY_TO_HOST, WAY_ON_DEVICE, WAY_ON_HOST };

struct copy_op {
    struct sim_op op;
    struct sim_copy copy;
    enum copy_way way;
    void *staged;
};

/* Moves size bytes as the bus lets them through: one chunk is booked ahead, so that sleeping
 * late costs no bandwidth. */
static void move_bytes(struct sim_card *card, enum copy_way way, void *to, const void *from,
                       size_t size, uint64_t *last_end)
{
    const bool bus = way == WAY_TO_DEVICE || way == WAY_TO_HOST;
    const enum sim_direction direction = way == WAY_TO_DEVICE ? SIM_TO_DEVICE : SIM_TO_HOST;

    if (!bus || !card->properties.pcie_rate) {
        memmove(to, from, size);
        return;
    }
    for (size_t done = 0; done < size;) {
        const size_t piece = size - done < BUS_CHUNK ? size - done : BUS_CHUNK;
        const uint64_t end = sim_card_book_bus(card, direction, piece);
        memmove((char *)to + done, (const char *)from + done, piece);
        if (*last_end)
            sim_sleep_until(*last_end);
        *last_end = end;
        done += piece;
    }
}

static CUresult copy_run(const struct sim_op *op, struct sim_context *context)
{
    const struct copy_op *self = (const struct copy_op *)op;
    const struct sim_copy *copy = &self->copy;
    struct sim_card *card = sim_context_device(context)->card;
    const char *source = self->staged ? self->staged : (const char *)copy->from;
    const size_t total = copy->width * copy->height * copy->depth;
    uint64_t *counter = self->way == WAY_TO_DEVICE ? &sim_stats.to_device_bytes
                        : self->way == WAY_TO_HOST ? &sim_stats.to_host_bytes
                                                   : &sim_stats.on_device_bytes;
    uint64_t end = 0;

    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++)
            move_bytes(
                card, self->way, (char *)copy->to + (z * copy->to_height + y) * copy->to_pitch,
                source + (z * copy->from_height + y) * copy->from_pitch, copy->width, &end);
    if (end)
        sim_sleep_until(end);
    sim_count(counter, total);
    return CUDA_SUCCESS;
}

static void copy_release(struct sim_op *op)
{
    free(((struct copy_op *)op)->staged);
}

/* Bytes from the first to behind the last of one side of the box; false if that does not fit
 * into 64 bits. */
static bool box_span(const struct sim_copy *copy, size_t pitch, size_t height, size_t *span)
{
    size_t rows = 0, bytes = 0;

    if (__builtin_mul_overflow(copy->depth - 1, height, &rows) ||
        __builtin_add_overflow(rows, copy->height - 1, &rows) ||
        __builtin_mul_overflow(rows, pitch, &bytes) ||
        __builtin_add_overflow(bytes, copy->width, span))
        return false;
    return (copy->height == 1 && copy->depth == 1) || pitch >= copy->width;
}

static CUresult box_check(const struct sim_copy *copy, size_t *from_span)
{
    size_t to_span = 0;

    if (!box_span(copy, copy->to_pitch, copy->to_height, &to_span) ||
        !box_span(copy, copy->from_pitch, copy->from_height, from_span))
        return CUDA_ERROR_INVALID_VALUE;
    if (!copy->to || !copy->from)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_memory_check(copy->to, to_span, true);
    return result ? result : sim_memory_check(copy->from, *from_span, false);
}

/* A zero-sized box gives *out NULL and CUDA_SUCCESS. */
static CUresult copy_new(const struct sim_copy *copy, struct copy_op **out, size_t *from_span)
{
    *out = NULL;
    if (!copy->width || !copy->height || !copy->depth)
        return CUDA_SUCCESS;
    const CUresult result = box_check(copy, from_span);
    if (result)
        return result;
    const enum sim_space to = sim_space_of(copy->to), from = sim_space_of(copy->from);
    struct copy_op *self =
        (struct copy_op *)sim_op_new(sizeof *self, "copy", CU_GRAPH_NODE_TYPE_MEMCPY, copy_run);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->op.release = copy_release;
    self->copy = *copy;
    self->way = to == SIM_SPACE_DEVICE
                    ? (from == SIM_SPACE_DEVICE ? WAY_ON_DEVICE : WAY_TO_DEVICE)
                    : (from == SIM_SPACE_DEVICE ? WAY_TO_HOST : WAY_ON_HOST);
    *out = self;
    return CUDA_SUCCESS;
}

/* For a graph: the source is read whenever the graph runs. */
CUresult sim_copy_node_op(const struct sim_copy *copy, struct sim_op **out)
{
    struct copy_op *self = NULL;
    size_t from_span = 0;
    const CUresult result = copy_new(copy, &self, &from_span);

    *out = self ? &self->op : NULL;
    return result;
}

CUresult sim_copy_op(const struct sim_copy *copy, bool sync, struct sim_op **out,
                     bool *must_wait)
{
    struct copy_op *self = NULL;
    size_t from_span = 0;
    const CUresult result = copy_new(copy, &self, &from_span);

    *out = NULL;
    *must_wait = false;
    if (result || !self)
        return result;
    const enum sim_space to = sim_space_of(copy->to), from = sim_space_of(copy->from);
    if (to == SIM_SPACE_PAGEABLE || (sync && self->way != WAY_ON_DEVICE))
        *must_wait = true;
    else if (from == SIM_SPACE_PAGEABLE && from_span > STAGE_MOST)
        *must_wait = true;
    else if (from == SIM_SPACE_PAGEABLE) {
        self->staged = malloc(from_span);
        if (!self->staged) {
            sim_op_put(&self->op);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(self->staged, (const void *)copy->from, from_span);
    }
    *out = &self->op;
    return CUDA_SUCCESS;
}

/* A real driver (580) takes mapped memory with any type that there is not. */
static bool is_mapped(CUmemorytype type, CUdeviceptr address)
{
    return (type < CU_MEMORYTYPE_HOST || type > CU_MEMORYTYPE_UNIFIED) &&
           !sim_allocation_find(address) && sim_ranges_find(&sim_mappings, address);
}

/* One side of a CUDA_MEMCPY3D. */
static CUresult box_side(CUmemorytype type, const void *host, CUdeviceptr device, size_t x,
                         size_t y, size_t z, size_t lod, size_t *pitch, size_t *height,
                         const CUDA_MEMCPY3D *box, CUdeviceptr *address)
{
    size_t row = 0, offset = 0;

    if (lod)
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEMORYTYPE_HOST)
        *address = (CUdeviceptr)host;
    else if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ||
             is_mapped(type, device))
        *address = device;
    else if (!box->WidthInBytes || !box->Height || !box->Depth)
        *address = 0; /* as a real driver (580): nobody asks */
    else
        return type == CU_MEMORYTYPE_ARRAY ? CUDA_ERROR_NOT_SUPPORTED
                                           : CUDA_ERROR_INVALID_VALUE;
    if (*pitch && box->WidthInBytes + x > *pitch && box->WidthInBytes && box->Height &&
        box->Depth && type != CU_MEMORYTYPE_HOST && sim_allocation_find(device) &&
        !sim_allocation_find(device)->pool)
        return CUDA_ERROR_INVALID_VALUE; /* as a real driver (580); any pitch does elsewhere */
    if (!*pitch)
        *pitch = box->WidthInBytes + x;
    if (!*height)
        *height = box->Height + y;
    if (__builtin_mul_overflow(z, *height, &row) || __builtin_add_overflow(row, y, &row) ||
        __builtin_mul_overflow(row, *pitch, &offset) ||
        __builtin_add_overflow(offset, x, &offset) ||
        __builtin_add_overflow(*address, offset, address))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult sim_copy_from_3d(const CUDA_MEMCPY3D *box, struct sim_copy *copy)
{
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    *copy = (struct sim_copy){.to_pitch = box->dstPitch,
                              .to_height = box->dstHeight,
                              .from_pitch = box->srcPitch,
                              .from_height = box->srcHeight,
                              .width = box->WidthInBytes,
                              .height = box->Height,
                              .depth = box->Depth};
    const CUresult result = box_side(box->srcMemoryType, box->srcHost, box->srcDevice,
                                     box->srcXInBytes, box->srcY, box->srcZ, box->srcLOD,
                                     &copy->from_pitch, &copy->from_height, box, &copy->from);
    return result ? result
                  : box_side(box->dstMemoryType, box->dstHost, box->dstDevice, box->dstXInBytes,
                             box->dstY, box->dstZ, box->dstLOD, &copy->to_pitch,
                             &copy->to_height, box, &copy->to);
}
