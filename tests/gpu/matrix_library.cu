/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_library.cu: some rounds of work with one of NVIDIA's libraries, chosen by USE_*; writes
 * the bytes of the result to stdout. matrix_library BALLAST_GIB: device memory held besides,
 * and compared at the end. GS_MATRIX_MIDDLE=FOLDER: it stops in the middle. GS_MATRIX_TOLD=FOLDER:
 * after the result it closes stdout and repeats its work as it is told (matrix_job.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>

#define N 1024

#define CHECK(call)                                                                            \
    do {                                                                                       \
        const int check_result = (int)(call);                                                  \
        if (check_result != 0) {                                                               \
            fprintf(stderr, "matrix_library: %s: %d\n", #call, check_result);                  \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

static float *matrix(void)
{
    float *host = (float *)malloc(sizeof(float) * N * N), *there;

    for (int i = 0; i < N * N; i++)
        host[i] = (float)(i % 97) / 970 + (i % (N + 1) == 0 ? N : 0);
    CHECK(cudaMalloc(&there, sizeof(float) * N * N));
    CHECK(cudaMemcpy(there, host, sizeof(float) * N * N, cudaMemcpyHostToDevice));
    free(host);
    return there;
}

static void write_out(const float *there)
{
    float *host = (float *)malloc(sizeof(float) * N * N);

    CHECK(cudaMemcpy(host, there, sizeof(float) * N * N, cudaMemcpyDeviceToHost));
    fwrite(host, sizeof(float), N * N, stdout);
    free(host);
}

/* After half of the work: tells matrix.py so, and waits, without touching the GPU, until it may go on. */
static void middle(void)
{
    const char *folder = getenv("GS_MATRIX_MIDDLE");
    char path[4096];
    FILE *file;

    if (folder == NULL)
        return;
    snprintf(path, sizeof path, "%s/ready.%d", folder, (int)getpid());
    file = fopen(path, "w");
    CHECK(file == NULL || fclose(file) != 0);
    snprintf(path, sizeof path, "%s/go", folder);
    for (int tries = 0; access(path, F_OK) != 0; tries++) {
        CHECK(tries == 6000);
        usleep(20000);
    }
}

static double now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* --- each library: set_up(), step() of the work, synchronize(), write_result() --- */

static void set_up(void);
static void step(int number);
static void synchronize(void);
static void write_result(void);

static float *a, *b;

#if defined USE_CUBLAS
#include <cublas_v2.h>
#define ROUNDS 200
static cublasHandle_t handle;

static void set_up(void)
{
    a = matrix();
    b = matrix();
    CHECK(cublasCreate(&handle));
}

static void step(int number)
{
    const float one = 1e-4f, none = 0;
    const float *from = number % 2 ? a : b;

    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, from, N, from, N, &none,
                      number % 2 ? b : a, N));
}
#elif defined USE_CUDNN
#include <cudnn.h>
#define ROUNDS 200
static cudnnHandle_t handle;
static cudnnTensorDescriptor_t shape;

static void set_up(void)
{
    a = matrix();
    b = matrix();
    CHECK(cudnnCreate(&handle));
    CHECK(cudnnCreateTensorDescriptor(&shape));
    CHECK(cudnnSetTensor4dDescriptor(shape, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, N, 1, 1));
}

static void step(int number)
{
    const float one = 1, none = 0;

    CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one,
                              shape, number % 2 ? b : a, &none, shape, number % 2 ? a : b));
}
#elif defined USE_CUFFT
#include <cufft.h>
#define ROUNDS 2
static cufftHandle plan;

static void set_up(void)
{
    a = matrix();
    b = matrix();
    CHECK(cufftPlan1d(&plan, N, CUFFT_C2C, N / 2));
}

static void step(int number)
{
    CHECK(cufftExecC2C(plan, (cufftComplex *)(number % 2 ? b : a), (cufftComplex *)(number % 2 ? a : b),
                       number % 2 ? CUFFT_INVERSE : CUFFT_FORWARD));
}
#elif defined USE_CUSOLVER
#include <cusolverDn.h>
#define ROUNDS 2
static cusolverDnHandle_t handle;
static float *space;
static int bytes, *info;

static void set_up(void)
{
    a = matrix();
    b = matrix();
    CHECK(cusolverDnCreate(&handle));
    CHECK(cusolverDnSpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, &bytes));
    CHECK(cudaMalloc(&space, sizeof(float) * (size_t)bytes));
    CHECK(cudaMalloc(&info, sizeof *info));
}

/* Factors a copy, since the factors take the place of the matrix. */
static void step(int number)
{
    (void)number;
    CHECK(cudaMemcpyAsync(a, b, sizeof(float) * N * N, cudaMemcpyDeviceToDevice, 0));
    CHECK(cusolverDnSpotrf(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, space, bytes, info));
}
#else
#include <nccl.h>
#define ROUNDS 200
static ncclComm_t comms[2];
static float *data[2];

static void set_up(void)
{
    CHECK(ncclCommInitAll(comms, 2, NULL));
    for (int card = 0; card < 2; card++) {
        CHECK(cudaSetDevice(card));
        data[card] = matrix();
    }
}

static void step(int number)
{
    (void)number;
    CHECK(ncclGroupStart());
    for (int card = 0; card < 2; card++)
        CHECK(ncclAllReduce(data[card], data[card], (size_t)N * N, ncclFloat, ncclMax, comms[card],
                            0));
    CHECK(ncclGroupEnd());
}
#endif

#if defined USE_NCCL
static void synchronize(void)
{
    for (int card = 1; card >= 0; card--) {
        CHECK(cudaSetDevice(card));
        CHECK(cudaDeviceSynchronize());
    }
}

static void write_result(void)
{
    for (int card = 0; card < 2; card++) {
        CHECK(cudaSetDevice(card));
        write_out(data[card]);
    }
    CHECK(cudaSetDevice(0));
}
#else
static void synchronize(void)
{
    CHECK(cudaDeviceSynchronize());
}

static void write_result(void)
{
    write_out(a);
}
#endif

/* Seconds of so many steps, from an idle card to an idle card; one step before them is not counted. */
static double timed(long count)
{
    double began;

    step(0);
    synchronize();
    began = now();
    for (long i = 0; i < count; i++)
        step((int)(i % 2));
    synchronize();
    return now() - began;
}

static void answer(const char *folder, int number, double seconds)
{
    char path[4096], whole[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/seconds.new", folder);
    snprintf(whole, sizeof whole, "%s/seconds.%d", folder, number);
    file = fopen(path, "w");
    CHECK(file == NULL);
    fprintf(file, "%.9f\n", seconds);
    CHECK(fclose(file) != 0 || rename(path, whole) != 0);
}

/* Repeats the step as often as matrix.py says (matrix_job.py, Job.repeat). */
static void repeat(void)
{
    const char *folder = getenv("GS_MATRIX_TOLD");
    char path[4096], end[4096];

    if (folder == NULL)
        return;
    snprintf(end, sizeof end, "%s/end", folder);
    for (int number = 1, tries = 0; access(end, F_OK) != 0; tries++) {
        long count = 0;
        FILE *file;

        CHECK(tries == 450000); /* 15 minutes: nobody is there any more */
        snprintf(path, sizeof path, "%s/turn.%d", folder, number);
        file = fopen(path, "r");
        if (file == NULL) {
            usleep(2000);
            continue;
        }
        CHECK(fscanf(file, "%ld", &count) != 1);
        fclose(file);
        answer(folder, number++, timed(count));
        tries = 0;
    }
}

static int *ballast_block(int value)
{
    int *block;

    CHECK(cudaMalloc(&block, (size_t)1 << 30));
    CHECK(cudaMemset(block, value, (size_t)1 << 30));
    return block;
}

/* Every 4 KiB of it. */
static void require_unchanged(const int *block, int value)
{
    const size_t pages = (size_t)1 << 18;
    int *host = (int *)malloc(pages * sizeof *host);

    CHECK(host == NULL);
    CHECK(cudaMemcpy2D(host, sizeof *host, block, 4096, sizeof *host, pages, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < pages; i++)
        CHECK(host[i] != value * 0x01010101);
    free(host);
}

int main(int argc, char **argv)
{
    const int gib = argc > 1 ? atoi(argv[1]) : 0;
    int *ballast[64];

    CHECK(gib > 64);
    for (int i = 0; i < gib; i++)
        ballast[i] = ballast_block(i);
    set_up();
    for (int i = 0; i < ROUNDS; i++) {
        if (i == ROUNDS / 2) {
            synchronize();
            middle();
        }
        step(i);
    }
    synchronize();
    write_result();
    for (int i = 0; i < gib; i++)
        require_unchanged(ballast[i], i);
    CHECK(fclose(stdout) != 0);
    repeat();
    return 0;
}
