/* SPDX-License-Identifier: Apache-2.0
 *
 * vectoradd.cu: the usual first CUDA program, done with what real programs use: pinned memory,
 * several streams, asynchronous copies in both directions, events that order streams and
 * measure time.
 *
 * Exit status: 0 all right, 1 a wrong result or a CUDA error, 2 out of memory, 64 wrong command
 * line.
 */
#include "sample.h"

#define STREAMS 4

extern "C" __global__ void vector_add(const float *a, const float *b, float *sum,
                                      uint64_t count)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        sum[i] = a[i] + b[i];
}

struct part {
    cudaStream_t stream;
    cudaEvent_t done;
    float *a, *b, *sum;                /* on the device */
    float *host_a, *host_b, *host_sum; /* pinned */
};

static void open_part(part &p, size_t bytes)
{
    must(cudaStreamCreateWithFlags(&p.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    must(cudaEventCreateWithFlags(&p.done, cudaEventDisableTiming), "cudaEventCreate");
    must(cudaMalloc(&p.a, bytes), "cudaMalloc");
    must(cudaMalloc(&p.b, bytes), "cudaMalloc");
    must(cudaMalloc(&p.sum, bytes), "cudaMalloc");
    must(cudaMallocHost(&p.host_a, bytes), "cudaMallocHost");
    must(cudaMallocHost(&p.host_b, bytes), "cudaMallocHost");
    must(cudaMallocHost(&p.host_sum, bytes), "cudaMallocHost");
}

static void close_part(part &p)
{
    must(cudaFreeHost(p.host_sum), "cudaFreeHost");
    must(cudaFreeHost(p.host_b), "cudaFreeHost");
    must(cudaFreeHost(p.host_a), "cudaFreeHost");
    must(cudaFree(p.sum), "cudaFree");
    must(cudaFree(p.b), "cudaFree");
    must(cudaFree(p.a), "cudaFree");
    must(cudaEventDestroy(p.done), "cudaEventDestroy");
    must(cudaStreamDestroy(p.stream), "cudaStreamDestroy");
}

/* Small whole numbers, so that sums of floats are exact. */
static float input(uint64_t i, long round, int which)
{
    return (float)(sample_mix(i * 2 + (uint64_t)which + ((uint64_t)round << 40)) % 4096);
}

static void submit(part &p, uint64_t count, long round, int index)
{
    size_t bytes = count * sizeof(float);

    for (uint64_t i = 0; i < count; i++) {
        p.host_a[i] = input(i, round, index);
        p.host_b[i] = input(i, round, index + STREAMS);
    }
    memset(p.host_sum, 0xee, bytes);
    must(cudaMemcpyAsync(p.a, p.host_a, bytes, cudaMemcpyHostToDevice, p.stream), "copy in");
    must(cudaMemcpyAsync(p.b, p.host_b, bytes, cudaMemcpyHostToDevice, p.stream), "copy in");
    vector_add<<<256, 256, 0, p.stream>>>(p.a, p.b, p.sum, count);
    must(cudaGetLastError(), "vector_add");
    must(cudaEventRecord(p.done, p.stream), "cudaEventRecord");
}

static void check(const part &p, uint64_t count, long round, int index)
{
    for (uint64_t i = 0; i < count; i++) {
        float expected = input(i, round, index) + input(i, round, index + STREAMS);

        if (p.host_sum[i] != expected)
            sample_die(SAMPLE_WRONG, "wrong: round %ld, stream %d, element %llu is %g, not %g",
                       round, index, (unsigned long long)i, (double)p.host_sum[i],
                       (double)expected);
    }
}

/* Every result is copied out by the *next* stream, which waits for the event of the one that
 * computed it. */
static float one_round(part *parts, cudaEvent_t first, cudaEvent_t last, uint64_t count,
                       long round)
{
    float milliseconds = -1;

    must(cudaEventRecord(first, parts[0].stream), "cudaEventRecord");
    for (int i = 0; i < STREAMS; i++)
        submit(parts[i], count, round, i);
    for (int i = 0; i < STREAMS; i++) {
        part &next = parts[(i + 1) % STREAMS];

        must(cudaStreamWaitEvent(next.stream, parts[i].done, 0), "cudaStreamWaitEvent");
        must(cudaMemcpyAsync(parts[i].host_sum, parts[i].sum, count * sizeof(float),
                             cudaMemcpyDeviceToHost, next.stream),
             "copy out");
    }
    must(cudaEventRecord(last, parts[0].stream), "cudaEventRecord");
    for (int i = 0; i < STREAMS; i++)
        must(cudaStreamSynchronize(parts[i].stream), "cudaStreamSynchronize");
    must(cudaEventQuery(last), "cudaEventQuery");
    must(cudaEventElapsedTime(&milliseconds, first, last), "cudaEventElapsedTime");
    if (!(milliseconds >= 0))
        sample_die(SAMPLE_WRONG, "wrong: round %ld took %g ms", round, (double)milliseconds);
    for (int i = 0; i < STREAMS; i++)
        check(parts[i], count, round, i);
    return milliseconds;
}

int main(int argc, char **argv)
{
    uint64_t bytes = 16u << 20;
    long rounds = 5;
    double seconds = 0;
    double start = sample_now();
    double gpu_ms = 0;
    part parts[STREAMS];
    cudaEvent_t first;
    cudaEvent_t last;
    long round = 0;

    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];

        if (strcmp(name, "--bytes") == 0)
            bytes = sample_size(name, sample_argument(argc, argv, &i));
        else if (strcmp(name, "--rounds") == 0)
            rounds = (long)sample_number(name, sample_argument(argc, argv, &i), 1, 1e9);
        else if (strcmp(name, "--seconds") == 0)
            seconds = sample_number(name, sample_argument(argc, argv, &i), 0, 1e6);
        else
            sample_die(SAMPLE_USAGE,
                       "usage: vectoradd [--bytes 16MiB] [--rounds 5] [--seconds S]");
    }
    uint64_t count = bytes / (3 * STREAMS * sizeof(float));

    if (count == 0)
        sample_die(SAMPLE_USAGE, "--bytes: at least %zu", 3 * STREAMS * sizeof(float));
    must(cudaEventCreate(&first), "cudaEventCreate");
    must(cudaEventCreate(&last), "cudaEventCreate");
    for (part &p : parts)
        open_part(p, count * sizeof(float));
    while (round < rounds && (seconds <= 0 || sample_now() - start < seconds))
        gpu_ms += (double)one_round(parts, first, last, count, ++round);
    for (part &p : parts)
        close_part(p);
    must(cudaEventDestroy(first), "cudaEventDestroy");
    must(cudaEventDestroy(last), "cudaEventDestroy");
    printf("ok rounds=%ld bytes=%llu seconds=%.3f gpu_seconds=%.3f\n", round,
           (unsigned long long)(count * 3 * STREAMS * sizeof(float)), sample_now() - start,
           gpu_ms / 1000);
    return 0;
}
