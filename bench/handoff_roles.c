/* SPDX-License-Identifier: Apache-2.0
 *
 * handoff_roles.c: the roles of handoff_bench that use the card. No state but the board's.
 */
#include "bench/handoff.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define COPY_BYTES (64ull << 20) /* of each copy that measures a ceiling */

void check(CUresult result, const char *what)
{
    const char *name = "?";

    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "handoff_bench: %s: %s (%d)\n", what, name, result);
    exit(1);
}

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void rest_ns(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

    nanosleep(&time, NULL);
}

static CUdevice open_device(void)
{
    CUdevice device;
    CUcontext context;

    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    return device;
}

/* --- ceiling --- */

struct lane { /* one direction of the bus */
    CUstream stream;
    CUdeviceptr device;
    char *host;
};

struct touched {
    char *from;
    uint64_t bytes;
};

static void *touch(void *argument)
{
    const struct touched *part = argument;

    for (uint64_t at = 0; at < part->bytes; at += 4096)
        part->from[at] = 1;
    return NULL;
}

static char *host_memory(uint64_t bytes)
{
    struct touched parts[4];
    pthread_t threads[4];
    char *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (host == MAP_FAILED) {
        perror("handoff_bench: host memory");
        exit(1);
    }
    madvise(host, bytes, MADV_HUGEPAGE);
    for (unsigned i = 0; i < 4; i++) {
        parts[i] = (struct touched){host + bytes / 4 * i, bytes / 4};
        pthread_create(&threads[i], NULL, touch, &parts[i]);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    check(cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_PORTABLE), "cuMemHostRegister");
    return host;
}

static void queue(struct lane *lane, bool in, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += COPY_BYTES) {
        const uint64_t part = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;

        if (in)
            check(cuMemcpyHtoDAsync(lane->device + at, lane->host + at, part, lane->stream),
                  "copy to the card");
        else
            check(cuMemcpyDtoHAsync(lane->host + at, lane->device + at, part, lane->stream),
                  "copy from the card");
    }
}

/* Bytes a second of the best of three passes: what the bus can do. */
static double rate(struct lane *in, struct lane *out, uint64_t bytes)
{
    double best = 0;

    for (unsigned pass = 0; pass < 3; pass++) {
        const uint64_t start = now_ns();
        double seconds;

        if (out != NULL)
            queue(out, false, bytes);
        if (in != NULL)
            queue(in, true, bytes);
        if (out != NULL)
            check(cuStreamSynchronize(out->stream), "cuStreamSynchronize");
        if (in != NULL)
            check(cuStreamSynchronize(in->stream), "cuStreamSynchronize");
        seconds = (double)(now_ns() - start) / 1e9;
        if ((double)bytes / seconds > best)
            best = (double)bytes / seconds;
    }
    return in != NULL && out != NULL ? 2 * best : best;
}

int role_ceiling(struct board *board, uint64_t bytes)
{
    const CUdevice device = open_device();
    struct lane lanes[2];
    size_t free_bytes, total;
    int driver;

    check(cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
    board->free_bytes = free_bytes;
    board->total_bytes = total;
    check(cuDeviceGetName(board->card, sizeof board->card, device), "cuDeviceGetName");
    check(cuDriverGetVersion(&driver), "cuDriverGetVersion");
    board->driver = driver;
    for (unsigned i = 0; i < 2; i++) {
        check(cuStreamCreate(&lanes[i].stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        check(cuMemAlloc(&lanes[i].device, bytes), "cuMemAlloc");
        lanes[i].host = host_memory(bytes);
    }
    board->h2d = rate(&lanes[0], NULL, bytes);
    board->d2h = rate(NULL, &lanes[1], bytes);
    board->duplex = rate(&lanes[0], &lanes[1], bytes);
    return 0;
}

/* --- ballast --- */

int role_ballast(const struct board *board, uint64_t leave)
{
    size_t free_bytes, total;
    CUdeviceptr memory;

    (void)board;
    open_device();
    check(cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
    if (free_bytes > leave)
        check(cuMemAlloc(&memory, free_bytes - leave), "ballast");
    puts("ready");
    fflush(stdout);
    pause(); /* until it is killed */
    return 0;
}

/* --- program --- */

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
static void work(struct program *program)
{
    uint64_t now = small_work(program);

    if (now - program->last > GAP_NS) {
        note_gap(program->side, program->last, now);
        if (now - program->last > program->board->turn_gap) {
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
        check(cuMemAlloc(&program->memory, program->board->bytes), "cuMemAlloc");
        small_work(program); /* there is room for everything now */
        write_blocks(program, 1);
        break;
    case RELEASE:
        read_back(program);
        atomic_store(&program->side->finished, now_ns()); /* the freeing itself counts */
        check(cuMemFree(program->memory), "cuMemFree");
        break;
    case WORK:
        work(program);
        break;
    default:
        break;
    }
}

int role_program(struct board *board, unsigned number)
{
    struct program program = {
        .board = board, .side = &board->side[number], .seed = 0x9e3779b9u * (number + 1)};
    enum command command = REST;

    program.written = calloc(board->bytes / BLOCK_BYTES + 1, sizeof *program.written);
    open_device();
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
            work(&program);
        } else {
            rest_ns(50000);
        }
    }
    free(program.written);
    return 0;
}
