/* SPDX-License-Identifier: Apache-2.0
 *
 * beyond.c: a program that computes on pieces of device memory as often as it is told to, for
 * overcommit_bench.py. It knows nothing of gpushare. One thread.
 *
 * Each line is answered by one line of JSON; times are ns. At the end of input it ends: exit
 * status 0, or 1 after a CUDA error or a wrong line.
 *
 *   info             {"free", "total"}, by cuMemGetInfo
 *   bus BYTES        {"h2d", "d2h", "duplex"}: bytes a second of copies from registered host memory
 *   mixed BYTES GRAIN N  {"ns", "make_ns", "drop_ns"}: one kernel over so much memory in chunks of
 *                    GRAIN bytes, of which each N-th is in host memory and the others on the card
 *                    (0: all), and how long it takes to make and map them, and to release them
 *   offset           {"result"}: the CUresult of mapping the second half of memory
 *   take N BYTES     N more pieces of so many bytes, and their first values: {"ns"}
 *   uses N N...      so many kernels go over each piece in a pass (1 at first): {}
 *   passes N         {"ns": [...]}, the time of each
 *   streams N        the pieces take turns on so many streams (1 at first): {}
 *   steps N          of a kernel with each word: {}
 *   edit             a copy from the host, a set and a copy on the device in every piece: {}
 *   kinds            {"wrong"}: pieces whose memory is not said to be the device's
 *   drop N           frees the N pieces taken last: {}
 *   check            {"wrong"}: words that are not what they must be; looks at all of them
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/card.h"
#include "bench/load.h"

#define PIECES  1024
#define STREAMS 16
#define MIXED   4096 /* chunks */
#define GRID    1056
#define BLOCK   512
#define EDITED  1024 /* words at the start of a piece that edit replaces, by each of its ways */

__asm__(".section .rodata\n.balign 64\nbeyond_fatbin:\n.incbin \"" LOAD_FATBIN
        "\"\n.byte 0\n.previous\n");
extern const char beyond_fatbin[];

struct piece {
    CUdeviceptr memory;
    uint64_t words, done; /* steps made with it */
    unsigned uses;
    uint64_t edited_at; /* steps made when it was edited; UINT64_MAX: never */
};

static struct {
    struct piece piece[PIECES];
    unsigned count;
    CUstream streams[STREAMS]; /* the first one: the legacy stream */
    unsigned stream_count;
    uint32_t steps;
    CUfunction fill, step;
} self = {.steps = 1, .stream_count = 1};

static void launch_kernel(CUfunction kernel, CUstream stream, void **params)
{
    check(cuLaunchKernel(kernel, GRID, 1, 1, BLOCK, 1, 1, 0, stream, params, NULL),
          "cuLaunchKernel");
}

static void take_pieces(unsigned count, uint64_t bytes)
{
    const uint64_t from = now_ns();

    for (unsigned i = 0; i < count && self.count < PIECES; i++) {
        struct piece *piece = &self.piece[self.count];
        uint64_t first = self.count;

        *piece = (struct piece){.words = bytes / 4, .uses = 1, .edited_at = UINT64_MAX};
        check(cuMemAlloc(&piece->memory, bytes), "cuMemAlloc");
        launch_kernel(self.fill, NULL, (void *[]){&piece->memory, &piece->words, &first});
        self.count++;
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    printf("{\"ns\": %" PRIu64 "}\n", now_ns() - from);
}

static CUmemAllocationProp card_memory(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
}

/* The memory is the driver's own: for an unpatched copy. Each chunk gets its access by itself, as
 * in the library's hand-offs. */
static void make_mixed(CUdeviceptr base, uint64_t grain, unsigned count, unsigned part,
                       CUmemGenericAllocationHandle *handles)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAllocationProp card = card_memory();
    CUmemAllocationProp host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};

    if (cuDeviceGetAttribute(&host.location.id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0) !=
            CUDA_SUCCESS ||
        host.location.id < 0)
        host.location.id = 0;
    for (unsigned i = 0; i < count; i++) {
        check(cuMemCreate(&handles[i], grain, part != 0 && i % part == part - 1 ? &host : &card,
                          0),
              "cuMemCreate");
        check(cuMemMap(base + i * grain, grain, 0, handles[i], 0), "cuMemMap");
        check(cuMemSetAccess(base + i * grain, grain, &access, 1), "cuMemSetAccess");
    }
}

static uint64_t drop_mixed(CUdeviceptr base, uint64_t grain, unsigned count,
                           const CUmemGenericAllocationHandle *handles)
{
    const uint64_t from = now_ns();

    for (unsigned i = 0; i < count; i++) {
        check(cuMemUnmap(base + i * grain, grain), "cuMemUnmap");
        check(cuMemRelease(handles[i]), "cuMemRelease");
    }
    return now_ns() - from;
}

static bool mixed(uint64_t bytes, uint64_t grain, unsigned part)
{
    static CUmemGenericAllocationHandle handles[MIXED];
    const unsigned count = grain != 0 ? (unsigned)(bytes / grain) : 0;
    uint64_t words = bytes / 4, best = UINT64_MAX, from, made;
    uint32_t steps = 1;
    CUdeviceptr base;

    if (count == 0 || count > MIXED || count * grain != bytes)
        return false;
    check(cuMemAddressReserve(&base, bytes, 0, 0, 0), "cuMemAddressReserve");
    from = now_ns();
    make_mixed(base, grain, count, part, handles);
    made = now_ns() - from;
    for (unsigned i = 0; i < 3; i++) {
        from = now_ns();
        launch_kernel(self.step, NULL, (void *[]){&base, &words, &steps});
        check(cuCtxSynchronize(), "cuCtxSynchronize");
        if (now_ns() - from < best)
            best = now_ns() - from;
    }
    from = drop_mixed(base, grain, count, handles);
    check(cuMemAddressFree(base, bytes), "cuMemAddressFree");
    printf("{\"ns\": %" PRIu64 ", \"make_ns\": %" PRIu64 ", \"drop_ns\": %" PRIu64 "}\n", best,
           made, from);
    return true;
}

/* NVIDIA's manual wants cuMemMap's offset to be 0. */
static void try_offset(void)
{
    const uint64_t half = 2u << 20;
    const CUmemAllocationProp card = card_memory();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    CUresult result;

    check(cuMemAddressReserve(&base, half, 0, 0, 0), "cuMemAddressReserve");
    check(cuMemCreate(&handle, 2 * half, &card, 0), "cuMemCreate");
    result = cuMemMap(base, half, half, handle, 0);
    if (result == CUDA_SUCCESS)
        check(cuMemUnmap(base, half), "cuMemUnmap");
    check(cuMemRelease(handle), "cuMemRelease");
    check(cuMemAddressFree(base, half), "cuMemAddressFree");
    printf("{\"result\": %d}\n", (int)result);
}

static bool set_uses(char *words)
{
    char *word = strtok(words, " \n");

    for (unsigned i = 0; i < self.count; i++, word = strtok(NULL, " \n")) {
        if (word == NULL)
            return false;
        self.piece[i].uses = (unsigned)strtoul(word, NULL, 10);
    }
    puts("{}");
    return true;
}

/* They wait for the legacy stream, and it for them. */
static bool set_streams(unsigned count)
{
    if (count == 0 || count > STREAMS)
        return false;
    for (unsigned i = 1; i < count; i++)
        if (self.streams[i] == NULL)
            check(cuStreamCreate(&self.streams[i], CU_STREAM_DEFAULT), "cuStreamCreate");
    self.stream_count = count;
    puts("{}");
    return true;
}

static void one_pass(void)
{
    for (unsigned i = 0; i < self.count; i++)
        for (unsigned use = 0; use < self.piece[i].uses; use++) {
            launch_kernel(self.step, self.streams[i % self.stream_count],
                          (void *[]){&self.piece[i].memory, &self.piece[i].words, &self.steps});
            self.piece[i].done += self.steps;
        }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void run_passes(unsigned count)
{
    printf("{\"ns\": [");
    for (unsigned i = 0; i < count; i++) {
        const uint64_t from = now_ns();

        one_pass();
        printf("%s%" PRIu64, i != 0 ? ", " : "", now_ns() - from);
    }
    puts("]}");
}

static void edit_pieces(void)
{
    static uint32_t words[EDITED];

    for (unsigned i = 0; i < self.count; i++) {
        const CUdeviceptr at = self.piece[i].memory;

        for (unsigned k = 0; k < EDITED; k++)
            words[k] = i + k;
        check(cuMemcpyHtoD(at, words, sizeof words), "cuMemcpyHtoD");
        check(cuMemsetD32(at + sizeof words, i, EDITED), "cuMemsetD32");
        check(cuMemcpyDtoD(at + 2 * sizeof words, self.piece[(i + 1) % self.count].memory,
                           sizeof words),
              "cuMemcpyDtoD");
        check(cuMemcpyHtoD(at + 2 * sizeof words, words, sizeof words), "cuMemcpyHtoD");
        self.piece[i].edited_at = self.piece[i].done;
    }
    puts("{}");
}

static void list_kinds(void)
{
    unsigned wrong = 0, type;

    for (unsigned i = 0; i < self.count; i++)
        for (unsigned end = 0; end < 2; end++) {
            check(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        self.piece[i].memory +
                                            end * (self.piece[i].words * 4 - 4)),
                  "cuPointerGetAttribute");
            wrong += type != CU_MEMORYTYPE_DEVICE;
        }
    printf("{\"wrong\": %u}\n", wrong);
}

static uint32_t expect_word(const struct piece *piece, unsigned number, uint64_t word,
                            const uint32_t *factor, const uint32_t *addend)
{
    const bool edited = piece->edited_at != UINT64_MAX && word < 3ull * EDITED;
    uint32_t value = (uint32_t)(number + word) * LOAD_FIRST;

    if (edited)
        value = word / EDITED == 1 ? number : number + (uint32_t)(word % EDITED);
    return value * factor[edited] + addend[edited];
}

/* The effect of so many steps on a word: value * factor + addend. */
static void many_steps(uint64_t steps, uint32_t *factor, uint32_t *addend)
{
    *factor = 1;
    *addend = 0;
    for (uint64_t i = 0; i < steps; i++) {
        *factor *= LOAD_FACTOR;
        *addend = *addend * LOAD_FACTOR + LOAD_ADDEND;
    }
}

static uint64_t wrong_words(const struct piece *piece, unsigned number, uint32_t *copy,
                            uint64_t room)
{
    uint32_t factor[2], addend[2] = {0, 0};
    uint64_t wrong = 0;

    many_steps(piece->done, &factor[0], &addend[0]);
    factor[1] = 1;
    if (piece->edited_at != UINT64_MAX)
        many_steps(piece->done - piece->edited_at, &factor[1], &addend[1]);
    for (uint64_t at = 0; at < piece->words; at += room) {
        const uint64_t words = piece->words - at < room ? piece->words - at : room;

        check(cuMemcpyDtoH(copy, piece->memory + at * 4, words * 4), "cuMemcpyDtoH");
        for (uint64_t i = 0; i < words; i++)
            wrong += copy[i] != expect_word(piece, number, at + i, factor, addend);
    }
    return wrong;
}

static void check_all(void)
{
    const uint64_t room = 16u << 20;
    uint32_t *copy = NULL;
    uint64_t wrong = 0;

    check(cuMemAllocHost((void **)&copy, room * 4), "cuMemAllocHost");
    for (unsigned i = 0; i < self.count; i++)
        wrong += wrong_words(&self.piece[i], i, copy, room);
    check(cuMemFreeHost(copy), "cuMemFreeHost");
    printf("{\"wrong\": %" PRIu64 "}\n", wrong);
}

static void drop_pieces(unsigned count)
{
    while (count-- > 0 && self.count > 0)
        check(cuMemFree(self.piece[--self.count].memory), "cuMemFree");
    puts("{}");
}

static void print_info(void)
{
    size_t free_bytes = 0, total = 0;

    check(cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
    printf("{\"free\": %zu, \"total\": %zu}\n", free_bytes, total);
}

static bool obey_line(char *line)
{
    unsigned long long count, bytes, grain;

    if (strcmp(line, "info\n") == 0) {
        print_info();
    } else if (sscanf(line, "bus %llu", &bytes) == 1) { // NOLINT(cert-err34-c)
        const struct bus bus = measure_bus(bytes);

        printf("{\"h2d\": %.0f, \"d2h\": %.0f, \"duplex\": %.0f}\n", bus.h2d, bus.d2h,
               bus.duplex);
    } else if (sscanf(line, "mixed %llu %llu %llu", &bytes, &grain, &count) == 3) { // NOLINT
        return mixed(bytes, grain, (unsigned)count);
    } else if (strcmp(line, "offset\n") == 0) {
        try_offset();
    } else if (sscanf(line, "take %llu %llu", &count, &bytes) == 2) { // NOLINT(cert-err34-c)
        take_pieces((unsigned)count, bytes);
    } else if (strncmp(line, "uses ", 5) == 0) {
        return set_uses(line + 5);
    } else if (sscanf(line, "passes %llu", &count) == 1) { // NOLINT(cert-err34-c)
        run_passes((unsigned)count);
    } else if (sscanf(line, "streams %llu", &count) == 1) { // NOLINT(cert-err34-c)
        return set_streams((unsigned)count);
    } else if (sscanf(line, "steps %llu", &count) == 1) { // NOLINT(cert-err34-c)
        self.steps = (uint32_t)count;
        puts("{}");
    } else if (sscanf(line, "drop %llu", &count) == 1) { // NOLINT(cert-err34-c)
        drop_pieces((unsigned)count);
    } else if (strcmp(line, "edit\n") == 0) {
        edit_pieces();
    } else if (strcmp(line, "kinds\n") == 0) {
        list_kinds();
    } else if (strcmp(line, "check\n") == 0) {
        check_all();
    } else {
        return false;
    }
    return true;
}

int main(void)
{
    static char line[8 * PIECES];
    CUmodule module;

    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device(CU_CTX_SCHED_BLOCKING_SYNC);
    check(cuModuleLoadData(&module, beyond_fatbin), "cuModuleLoadData");
    check(cuModuleGetFunction(&self.fill, module, "load_fill"), "load_fill");
    check(cuModuleGetFunction(&self.step, module, "load_step"), "load_step");
    while (fgets(line, sizeof line, stdin) != NULL)
        if (!obey_line(line))
            return 1;
    return 0;
}
