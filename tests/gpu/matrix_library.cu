/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_library.cu: some rounds of work with one of NVIDIA's libraries, chosen by USE_*; writes
 * the bytes of the result to stdout. matrix_library BALLAST_GIB: device memory held besides.
 */
#include <stdio.h>
#include <stdlib.h>

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

#if defined USE_CUBLAS
#include <cublas_v2.h>
static void work(void)
{
    const float one = 1e-4f, none = 0;
    float *a = matrix(), *b = matrix();
    cublasHandle_t handle;

    CHECK(cublasCreate(&handle));
    for (int i = 0; i < ROUNDS; i++)
        CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, i % 2 ? a : b, N,
                          i % 2 ? a : b, N, &none, i % 2 ? b : a, N));
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
    for (int i = 0; i < ROUNDS; i++)
        CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL,
                                  &one, shape, i % 2 ? b : a, &none, shape, i % 2 ? a : b));
    write_out(a);
}
#elif defined USE_CUFFT
#include <cufft.h>
static void work(void)
{
    float *a = matrix();
    cufftHandle plan;

    CHECK(cufftPlan1d(&plan, N, CUFFT_C2C, N / 2));
    for (int i = 0; i < 2; i++)
        CHECK(cufftExecC2C(plan, (cufftComplex *)a, (cufftComplex *)a,
                           i % 2 ? CUFFT_INVERSE : CUFFT_FORWARD));
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

int main(int argc, char **argv)
{
    const int gib = argc > 1 ? atoi(argv[1]) : 0;
    void *ballast;

    for (int i = 0; i < gib; i++) {
        CHECK(cudaMalloc(&ballast, (size_t)1 << 30));
        CHECK(cudaMemset(ballast, i, (size_t)1 << 30));
    }
    work();
    return 0;
}
