/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_check.cu: what a CUDA runtime must do, call by call. Linked with simcudart it runs on
 * the simulated card; linked with NVIDIA's runtime (runtime_check.nv) it runs on a real card
 * and shows that the expectations here are right.
 *
 * Every expectation that does not hold is one line; exit status 1 then.
 */
#include "runtime_check.cuh"
#include "runtime_check_graph.cuh"
#include "runtime_check_memory.cuh"

static void versions_and_devices()
{
    int count = 0;
    int device = -1;
    int version = 0;
    int value = 0;
    cudaDeviceProp properties;

    WORKS(cudaRuntimeGetVersion(&version));
    TRUE(version == CUDART_VERSION);
    WORKS(cudaDriverGetVersion(&version));
    TRUE(version >= 13000);
    WORKS(cudaGetDeviceCount(&count));
    TRUE(count >= 1);
    WORKS(cudaGetDevice(&device));
    TRUE(device == 0);
    GIVES(cudaSetDevice(count), cudaErrorInvalidDevice);
    GIVES(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    GIVES(cudaGetLastError(), cudaErrorInvalidDevice);
    GIVES(cudaGetLastError(), cudaSuccess);
    GIVES(cudaSetDevice(-1), cudaErrorInvalidDevice);
    (void)cudaGetLastError();
    WORKS(cudaSetDevice(0));
    WORKS(cudaGetDeviceProperties(&properties, 0));
    TRUE(properties.name[0] && properties.totalGlobalMem > 0);
    TRUE(properties.warpSize == 32 && properties.maxThreadsPerBlock == 1024);
    WORKS(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    TRUE(value == properties.major && value >= 8);
    GIVES(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, count), cudaErrorInvalidDevice);
    (void)cudaGetLastError();
    TRUE(strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress") == 0);
    TRUE(strcmp(cudaGetErrorName(cudaSuccess), "cudaSuccess") == 0);
    TRUE(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
    TRUE(strcmp(cudaGetErrorString(cudaSuccess), "no error") == 0);
    TRUE(strcmp(cudaGetErrorName((cudaError_t)12345), "unrecognized error code") == 0);
}

static void launches()
{
    int *words;
    int count = 16;
    int more = 5;
    int out[16];
    void *args[] = {&words, &count, &more};
    cudaKernel_t kernel = NULL;
    cudaLaunchConfig_t config = {};

    WORKS(cudaMalloc(&words, sizeof(out)));
    WORKS(cudaMemset(words, 0, sizeof(out)));
    WORKS(cudaLaunchKernel((const void *)check_add, dim3(1), dim3(32), args, 0, 0));
    WORKS(cudaGetKernel(&kernel, (const void *)check_add));
    WORKS(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(32), args, 0, 0));
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    WORKS(cudaLaunchKernelExC(&config, (const void *)check_add, args));
    WORKS(cudaLaunchCooperativeKernel((const void *)check_add, dim3(1), dim3(32), args, 0, 0));
    WORKS(cudaMemcpy(out, words, sizeof(out), cudaMemcpyDeviceToHost));
    TRUE(out[0] == 20 && out[15] == 20);
    check_add<<<1, 2048>>>(words, 1, 1);
    GIVES(cudaGetLastError(), cudaErrorInvalidValue);
    check_add<<<0, 32>>>(words, 1, 1);
    GIVES(cudaGetLastError(), cudaErrorInvalidValue);
    GIVES(cudaLaunchKernel((const void *)check_add, dim3(1), dim3(2048), args, 0, 0),
          cudaErrorInvalidValue);
    GIVES(cudaLaunchKernel((const void *)check_add, dim3(0), dim3(1), args, 0, 0),
          cudaErrorInvalidValue);
    GIVES(cudaLaunchKernelExC(&config, (const void *)check_add, NULL), cudaErrorInvalidValue);
    if (getenv("RUNTIME_CHECK_STRAY")) /* NVIDIA's runtime takes it for a handle and crashes */
        GIVES(cudaLaunchKernel((const void *)words, dim3(1), dim3(1), args, 0, 0),
              cudaErrorInvalidDeviceFunction);
    GIVES(cudaLaunchKernel(NULL, dim3(1), dim3(1), args, 0, 0), cudaErrorInvalidDeviceFunction);
    (void)cudaGetLastError();
    WORKS(cudaMemcpy(out, words, sizeof(out), cudaMemcpyDeviceToHost));
    TRUE(out[0] == 20);
    WORKS(cudaFree(words));
}

static void functions()
{
    cudaFuncAttributes attributes;
    int blocks = 0;
    const char *name = NULL;
    cudaFunction_t function = NULL;

    WORKS(cudaFuncGetAttributes(&attributes, check_add));
    TRUE(attributes.maxThreadsPerBlock == 1024 && attributes.numRegs > 0);
    TRUE(attributes.sharedSizeBytes == 0);
    WORKS(cudaFuncSetAttribute(check_add, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    WORKS(cudaFuncGetAttributes(&attributes, check_add));
    TRUE(attributes.maxDynamicSharedSizeBytes == 65536);
    WORKS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, check_add, 256, 0));
    TRUE(blocks >= 1 && blocks <= 8);
    WORKS(cudaFuncGetName(&name, (const void *)check_add));
    TRUE(name && strcmp(name, "check_add") == 0);
    WORKS(cudaGetFuncBySymbol(&function, (const void *)check_add));
    TRUE(function != NULL);
    if (getenv("RUNTIME_CHECK_STRAY"))
        GIVES(cudaFuncGetAttributes(&attributes, (const void *)&blocks),
              cudaErrorInvalidDeviceFunction);
    (void)cudaGetLastError();
}

static std::atomic<int> gate;
static std::atomic<int> host_calls;

static void wait_for_gate(void *)
{
    while (!gate)
        usleep(1000);
    host_calls++;
}

static void called_back(cudaStream_t, cudaError_t status, void *data)
{
    *(cudaError_t *)data = status;
    host_calls++;
}

static void streams()
{
    cudaStream_t stream;
    cudaStream_t other;
    cudaEvent_t first;
    cudaEvent_t last;
    cudaError_t status = cudaErrorUnknown;
    unsigned int flags = 0;
    int least = 1;
    int greatest = 1;
    float ms = -1;

    WORKS(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    TRUE(greatest <= least);
    WORKS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    WORKS(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, greatest));
    WORKS(cudaStreamGetFlags(stream, &flags));
    TRUE(flags == cudaStreamNonBlocking);
    WORKS(cudaEventCreate(&first));
    WORKS(cudaEventCreate(&last));
    WORKS(cudaEventRecord(first, stream));
    WORKS(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
    WORKS(cudaEventRecord(last, stream));
    WORKS(cudaStreamWaitEvent(other, last, 0));
    WORKS(cudaStreamAddCallback(other, called_back, &status, 0));
    GIVES(cudaStreamQuery(stream), cudaErrorNotReady);
    GIVES(cudaEventQuery(last), cudaErrorNotReady);
    GIVES(cudaStreamQuery(other), cudaErrorNotReady);
    GIVES(cudaGetLastError(), cudaSuccess); /* an answer, not an error */
    TRUE(host_calls == 0);
    gate = 1;
    WORKS(cudaStreamSynchronize(other));
    TRUE(host_calls == 2 && status == cudaSuccess);
    WORKS(cudaEventSynchronize(last));
    WORKS(cudaStreamQuery(stream));
    WORKS(cudaEventElapsedTime(&ms, first, last));
    TRUE(ms >= 0);
    WORKS(cudaEventDestroy(first));
    WORKS(cudaEventDestroy(last));
    WORKS(cudaStreamDestroy(stream));
    WORKS(cudaStreamDestroy(other));
}

static void pools()
{
    cudaStream_t stream;
    cudaMemPool_t pool;
    uint64_t keep = 1 << 20;
    char *bytes;
    char out[16] = {0};

    WORKS(cudaStreamCreate(&stream));
    WORKS(cudaDeviceGetDefaultMemPool(&pool, 0));
    WORKS(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    keep = 0;
    WORKS(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    TRUE(keep == 1 << 20);
    WORKS(cudaMallocAsync(&bytes, 5000, stream));
    WORKS(cudaMemsetAsync(bytes, 6, 5000, stream));
    WORKS(cudaMemcpyAsync(out, bytes + 4984, 16, cudaMemcpyDeviceToHost, stream));
    WORKS(cudaFreeAsync(bytes, stream));
    WORKS(cudaStreamSynchronize(stream));
    TRUE(out[0] == 6 && out[15] == 6);
    WORKS(cudaMallocFromPoolAsync(&bytes, 100, pool, stream));
    WORKS(cudaFreeAsync(bytes, stream));
    WORKS(cudaStreamSynchronize(stream));
    WORKS(cudaMemPoolTrimTo(pool, 0));
    WORKS(cudaStreamDestroy(stream));
}

static void entry_points()
{
    void *function = NULL;
    cudaDriverEntryPointQueryResult found;

    WORKS(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 13000, cudaEnableDefault,
                                           &found));
    TRUE(function && found == cudaDriverEntryPointSuccess);
    WORKS(cudaGetDriverEntryPointByVersion("cuCtxCreate", &function, 12050, cudaEnableDefault,
                                           &found));
    TRUE(function && found == cudaDriverEntryPointSuccess);
    WORKS(cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &function, 13000,
                                           cudaEnableDefault, &found));
    TRUE(found == cudaDriverEntryPointSymbolNotFound);
    (void)cudaGetLastError();
}

static void other_thread()
{
    int device = -1;
    void *pointer = NULL;

    GIVES(cudaPeekAtLastError(), cudaSuccess);
    WORKS(cudaGetDevice(&device));
    TRUE(device == 0);
    WORKS(cudaMalloc(&pointer, 100));
    WORKS(cudaFree(pointer));
    GIVES(cudaSetDevice(1000), cudaErrorInvalidDevice);
}

static void reset()
{
    void *pointer = NULL;
    int *words;
    int out = 0;

    WORKS(cudaMalloc(&pointer, 100));
    WORKS(cudaDeviceReset());
    GIVES(cudaFree(pointer), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    WORKS(cudaMalloc(&words, sizeof(int)));
    WORKS(cudaMemset(words, 0, sizeof(int)));
    check_add<<<1, 1>>>(words, 1, 3);
    WORKS(cudaMemcpy(&out, words, sizeof(int), cudaMemcpyDeviceToHost));
    TRUE(out == 3);
    WORKS(cudaFree(words));
}

static void section(const char *name, void (*run)())
{
    const char *trace = getenv("RUNTIME_CHECK_TRACE");

    if (trace)
        puts(name);
    run();
}

int main()
{
    setvbuf(stdout, NULL, _IONBF, 0);
    section("versions_and_devices", versions_and_devices);
    section("allocation", allocation);
    section("pointers", pointers);
    section("copies", copies);
    section("rectangles", rectangles);
    section("symbols", symbols);
    section("managed", managed);
    section("launches", launches);
    section("functions", functions);
    section("streams", streams);
    section("pools", pools);
    section("captures", captures);
    section("built_graph", built_graph);
    section("entry_points", entry_points);
    std::thread(other_thread).join();
    GIVES(cudaGetLastError(), cudaSuccess); /* the other thread's error is not ours */
    section("reset", reset);
    if (failures)
        printf("%d expectations do not hold\n", failures);
    else
        puts("ok");
    return failures != 0;
}
