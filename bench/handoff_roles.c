/* SPDX-License-Identifier: Apache-2.0
 *
 * handoff_roles.c: the roles of handoff_bench that use the card. No state but the board's.
 */
#include "bench/handoff.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* --- ceiling --- */

#define COPY_MARGIN (64ull << 20)

int role_ceiling(struct board *board, uint64_t bytes)
{
    const CUdevice device = open_device(CU_CTX_SCHED_AUTO);
    size_t free_bytes, total;
    int driver;

    check(cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
    board->free_bytes = free_bytes;
    board->total_bytes = total;
    check(cuDeviceGetName(board->card, sizeof board->card, device), "cuDeviceGetName");
    check(cuDriverGetVersion(&driver), "cuDriverGetVersion");
    board->driver = driver;
    board->bus = measure_bus(bytes);
    if (board->copy_count > 0 && free_bytes < 2 * board->copy_bytes + COPY_MARGIN) {
        printf("no plain copies: the card has no room for twice %llu bytes\n",
               (unsigned long long)board->copy_bytes);
        board->copy_count = 0;
    }
    if (board->copy_count > 0)
        time_duplex(board->copy_bytes, board->copy_count, board->copy_rest_ms * 1000000ull,
                    board->copies_s);
    return 0;
}

/* --- ballast --- */

int role_ballast(const struct board *board, uint64_t leave)
{
    size_t free_bytes, total;
    CUdeviceptr memory;

    (void)board;
    open_device(CU_CTX_SCHED_AUTO);
    check(cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
    if (free_bytes > leave)
        check(cuMemAlloc(&memory, free_bytes - leave), "ballast");
    puts("ready");
    fflush(stdout);
    pause(); /* until it is killed */
    return 0;
}

/* --- program --- */

#define PIECE_BYTES (20ull << 20)

struct program {
    struct board *board;
    struct side *side;
    CUdeviceptr memory, small;
    CUstream stream;
    uint32_t seed, generation;
    uint32_t *written; /* value of each block */
    uint64_t last;     /* ns: newest completion */
    bool first;        /* the next one is the order's first */
};

static void write_blocks(struct program *program, uint32_t every)
{
    const uint64_t blocks = program->board->bytes / BLOCK_BYTES;

    program->generation++;
    for (uint64_t i = 0; i < blocks; i += every) {
        program->written[i] = program->seed + program->generation * 65599u + (uint32_t)i * 7;
        check(cuMemsetD32Async(program->memory + i * BLOCK_BYTES, program->written[i],
                               BLOCK_BYTES / 4, program->stream),
              "cuMemsetD32Async");
    }
    check(cuStreamSynchronize(program->stream), "cuStreamSynchronize");
}

static void read_back(struct program *program)
{
    static uint32_t block[BLOCK_BYTES / 4];

    for (uint64_t i = 0; i < program->board->bytes / BLOCK_BYTES; i += CHECK_STRIDE) {
        bool wrong = false;

        check(cuMemcpyDtoH(block, program->memory + i * BLOCK_BYTES, BLOCK_BYTES),
              "cuMemcpyDtoH");
        for (uint64_t word = 0; word < BLOCK_BYTES / 4; word++)
            wrong |= block[word] != program->written[i];
        if (wrong)
            atomic_fetch_add(&program->side->wrong, 1);
    }
}

/* as PyTorch's expandable segments, which network cards can reach where the machine has such */
static void create_pieces(struct program *program)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    int reachable = 0;
    const CUmemAccessDesc access = {.location = kind.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const uint64_t bytes = program->board->bytes;

    check(cuDeviceGetAttribute(&reachable,
                               CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0),
          "cuDeviceGetAttribute");
    kind.allocFlags.gpuDirectRDMACapable = reachable != 0;
    check(cuMemAddressReserve(&program->memory, bytes, 0, 0, 0), "cuMemAddressReserve");
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        const uint64_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        CUmemGenericAllocationHandle handle;

        check(cuMemCreate(&handle, piece, &kind, 0), "cuMemCreate");
        check(cuMemMap(program->memory + at, piece, 0, handle, 0), "cuMemMap");
        check(cuMemRelease(handle), "cuMemRelease");
    }
    check(cuMemSetAccess(program->memory, bytes, &access, 1), "cuMemSetAccess");
}

static void note_gap(struct side *side, uint64_t from, uint64_t to)
{
    const uint32_t count = atomic_load(&side->gap_count);

    if (count >= MAX_GAPS)
        return;
    side->gaps[count] = (struct gap){from, to};
    atomic_store(&side->gap_count, count + 1);
}

static uint64_t small_work(struct program *program)
{
    uint64_t now;

    check(cuMemsetD32Async(program->small, program->generation, 1024, program->stream),
          "cuMemsetD32Async");
    check(cuStreamSynchronize(program->stream), "cuStreamSynchronize");
    now = now_ns();
    if (program->first)
        atomic_store(&program->side->finished, now);
    program->first = false;
    return now;
}

/* one small piece of work, and what follows if a turn has begun with it */
static void do_work(struct program *program)
{
    uint64_t now = small_work(program);

    if (now - program->last > GAP_NS) {
        note_gap(program->side, program->last, now);
        if (now - program->last > program->board->turn_gap) {
            if (program->board->dirty_of != 0)
                write_blocks(program, program->board->dirty_of);
            atomic_fetch_add(&program->side->turns, 1);
        }
        now = now_ns();
    }
    program->last = now;
}

static void carry_out(struct program *program, enum command command)
{
    switch (command) {
    case ALLOCATE:
        if (program->board->own)
            create_pieces(program);
        else
            check(cuMemAlloc(&program->memory, program->board->bytes), "cuMemAlloc");
        small_work(program); /* there is room for everything now */
        write_blocks(program, 1);
        break;
    case WRITE:
        write_blocks(program, 1);
        break;
    case RELEASE:
        read_back(program);
        atomic_store(&program->side->finished, now_ns()); /* the freeing itself counts */
        if (program->board->own)
            check(cuMemUnmap(program->memory, program->board->bytes), "cuMemUnmap");
        else
            check(cuMemFree(program->memory), "cuMemFree");
        break;
    case WORK:
        do_work(program);
        break;
    default:
        break;
    }
}

int role_program(struct board *board, unsigned number)
{
    struct program program = {.board = board,
                              .side = &board->side[number],
                              .seed = 0x9e3779b9u * (board->equal ? 1 : number + 1)};
    enum command command = REST;

    program.written = calloc(board->bytes / BLOCK_BYTES + 1, sizeof *program.written);
    open_device(CU_CTX_SCHED_AUTO);
    check(cuStreamCreate(&program.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuMemAlloc(&program.small, 4096), "cuMemAlloc");
    program.last = now_ns();
    while (command != QUIT) {
        const uint32_t order = atomic_load(&program.side->order);

        if (order != atomic_load(&program.side->done)) {
            command = (enum command)atomic_load(&program.side->command);
            program.last = now_ns();
            program.first = true;
            carry_out(&program, command);
            atomic_store(&program.side->done, order);
        } else if (command == WORK) {
            do_work(&program);
        } else {
            rest_ns(50000);
        }
    }
    free(program.written);
    return 0;
}
