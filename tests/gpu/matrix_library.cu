/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_library.cu: some rounds of work with one of NVIDIA's libraries, chosen by USE_*; writes
 * the bytes of the result to stdout. matrix_library BALLAST_GIB: device memory held besides,
 * and compared at the end. GS_MATRIX_MIDDLE=FOLDER: it stops in the middle (matrix_job.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda_runtime.h>

#define ROUNDS 200
#define N      1024

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

static void middle_of(int round, int rounds)
{
    if (round != rounds / 2)
        return;
    CHECK(cudaDeviceSynchronize());
    middle();
}

#if defined USE_CUBLAS
#include <cublas_v2.h>
static void work(void)
{
    const float one = 1e-4f, none = 0;
    float *a = matrix(), *b = matrix();
    cublasHandle_t handle;

    CHECK(cublasCreate(&handle));
    for (int i = 0; i < ROUNDS; i++) {
        middle_of(i, ROUNDS);
        CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, i % 2 ? a : b, N,
                          i % 2 ? a : b, N, &none, i % 2 ? b : a, N));
    }
    write_out(a);
}
#elif defined USE_CUDNN
#include <cudnn.h>
static void work(void)
{
    const float one = 1, none = 0;
    float *a = matrix(), *b = matrix();
    cudnnHandle_t handle;
    cudnnTensorDescriptor_t shape;

    CHECK(cudnnCreate(&handle));
    CHECK(cudnnCreateTensorDescriptor(&shape));
    CHECK(cudnnSetTensor4dDescriptor(shape, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, N, 1, 1));
    for (int i = 0; i < ROUNDS; i++) {
        middle_of(i, ROUNDS);
        CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL,
                                  &one, shape, i % 2 ? b : a, &none, shape, i % 2 ? a : b));
    }
    write_out(a);
}
#elif defined USE_CUFFT
#include <cufft.h>
static void work(void)
{
    float *a = matrix();
    cufftHandle plan;

    CHECK(cufftPlan1d(&plan, N, CUFFT_C2C, N / 2));
    for (int i = 0; i < 2; i++) {
        middle_of(i, 2);
        CHECK(cufftExecC2C(plan, (cufftComplex *)a, (cufftComplex *)a,
                           i % 2 ? CUFFT_INVERSE : CUFFT_FORWARD));
    }
    CHECK(cudaDeviceSynchronize());
    write_out(a);
}
#elif defined USE_CUSOLVER
#include <cusolverDn.h>
static void work(void)
{
    float *a = matrix(), *space;
    cusolverDnHandle_t handle;
    int bytes, *info;

    CHECK(cusolverDnCreate(&handle));
    CHECK(cusolverDnSpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, &bytes));
    CHECK(cudaMalloc(&space, sizeof(float) * (size_t)bytes));
    CHECK(cudaMalloc(&info, sizeof *info));
    middle_of(1, 2);
    CHECK(cusolverDnSpotrf(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, space, bytes, info));
    CHECK(cudaDeviceSynchronize());
    write_out(a);
}
#else
#include <nccl.h>
static void work(void)
{
    ncclComm_t comms[2];
    float *data[2];

    CHECK(ncclCommInitAll(comms, 2, NULL));
    for (int card = 0; card < 2; card++) {
        CHECK(cudaSetDevice(card));
        data[card] = matrix();
    }
    for (int i = 0; i < ROUNDS; i++) {
        if (i == ROUNDS / 2) {
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaSetDevice(0));
            middle_of(i, ROUNDS);
        }
        CHECK(ncclGroupStart());
        for (int card = 0; card < 2; card++)
            CHECK(ncclAllReduce(data[card], data[card], (size_t)N * N, ncclFloat, ncclMax,
                                comms[card], 0));
        CHECK(ncclGroupEnd());
    }
    for (int card = 0; card < 2; card++) {
        CHECK(cudaSetDevice(card));
        CHECK(cudaDeviceSynchronize());
        write_out(data[card]);
    }
}
#endif

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
    work();
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < gib; i++)
        require_unchanged(ballast[i], i);
    return 0;
}
