/* SPDX-License-Identifier: Apache-2.0
 *
 * managed_random.c: a program that does random things to managed memory, and says on stdout what
 * it is told: the same with gpushare and without it, whatever is moved meanwhile.
 *
 *   managed_random SEED STEPS
 *
 * Memory is looked at in blocks of 2 MiB, the pages of the simulated driver. Each has one value, which the processor, copies, sets
 * and kernels change; what is not as expected ends the program with 1.
 */
#include "tests/runtime/check.h"
#include "tests/runtime/random.h"

#define BLOCK  (2 * MIB)
#define PIECES 6
#define MOST   5 /* blocks of a piece */

struct piece {
    CUdeviceptr address; /* 0: none */
    size_t blocks;
    bool attached_host;
    uint8_t value[MOST];
};

static struct piece pieces[PIECES];
static uint64_t dice;
static CUfunction kernel;

static size_t draw_below(size_t limit)
{
    return (size_t)random_below(&dice, limit);
}

static void run_add(const struct simcuda_launch *launch)
{
    uint8_t *bytes = *(uint8_t **)launch->params[0];
    const uint64_t count = *(const uint64_t *)launch->params[1];

    for (uint64_t at = 0; at < count; at += BLOCK / 2) /* two bytes of a block are looked at */
        ++*(volatile uint8_t *)(bytes + at);
}

static const uint32_t add_sizes[] = {8, 8};
__attribute__((visibility("default"))) const struct simcuda_kernel simcuda_kernels[] = {
    {"add", run_add, 2, add_sizes}, {NULL, NULL, 0, NULL}};

/* --- a part of a piece --- */

struct part {
    struct piece *piece;
    size_t from, count; /* blocks */
    CUdeviceptr address;
    size_t bytes;
};

static struct part random_part(struct piece *piece)
{
    const size_t from = draw_below(piece->blocks), count = 1 + draw_below(piece->blocks - from);

    return (struct part){piece, from, count, piece->address + from * BLOCK, count * BLOCK};
}

static CUmemLocation random_location(void)
{
    return draw_below(2) == 0 ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}
                              : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
}

static void expect_byte(const struct part *part, size_t block, uint8_t is)
{
    const uint8_t must = part->piece->value[part->from + block];

    if (is == must)
        return;
    fprintf(stderr, "managed_random: block %zu is %u, must be %u\n", part->from + block, is,
            must);
    exit(1);
}

static void look_at(const struct part *part, const volatile uint8_t *bytes)
{
    for (size_t i = 0; i < part->count; i++) {
        expect_byte(part, i, bytes[i * BLOCK]);
        expect_byte(part, i, bytes[i * BLOCK + BLOCK / 2]);
    }
}

/* --- what is done --- */

static void do_alloc(struct piece *piece)
{
    const unsigned flags = draw_below(8) == 0 ? CU_MEM_ATTACH_HOST : CU_MEM_ATTACH_GLOBAL;

    *piece = (struct piece){.blocks = 1 + draw_below(MOST)};
    OK(cuMemAllocManaged(&piece->address, piece->blocks * BLOCK, flags));
    piece->attached_host = flags == CU_MEM_ATTACH_HOST;
    if (!piece->attached_host)
        OK(cuMemsetD8(piece->address, 0, piece->blocks * BLOCK));
    else
        memset((void *)piece->address, 0, piece->blocks * BLOCK);
    printf("alloc %zu: %zu%s\n", (size_t)(piece - pieces), piece->blocks,
           piece->attached_host ? " host" : "");
}

static void do_free(struct piece *piece)
{
    OK(cuMemFree(piece->address));
    piece->address = 0;
    printf("free %zu\n", (size_t)(piece - pieces));
}

static void do_advise(struct piece *piece)
{
    const struct part part = random_part(piece);
    const CUmem_advise advice = (CUmem_advise)(1 + draw_below(6));
    const CUmemLocation location = random_location();
    const CUresult result = cuMemAdvise(part.address, part.bytes, advice, location);

    printf("advise %zu: %zu+%zu %d %d: %d\n", (size_t)(piece - pieces), part.from, part.count,
           (int)advice, (int)location.type, (int)result);
}

static void do_prefetch(struct piece *piece)
{
    const struct part part = random_part(piece);

    const CUmemLocation location = random_location();

    printf("prefetch %zu: %zu+%zu %d: %d\n", (size_t)(piece - pieces), part.from, part.count,
           (int)location.type,
           (int)cuMemPrefetchAsync(part.address, part.bytes, location, 0, NULL));
}

static void do_write(struct piece *piece)
{
    const struct part part = random_part(piece);
    const uint8_t value = (uint8_t)draw_below(256);

    OK(cuCtxSynchronize());
    memset((void *)part.address, value, part.bytes);
    memset(piece->value + part.from, value, part.count);
}

static void do_set(struct piece *piece)
{
    const struct part part = random_part(piece);
    const uint8_t value = (uint8_t)draw_below(256);

    if (piece->attached_host)
        return;
    OK(cuMemsetD8Async(part.address, value, part.bytes, NULL));
    memset(piece->value + part.from, value, part.count);
}

static void do_kernel(struct piece *piece)
{
    struct part part = random_part(piece);
    uint64_t bytes = part.bytes;
    void *parameters[] = {&part.address, &bytes};

    if (piece->attached_host)
        return;
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    for (size_t i = 0; i < part.count; i++)
        piece->value[part.from + i]++;
}

static void do_read(struct piece *piece)
{
    const struct part part = random_part(piece);

    OK(cuCtxSynchronize());
    look_at(&part, (const uint8_t *)part.address);
}

static void do_copy(struct piece *piece)
{
    static uint8_t copy[MOST * BLOCK];
    const struct part part = random_part(piece);

    if (piece->attached_host)
        return;
    OK(cuMemcpyDtoH(copy, part.address, part.bytes));
    look_at(&part, copy);
}

static void do_ask(struct piece *piece)
{
    static const CUmem_range_attribute which[] = {
        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION};
    const struct part part = random_part(piece);

    OK(cuCtxSynchronize());
    printf("facts of %zu: %zu+%zu", (size_t)(piece - pieces), part.from, part.count);
    for (unsigned i = 0; i < 4; i++) {
        int value = -99;
        const CUresult result =
            cuMemRangeGetAttribute(&value, sizeof value, which[i], part.address, part.bytes);

        printf(" %d:%d", (int)result, value);
    }
    printf("\n");
}

static void do_step(void)
{
    static void (*const done[])(struct piece *) = {
        do_advise, do_advise, do_prefetch, do_prefetch, do_write, do_set, do_set, do_kernel,
        do_kernel, do_read,   do_read,     do_copy,     do_ask,   do_ask, do_ask, do_free};
    struct piece *piece = &pieces[draw_below(PIECES)];

    if (piece->address == 0)
        do_alloc(piece);
    else
        done[draw_below(sizeof done / sizeof done[0])](piece);
}

int main(int argc, char **argv)
{
    CUmodule module;

    if (argc != 3) {
        fprintf(stderr, "usage: managed_random SEED STEPS\n");
        return 2;
    }
    dice = strtoull(argv[1], NULL, 10);
    begin_context();
    OK(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n"));
    OK(cuModuleGetFunction(&kernel, module, "add"));
    for (unsigned long i = strtoul(argv[2], NULL, 10); i != 0; i--)
        do_step();
    for (unsigned i = 0; i < PIECES; i++) {
        if (pieces[i].address == 0)
            continue;
        do_read(&pieces[i]);
        do_ask(&pieces[i]);
        do_free(&pieces[i]);
    }
    return 0;
}
