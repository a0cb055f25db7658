/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc_churn.cu: several host threads allocate, fill, copy, change and free device memory at
 * random, 1 byte to 64 MiB at a time, and compare every piece with a copy that they keep on the
 * host.
 *
 * Exit status: 0 all right, 1 a wrong byte or a CUDA error, 2 out of memory, 64 wrong command
 * line.
 */
#include "sample.h"

#include <atomic>
#include <thread>
#include <vector>

extern "C" __global__ void churn_xor(uint8_t *bytes, uint64_t count, uint32_t key)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        bytes[i] ^= (uint8_t)(key + i);
}

struct piece {
    uint8_t *device;
    std::vector<uint8_t> shadow;
    bool ordered; /* from cudaMallocAsync */
};

struct options {
    int threads = 4;
    uint64_t bytes = 256u << 20; /* of all threads together */
    uint64_t largest = 64u << 20;
    long rounds = 300; /* operations per thread */
    double seconds = 0;
    uint64_t seed = 1;
    bool pools = false;
};

struct worker {
    const options *how;
    uint64_t state; /* of the random numbers */
    uint64_t held = 0;
    cudaStream_t stream;
    std::vector<piece> pieces;

    uint64_t random(uint64_t below)
    {
        state += UINT64_C(0x9e3779b97f4a7c15);
        return sample_mix(state) % below;
    }
};

/* Small and large sizes alike: the number of bits is drawn first. */
static uint64_t random_size(worker &w)
{
    uint64_t most = (uint64_t)1 << w.random(27);
    uint64_t size = 1 + w.random(most);

    return size < w.how->largest ? size : w.how->largest;
}

static void add(worker &w)
{
    uint64_t size = random_size(w);
    piece p = {};

    if (w.held + size > w.how->bytes / (uint64_t)w.how->threads)
        return;
    p.ordered = w.how->pools && w.random(2);
    if (p.ordered)
        must(cudaMallocAsync(&p.device, size, w.stream), "cudaMallocAsync");
    else
        must(cudaMalloc(&p.device, size), "cudaMalloc");
    p.shadow.resize(size);
    for (uint8_t &byte : p.shadow)
        byte = (uint8_t)w.random(256);
    must(cudaMemcpyAsync(p.device, p.shadow.data(), size, cudaMemcpyHostToDevice, w.stream),
         "copy in");
    w.held += size;
    w.pieces.push_back(std::move(p));
}

static void check(worker &w, const piece &p)
{
    std::vector<uint8_t> bytes(p.shadow.size());

    must(
        cudaMemcpyAsync(bytes.data(), p.device, bytes.size(), cudaMemcpyDeviceToHost, w.stream),
        "copy out");
    must(cudaStreamSynchronize(w.stream), "cudaStreamSynchronize");
    for (size_t i = 0; i < bytes.size(); i++) {
        if (bytes[i] != p.shadow[i])
            sample_die(SAMPLE_WRONG, "wrong: byte %zu of the %zu at %p is %02x, not %02x", i,
                       bytes.size(), (void *)p.device, bytes[i], p.shadow[i]);
    }
}

static void fill_part(worker &w, piece &p)
{
    uint64_t from = w.random(p.shadow.size());
    uint64_t size = 1 + w.random(p.shadow.size() - from);
    int value = (int)w.random(256);

    must(cudaMemsetAsync(p.device + from, value, size, w.stream), "cudaMemsetAsync");
    memset(p.shadow.data() + from, value, size);
}

static void change(worker &w, piece &p)
{
    uint32_t key = (uint32_t)w.random(1u << 31);

    churn_xor<<<64, 256, 0, w.stream>>>(p.device, p.shadow.size(), key);
    must(cudaGetLastError(), "churn_xor");
    for (size_t i = 0; i < p.shadow.size(); i++)
        p.shadow[i] ^= (uint8_t)(key + i);
}

static void copy_between(worker &w, piece &from, piece &to)
{
    uint64_t size =
        from.shadow.size() < to.shadow.size() ? from.shadow.size() : to.shadow.size();

    if (from.device == to.device)
        return;
    must(cudaMemcpyAsync(to.device, from.device, size, cudaMemcpyDeviceToDevice, w.stream),
         "copy on the device");
    memcpy(to.shadow.data(), from.shadow.data(), size);
}

static void drop(worker &w, size_t index)
{
    piece &p = w.pieces[index];

    check(w, p);
    if (p.ordered)
        must(cudaFreeAsync(p.device, w.stream), "cudaFreeAsync");
    else
        must(cudaFree(p.device), "cudaFree");
    w.held -= p.shadow.size();
    std::swap(p, w.pieces.back());
    w.pieces.pop_back();
}

static void one_step(worker &w)
{
    uint64_t what = w.random(8);

    if (w.pieces.empty() || what < 3) {
        add(w);
        return;
    }
    piece &p = w.pieces[w.random(w.pieces.size())];

    /* shadows must not change while a copy out of them is under way */
    must(cudaStreamSynchronize(w.stream), "cudaStreamSynchronize");
    if (what == 3)
        fill_part(w, p);
    else if (what == 4)
        change(w, p);
    else if (what == 5)
        copy_between(w, p, w.pieces[w.random(w.pieces.size())]);
    else if (what == 6)
        check(w, p);
    else
        drop(w, w.random(w.pieces.size()));
}

static void work(const options *how, int number, std::atomic<long> *steps, double start)
{
    worker w = {};

    w.how = how;
    w.state = how->seed * 1000 + (uint64_t)number;
    must(cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    for (long i = 0;
         i < how->rounds && (how->seconds <= 0 || sample_now() - start < how->seconds); i++) {
        one_step(w);
        ++*steps;
    }
    while (!w.pieces.empty())
        drop(w, w.pieces.size() - 1);
    must(cudaStreamSynchronize(w.stream), "cudaStreamSynchronize");
    must(cudaStreamDestroy(w.stream), "cudaStreamDestroy");
}

static options parse(int argc, char **argv)
{
    options how;

    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];

        if (strcmp(name, "--pools") == 0) {
            how.pools = true;
            continue;
        }
        if (strcmp(name, "--threads") == 0)
            how.threads = (int)sample_number(name, sample_argument(argc, argv, &i), 1, 256);
        else if (strcmp(name, "--bytes") == 0)
            how.bytes = sample_size(name, sample_argument(argc, argv, &i));
        else if (strcmp(name, "--largest") == 0)
            how.largest = sample_size(name, sample_argument(argc, argv, &i)) | 1;
        else if (strcmp(name, "--rounds") == 0)
            how.rounds = (long)sample_number(name, sample_argument(argc, argv, &i), 1, 1e9);
        else if (strcmp(name, "--seconds") == 0)
            how.seconds = sample_number(name, sample_argument(argc, argv, &i), 0, 1e6);
        else if (strcmp(name, "--seed") == 0)
            how.seed = (uint64_t)sample_number(name, sample_argument(argc, argv, &i), 0, 9e15);
        else
            sample_die(SAMPLE_USAGE,
                       "usage: alloc_churn [--threads 4] [--bytes 256MiB] [--largest 64MiB] "
                       "[--rounds 300] [--seconds S] [--seed 1] [--pools]");
    }
    return how;
}

int main(int argc, char **argv)
{
    options how = parse(argc, argv);
    std::atomic<long> steps{0};
    std::vector<std::thread> threads;
    double start = sample_now();

    for (int i = 0; i < how.threads; i++)
        threads.emplace_back(work, &how, i, &steps, start);
    for (std::thread &thread : threads)
        thread.join();
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    printf("ok rounds=%ld bytes=%llu seconds=%.3f threads=%d\n", steps.load(),
           (unsigned long long)how.bytes, sample_now() - start, how.threads);
    return 0;
}
