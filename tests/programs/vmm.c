/* SPDX-License-Identifier: Apache-2.0
 *
 * vmm.c: a program that manages device memory itself, with reserved addresses and cuMemCreate,
 * cuMemMap, cuMemSetAccess, as PyTorch's expandable segments do. Every round it looks at words
 * of every piece and fills them anew; at the end it maps one piece at another address.
 *
 * Exit status: 0 all right, 1 a wrong result or a CUDA error, 2 out of memory, 64 wrong command
 * line.
 */
#include "samples/sample.h"

#include <cuda.h>

#define PIECES 6u
#define WORDS  16u /* looked at together */

struct options {
    uint64_t bytes;
    uint32_t rounds;
    uint32_t cpu_ms;
    uint32_t seed;
    int exportable; /* made to be shared with other processes: such memory cannot be moved */
};

struct pieces {
    size_t size; /* of one */
    CUdeviceptr base;
    CUmemGenericAllocationHandle handle[PIECES];
    CUmemAccessDesc access;
    uint64_t random;
};

static void must_succeed(CUresult result, const char *what)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    sample_die(result == CUDA_ERROR_OUT_OF_MEMORY ? SAMPLE_MEMORY : SAMPLE_WRONG, "%s: %s (%d)",
               what, name, (int)result);
}

/* what every word of a piece is after a round */
static uint32_t word_of(const struct options *options, uint32_t round, uint32_t piece)
{
    return (uint32_t)sample_mix(((uint64_t)options->seed << 40) + ((uint64_t)round << 8) +
                                piece);
}

static CUdeviceptr address_of(const struct pieces *pieces, uint32_t piece)
{
    return pieces->base + (CUdeviceptr)piece * pieces->size;
}

static void open_pieces(struct pieces *pieces, const struct options *options, CUdevice device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    size_t grain;

    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    if (options->exportable)
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    pieces->access.location = prop.location;
    pieces->access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    must_succeed(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                 "cuMemGetAllocationGranularity");
    pieces->size = (options->bytes / PIECES + grain - 1) / grain * grain;
    if (pieces->size == 0)
        sample_die(SAMPLE_USAGE, "--bytes: at least %u", PIECES);
    must_succeed(cuMemAddressReserve(&pieces->base, pieces->size * PIECES, 0, 0, 0),
                 "cuMemAddressReserve");
    for (uint32_t i = 0; i < PIECES; i++) {
        must_succeed(cuMemCreate(&pieces->handle[i], pieces->size, &prop, 0), "cuMemCreate");
        must_succeed(cuMemMap(address_of(pieces, i), pieces->size, 0, pieces->handle[i], 0),
                     "cuMemMap");
    }
    must_succeed(cuMemSetAccess(pieces->base, pieces->size * PIECES, &pieces->access, 1),
                 "cuMemSetAccess");
}

static void fill_pieces(struct pieces *pieces, const struct options *options, uint32_t round)
{
    for (uint32_t i = 0; i < PIECES; i++)
        must_succeed(
            cuMemsetD32(address_of(pieces, i), word_of(options, round, i), pieces->size / 4),
            "cuMemsetD32");
}

/* at the piece's beginning, end and somewhere */
static void check_pieces(struct pieces *pieces, CUdeviceptr address, uint32_t want,
                         uint32_t round)
{
    const size_t last = pieces->size - WORDS * sizeof(uint32_t);
    const size_t places[] = {0, last, (size_t)sample_mix(++pieces->random) % last / 4 * 4};
    uint32_t words[WORDS];

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        must_succeed(cuMemcpyDtoH(words, address + places[i], sizeof words), "cuMemcpyDtoH");
        for (uint32_t j = 0; j < WORDS; j++)
            if (words[j] != want)
                sample_die(SAMPLE_WRONG, "wrong: %#x at 0x%llx after round %u, must be %#x",
                           words[j], (unsigned long long)(address + places[i] + j * 4ull),
                           round, want);
    }
}

/* the same memory at another address; and everything given back */
static void move_and_close(struct pieces *pieces, const struct options *options)
{
    const uint32_t want = word_of(options, options->rounds, 0);
    CUmemGenericAllocationHandle again;
    CUdeviceptr other;
    int file = -1;

    must_succeed(cuMemRetainAllocationHandle(&again, (void *)(pieces->base + 5)),
                 "cuMemRetainAllocationHandle");
    if (again != pieces->handle[0])
        sample_die(SAMPLE_WRONG, "wrong: another handle at the first piece's address");
    must_succeed(cuMemRelease(again), "cuMemRelease");
    if (options->exportable)
        must_succeed(cuMemExportToShareableHandle(&file, pieces->handle[0],
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     "cuMemExportToShareableHandle");
    must_succeed(cuMemAddressReserve(&other, pieces->size, 0, 0, 0), "cuMemAddressReserve");
    must_succeed(cuCtxSynchronize(), "cuCtxSynchronize");
    must_succeed(cuMemUnmap(pieces->base, pieces->size), "cuMemUnmap");
    must_succeed(cuMemMap(other, pieces->size, 0, pieces->handle[0], 0), "cuMemMap elsewhere");
    must_succeed(cuMemSetAccess(other, pieces->size, &pieces->access, 1),
                 "cuMemSetAccess elsewhere");
    check_pieces(pieces, other, want, options->rounds);
    must_succeed(cuMemUnmap(other, pieces->size), "cuMemUnmap elsewhere");
    must_succeed(cuMemAddressFree(other, pieces->size), "cuMemAddressFree elsewhere");
    must_succeed(cuMemUnmap(address_of(pieces, 1), pieces->size * (PIECES - 1)), "cuMemUnmap");
    for (uint32_t i = 0; i < PIECES; i++)
        must_succeed(cuMemRelease(pieces->handle[i]), "cuMemRelease");
    must_succeed(cuMemAddressFree(pieces->base, pieces->size * PIECES), "cuMemAddressFree");
}

static void read_options(struct options *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];

        if (strcmp(name, "--bytes") == 0)
            options->bytes = sample_size(name, sample_argument(argc, argv, &i));
        else if (strcmp(name, "--rounds") == 0)
            options->rounds =
                (uint32_t)sample_number(name, sample_argument(argc, argv, &i), 1, 1e9);
        else if (strcmp(name, "--cpu-ms") == 0)
            options->cpu_ms =
                (uint32_t)sample_number(name, sample_argument(argc, argv, &i), 0, 1e6);
        else if (strcmp(name, "--seed") == 0)
            options->seed =
                (uint32_t)sample_number(name, sample_argument(argc, argv, &i), 0, 1e6);
        else if (strcmp(name, "--exportable") == 0)
            options->exportable = 1;
        else
            sample_die(SAMPLE_USAGE,
                       "usage: %s [--bytes 64MiB] [--rounds 10] [--cpu-ms 50] [--seed N] "
                       "[--exportable]",
                       argv[0]);
    }
}

int main(int argc, char **argv)
{
    struct options options = {.bytes = 64u << 20, .rounds = 10, .cpu_ms = 50};
    struct pieces pieces = {0};
    const double start = sample_now();
    CUcontext context;
    CUdevice device;

    read_options(&options, argc, argv);
    must_succeed(cuInit(0), "cuInit");
    must_succeed(cuDeviceGet(&device, 0), "cuDeviceGet");
    must_succeed(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must_succeed(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    open_pieces(&pieces, &options, device);
    fill_pieces(&pieces, &options, 0);
    for (uint32_t round = 1; round <= options.rounds; round++) {
        const struct timespec pause = {options.cpu_ms / 1000,
                                       (long)(options.cpu_ms % 1000) * 1000000};

        nanosleep(&pause, NULL);
        for (uint32_t i = 0; i < PIECES; i++)
            check_pieces(&pieces, address_of(&pieces, i), word_of(&options, round - 1, i),
                         round - 1);
        fill_pieces(&pieces, &options, round);
    }
    move_and_close(&pieces, &options);
    must_succeed(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
    printf("ok rounds=%u bytes=%llu seconds=%.3f\n", options.rounds,
           (unsigned long long)(pieces.size * PIECES), sample_now() - start);
    return 0;
}
