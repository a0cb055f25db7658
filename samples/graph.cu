/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.cu: captures a stream into a CUDA graph once and launches it many times, as
 * deep-learning frameworks do. The graph keeps device addresses: whoever moves the memory must
 * bring it back to the same place.
 *
 * The graph: copy the round's number in, mix it into every word, add all words up, copy the sum
 * out. The host does the same on a copy of its own and compares.
 *
 * Exit status: 0 all right, 1 a wrong result or a CUDA error, 2 out of memory, 64 wrong command
 * line.
 */
#include "sample.h"

#include <unistd.h>
#include <vector>

extern "C" __global__ void graph_mix(uint32_t *words, uint64_t count, const uint32_t *key)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        words[i] = words[i] * 1664525u + (*key ^ (uint32_t)i);
}

extern "C" __global__ void graph_sum(const uint32_t *words, uint64_t count,
                                     unsigned long long *sum)
{
    unsigned long long mine = 0;

    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        mine += words[i];
    atomicAdd(sum, mine);
}

struct job {
    uint64_t count;
    uint32_t *words, *key; /* on the device */
    unsigned long long *sum;
    uint32_t *host_key; /* pinned: the graph keeps their addresses, too */
    unsigned long long *host_sum;
    std::vector<uint32_t> replica;
};

static cudaGraphExec_t capture(job &work, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes = 0;

    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    must(cudaMemcpyAsync(work.key, work.host_key, sizeof(*work.key), cudaMemcpyHostToDevice,
                         stream),
         "copy in");
    must(cudaMemsetAsync(work.sum, 0, sizeof(*work.sum), stream), "cudaMemsetAsync");
    graph_mix<<<256, 256, 0, stream>>>(work.words, work.count, work.key);
    must(cudaGetLastError(), "graph_mix");
    graph_sum<<<256, 256, 0, stream>>>(work.words, work.count, work.sum);
    must(cudaGetLastError(), "graph_sum");
    must(cudaMemcpyAsync(work.host_sum, work.sum, sizeof(*work.sum), cudaMemcpyDeviceToHost,
                         stream),
         "copy out");
    must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    must(cudaGraphGetNodes(graph, NULL, &nodes), "cudaGraphGetNodes");
    if (nodes != 5)
        sample_die(SAMPLE_WRONG, "wrong: %zu nodes were captured, not 5", nodes);
    must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return exec;
}

static void one_round(job &work, cudaGraphExec_t exec, cudaStream_t stream, long round)
{
    unsigned long long expected = 0;

    *work.host_key = (uint32_t)sample_mix((uint64_t)round);
    *work.host_sum = ~0ull;
    must(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    for (uint64_t i = 0; i < work.count; i++) {
        work.replica[i] = work.replica[i] * 1664525u + (*work.host_key ^ (uint32_t)i);
        expected += work.replica[i];
    }
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (*work.host_sum != expected)
        sample_die(SAMPLE_WRONG, "wrong: the sum of round %ld is %llx, not %llx", round,
                   *work.host_sum, expected);
}

/* The words themselves, at the end. */
static void compare(const job &work)
{
    std::vector<uint32_t> words(work.count);

    must(cudaMemcpy(words.data(), work.words, work.count * sizeof(uint32_t),
                    cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    for (uint64_t i = 0; i < work.count; i++) {
        if (words[i] != work.replica[i])
            sample_die(SAMPLE_WRONG, "wrong: word %llu is %x, not %x", (unsigned long long)i,
                       words[i], work.replica[i]);
    }
}

int main(int argc, char **argv)
{
    uint64_t bytes = 16u << 20;
    long rounds = 20;
    long round = 0;
    double seconds = 0;
    double pause_ms = 0;
    double start = sample_now();
    cudaStream_t stream;
    job work = {};

    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];

        if (strcmp(name, "--bytes") == 0)
            bytes = sample_size(name, sample_argument(argc, argv, &i));
        else if (strcmp(name, "--rounds") == 0)
            rounds = (long)sample_number(name, sample_argument(argc, argv, &i), 1, 1e9);
        else if (strcmp(name, "--seconds") == 0)
            seconds = sample_number(name, sample_argument(argc, argv, &i), 0, 1e6);
        else if (strcmp(name, "--cpu-ms") == 0)
            pause_ms = sample_number(name, sample_argument(argc, argv, &i), 0, 1e7);
        else
            sample_die(SAMPLE_USAGE,
                       "usage: graph [--bytes 16MiB] [--rounds 20] [--seconds S] [--cpu-ms 0]");
    }
    work.count = bytes / sizeof(uint32_t);
    if (work.count == 0)
        sample_die(SAMPLE_USAGE, "--bytes: at least 4");
    work.replica.assign(work.count, 0x5a5a5a5au);
    must(cudaStreamCreate(&stream), "cudaStreamCreate");
    must(cudaMalloc(&work.words, work.count * sizeof(uint32_t)), "cudaMalloc");
    must(cudaMalloc(&work.key, sizeof(*work.key)), "cudaMalloc");
    must(cudaMalloc(&work.sum, sizeof(*work.sum)), "cudaMalloc");
    must(cudaMallocHost(&work.host_key, sizeof(*work.host_key)), "cudaMallocHost");
    must(cudaMallocHost(&work.host_sum, sizeof(*work.host_sum)), "cudaMallocHost");
    must(cudaMemset(work.words, 0x5a, work.count * sizeof(uint32_t)), "cudaMemset");
    cudaGraphExec_t exec = capture(work, stream);

    while (round < rounds && (seconds <= 0 || sample_now() - start < seconds)) {
        one_round(work, exec, stream, ++round);
        usleep((useconds_t)(pause_ms * 1000));
    }
    compare(work);
    must(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    must(cudaFree(work.words), "cudaFree");
    must(cudaFree(work.key), "cudaFree");
    must(cudaFree(work.sum), "cudaFree");
    must(cudaFreeHost(work.host_key), "cudaFreeHost");
    must(cudaFreeHost(work.host_sum), "cudaFreeHost");
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    printf("ok rounds=%ld bytes=%llu seconds=%.3f\n", round,
           (unsigned long long)(work.count * sizeof(uint32_t)), sample_now() - start);
    return 0;
}
