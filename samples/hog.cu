/* SPDX-License-Identifier: Apache-2.0
 *
 * hog.cu: holds a share of the card's memory and works on all of it, with CPU phases in
 * between, as a training job or a notebook does. Every page is checked in every round, so that
 * a page which is lost, stale or mixed up on its way to the host and back is found.
 *
 * SIGINT (Ctrl-C) ends it after the round; a second one ends it at once.
 *
 * Exit status: 0 all right, 1 a wrong page or a CUDA error, 2 out of memory, 64 wrong command
 * line.
 */
#include "hog.h"

#include <algorithm>
#include <csignal>
#include <unistd.h>
#include <vector>

struct options {
    double share = 0.7;
    uint64_t bytes = 0; /* 0: by share */
    uint64_t chunk = 256u << 20;
    uint64_t seed = 1;
    long rounds = 5;
    long repeat = 1;
    double seconds = 0; /* 0: no limit */
    double cpu_ms = 0;
    bool cpu_spin = false;
    bool json = false;
    bool quiet = false;
};

struct chunk {
    uint64_t *memory;
    uint64_t first_page, pages;
};

struct hog {
    options how;
    std::vector<chunk> chunks;
    uint64_t pages = 0;
    uint64_t step = 0;        /* of the values that are in memory now */
    uint64_t *sums = nullptr; /* on the device: one per page, of what the last kernel read */
    unsigned long long *first_bad =
        nullptr; /* on the device: lowest page whose words were not as expected */
    std::vector<uint64_t> host_sums;
    unsigned long long host_first_bad = HOG_NO_PAGE;
};

#ifdef __CUDACC__ /* else hog_host.cc, for the simulated card */
/* Writes the values of step 0. */
extern "C" __global__ void hog_fill(uint64_t *memory, uint64_t first_page, uint64_t pages,
                                    uint64_t seed)
{
    for (uint64_t page = blockIdx.x; page < pages; page += gridDim.x) {
        uint64_t base = hog_base(seed, first_page + page, 0);

        for (unsigned int word = threadIdx.x; word < HOG_WORDS; word += blockDim.x)
            memory[page * HOG_WORDS + word] = base + word * HOG_STRIDE;
    }
}

/* Reads every word, compares it with the value of `step`, notes the page's sum, and writes the
 * value of the next step if `write`. */
extern "C" __global__ void hog_step(uint64_t *memory, uint64_t first_page, uint64_t pages,
                                    uint64_t seed, uint64_t step, int write, uint64_t *sums,
                                    unsigned long long *first_bad)
{
    __shared__ unsigned long long sum;

    for (uint64_t page = blockIdx.x; page < pages; page += gridDim.x) {
        uint64_t expected = hog_base(seed, first_page + page, step);
        uint64_t next = hog_base(seed, first_page + page, step + 1);
        unsigned long long mine = 0;

        if (threadIdx.x == 0)
            sum = 0;
        __syncthreads();
        for (unsigned int word = threadIdx.x; word < HOG_WORDS; word += blockDim.x) {
            uint64_t value = memory[page * HOG_WORDS + word];

            if (value != expected + word * HOG_STRIDE)
                atomicMin(first_bad, (unsigned long long)(first_page + page));
            mine += value;
            if (write)
                memory[page * HOG_WORDS + word] = next + word * HOG_STRIDE;
        }
        for (int lane = 16; lane > 0; lane /= 2)
            mine += __shfl_down_sync(0xffffffffu, mine, lane);
        if (threadIdx.x % 32 == 0)
            atomicAdd(&sum, mine);
        __syncthreads();
        if (threadIdx.x == 0)
            sums[first_page + page] = sum;
        __syncthreads();
    }
}
#endif

/* Runs a kernel over pages. */
template <typename... Parameters>
static void launch(void (*kernel)(Parameters...), const char *name, uint64_t pages,
                   Parameters... values)
{
    void *pointers[] = {&values...};

    must(cudaLaunchKernel((const void *)kernel,
                          dim3((unsigned int)std::min<uint64_t>(pages, 65535)), dim3(256),
                          pointers, 0, nullptr),
         name);
}

static volatile sig_atomic_t ended;

static void end(int)
{
    ended = 1;
}

static void usage(void)
{
    puts("usage: hog [--share 0.7 | --bytes 4GiB] [--rounds 5] [--seconds S] [--repeat 1]\n"
         "           [--cpu-ms 0] [--cpu-spin] [--chunk 256MiB] [--seed 1] [--json] [--quiet]\n"
         "Holds that share of the card's memory, works on all of it in every round, and checks "
         "every page.\n"
         "--repeat: passes over the memory per round; --cpu-ms: pause between rounds "
         "(--cpu-spin: busy).\n"
         "--seconds: no new round after that time, nor after Ctrl-C.\n"
         "Exit status: 0 right, 1 wrong, 2 out of memory.");
}

static options parse(int argc, char **argv)
{
    options how;

    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        auto is = [name](const char *option) { return strcmp(name, option) == 0; };
        auto value = [&] { return sample_argument(argc, argv, &i); };

        if (is("--share")) {
            how.share = sample_number(name, value(), 1e-6, 4);
            how.bytes = 0;
        } else if (is("--bytes")) {
            how.bytes = sample_size(name, value());
            if (how.bytes < HOG_PAGE)
                sample_die(SAMPLE_USAGE, "--bytes: at least one page of %u bytes", HOG_PAGE);
        } else if (is("--chunk")) {
            how.chunk = sample_size(name, value()) / HOG_PAGE * HOG_PAGE;
            if (how.chunk == 0)
                sample_die(SAMPLE_USAGE, "--chunk: at least one page of %u bytes", HOG_PAGE);
        } else if (is("--rounds")) {
            how.rounds = (long)sample_number(name, value(), 1, 1e9);
        } else if (is("--seconds")) {
            how.seconds = sample_number(name, value(), 0, 1e6);
        } else if (is("--repeat")) {
            how.repeat = (long)sample_number(name, value(), 1, 1e6);
        } else if (is("--cpu-ms")) {
            how.cpu_ms = sample_number(name, value(), 0, 1e7);
        } else if (is("--seed")) {
            how.seed = (uint64_t)sample_number(name, value(), 0, 9e15);
        } else if (is("--cpu-spin")) {
            how.cpu_spin = true;
        } else if (is("--json")) {
            how.json = true;
        } else if (is("--quiet")) {
            how.quiet = true;
        } else if (is("--help")) {
            usage();
            exit(0);
        } else {
            sample_die(SAMPLE_USAGE, "%s: no such option; try --help", name);
        }
    }
    return how;
}

static void allocate_or_die(void **pointer, uint64_t size, uint64_t wanted, uint64_t had,
                            size_t total)
{
    cudaError_t error = cudaMalloc(pointer, size);

    if (error == cudaErrorMemoryAllocation)
        sample_die(SAMPLE_MEMORY,
                   "out of memory: asked %.2f GiB (got %.2f GiB of it), card has %.2f GiB",
                   (double)wanted / (1u << 30), (double)had / (1u << 30),
                   (double)total / (1u << 30));
    must(error, "cudaMalloc");
}

static void allocate(hog &job)
{
    size_t free_bytes;
    size_t total;

    must(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
    uint64_t wanted = job.how.bytes ? job.how.bytes : (uint64_t)(job.how.share * (double)total);

    job.pages = wanted / HOG_PAGE;
    if (job.pages == 0)
        sample_die(SAMPLE_USAGE, "--share %g: less than a page of this card's %zu bytes",
                   job.how.share, total);
    wanted = job.pages * HOG_PAGE;
    for (uint64_t page = 0; page < job.pages;) {
        uint64_t pages = job.how.chunk / HOG_PAGE;
        void *memory;

        if (pages > job.pages - page)
            pages = job.pages - page;
        allocate_or_die(&memory, pages * HOG_PAGE, wanted, page * HOG_PAGE, total);
        job.chunks.push_back({(uint64_t *)memory, page, pages});
        page += pages;
    }
    allocate_or_die((void **)&job.sums, job.pages * sizeof(*job.sums), wanted, wanted, total);
    allocate_or_die((void **)&job.first_bad, sizeof(*job.first_bad), wanted, wanted, total);
    must(cudaMemset(job.first_bad, 0xff, sizeof(*job.first_bad)), "cudaMemset");
    job.host_sums.resize(job.pages);
    for (const chunk &part : job.chunks)
        launch(hog_fill, "hog_fill", part.pages, part.memory, part.first_page, part.pages,
               job.how.seed);
    must(cudaDeviceSynchronize(), "hog_fill");
}

/* One pass over all of the memory. */
static void pass(hog &job, bool write)
{
    for (const chunk &part : job.chunks)
        launch(hog_step, "hog_step", part.pages, part.memory, part.first_page, part.pages,
               job.how.seed, job.step, (int)write, job.sums, job.first_bad);
    if (write)
        job.step++;
}

static void wrong_page(const hog &job, uint64_t page, long round, const char *how)
{
    for (const chunk &part : job.chunks) {
        if (page >= part.first_page && page < part.first_page + part.pages)
            sample_die(SAMPLE_WRONG, "wrong: page %llu at %p in round %ld: %s",
                       (unsigned long long)page,
                       (const void *)(part.memory + (page - part.first_page) * HOG_WORDS),
                       round, how);
    }
    sample_die(SAMPLE_WRONG, "wrong: page %llu, which there is not, in round %ld",
               (unsigned long long)page, round);
}

/* Copies out what the kernels found. */
static void fetch(hog &job)
{
    must(cudaMemcpy(&job.host_first_bad, job.first_bad, sizeof(job.host_first_bad),
                    cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    must(cudaMemcpy(job.host_sums.data(), job.sums, job.pages * sizeof(uint64_t),
                    cudaMemcpyDeviceToHost),
         "cudaMemcpy");
}

/* Compares what the last pass read, which was the value of `step`, with what should have been
 * there; returns the checksum over all pages. */
static uint64_t check(const hog &job, uint64_t step, long round)
{
    uint64_t checksum = 0;

    if (job.host_first_bad != HOG_NO_PAGE)
        wrong_page(job, job.host_first_bad, round, "a word is not what the last step wrote");
    for (uint64_t page = 0; page < job.pages; page++) {
        if (job.host_sums[page] != hog_sum(job.how.seed, page, step))
            wrong_page(job, page, round, "its checksum is wrong");
        checksum += sample_mix(job.host_sums[page] + page);
    }
    return checksum;
}

static void cpu_phase(const options &how)
{
    double until = sample_now() + how.cpu_ms / 1000;

    if (!how.cpu_spin && how.cpu_ms > 0)
        usleep((useconds_t)(how.cpu_ms * 1000));
    while (sample_now() < until)
        ;
}

/* One round; returns how long the GPU's part of it took, with the wait for the card, wherever
 * it was. */
static double one_round(hog &job, long round)
{
    double begin = sample_now();

    for (long i = 0; i < job.how.repeat; i++)
        pass(job, true);
    must(cudaDeviceSynchronize(), "hog_step");
    fetch(job);
    double seconds = sample_now() - begin;

    check(job, job.step - 1, round);
    if (!job.how.quiet)
        printf(job.how.json ? "{\"round\": %ld, \"gpu_seconds\": %.6f}\n"
                            : "round %ld: GPU work took %.3f s\n",
               round, seconds);
    fflush(stdout);
    return seconds;
}

int main(int argc, char **argv)
{
    hog job;
    double longest = 0;
    long round = 0;
    double start = sample_now();
    struct sigaction signals = {};

    job.how = parse(argc, argv);
    signals.sa_handler = end;
    signals.sa_flags = SA_RESETHAND | SA_RESTART;
    sigaction(SIGINT, &signals, nullptr);
    allocate(job);
    if (!job.how.quiet && !job.how.json)
        printf("holding %llu bytes in %zu chunks after %.3f s\n",
               (unsigned long long)(job.pages * HOG_PAGE), job.chunks.size(),
               sample_now() - start);
    fflush(stdout);
    while (!ended && round < job.how.rounds &&
           (job.how.seconds <= 0 || sample_now() - start < job.how.seconds)) {
        longest = std::max(longest, one_round(job, ++round));
        cpu_phase(job.how);
    }
    pass(job, false); /* what the last round wrote is there, too */
    fetch(job);
    uint64_t checksum = check(job, job.step, round);

    printf(job.how.json
               ? "{\"ok\": true, \"rounds\": %ld, \"bytes\": %llu, \"seconds\": %.3f, "
                 "\"longest\": %.3f, "
                 "\"checksum\": \"%016llx\"}\n"
               : "ok rounds=%ld bytes=%llu seconds=%.3f longest=%.3f checksum=%016llx\n",
           round, (unsigned long long)(job.pages * HOG_PAGE), sample_now() - start, longest,
           (unsigned long long)checksum);
    for (const chunk &part : job.chunks)
        must(cudaFree(part.memory), "cudaFree");
    must(cudaFree(job.sums), "cudaFree");
    must(cudaFree(job.first_bad), "cudaFree");
    return 0;
}
