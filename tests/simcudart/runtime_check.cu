/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_check.cu: what a CUDA runtime must do, call by call. Linked with simcudart it runs on
 * the simulated card; linked with NVIDIA's runtime (runtime_check.nv) it runs on a real card
 * and shows that the expectations here are right.
 *
 * Every expectation that does not hold is one line; exit status 1 then.
 */
#include <atomic>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <unistd.h>
#include <vector>

static int failures;

#define GIVES(call, expected) gives((call), (expected), #call, __LINE__)
#define WORKS(call)           gives((call), cudaSuccess, #call, __LINE__)
#define TRUE(condition)       holds((condition), #condition, __LINE__)

static void gives(cudaError_t got, cudaError_t expected, const char *what, int line)
{
    if (got == expected)
        return;
    printf("line %d: %s gave %s, not %s\n", line, what, cudaGetErrorName(got),
           cudaGetErrorName(expected));
    failures++;
}

static void holds(bool condition, const char *what, int line)
{
    if (condition)
        return;
    printf("line %d: not so: %s\n", line, what);
    failures++;
}

__device__ int device_words[16];
__constant__ int constant_words[4];
__managed__ int managed_word = 17;

extern "C" __global__ void check_add(int *words, int count, int more)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        words[i] += more;
}

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

static void allocation()
{
    void *pointer = &pointer;
    void *host = NULL;
    size_t free_bytes = 0;
    size_t total = 0;

    WORKS(cudaMalloc(&pointer, 0));
    TRUE(pointer == NULL);
    WORKS(cudaFree(NULL));
    WORKS(cudaFreeHost(NULL));
    GIVES(cudaMalloc((void **)NULL, 1), cudaErrorInvalidValue);
    WORKS(cudaMemGetInfo(&free_bytes, &total));
    TRUE(free_bytes > 0 && free_bytes <= total);
    (void)cudaGetLastError();
    GIVES(cudaMalloc(&pointer, total * 2), cudaErrorMemoryAllocation);
    GIVES(cudaGetLastError(), cudaErrorMemoryAllocation);
    WORKS(cudaMalloc(&pointer, 1000));
    WORKS(cudaFree(pointer));
    GIVES(cudaFree(pointer), cudaErrorInvalidValue);
    WORKS(cudaMallocHost(&host, 4096));
    memset(host, 1, 4096);
    WORKS(cudaFreeHost(host));
    GIVES(cudaFreeHost(host), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void pointers()
{
    static char plain[4096] __attribute__((aligned(4096)));
    cudaPointerAttributes attributes;
    void *device;
    void *pinned;
    void *mapped = NULL;

    WORKS(cudaMalloc(&device, 100000));
    WORKS(cudaHostAlloc(&pinned, 100000, cudaHostAllocDefault));
    WORKS(cudaPointerGetAttributes(&attributes, (char *)device + 5));
    TRUE(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    TRUE(attributes.devicePointer == (char *)device + 5);
    WORKS(cudaPointerGetAttributes(&attributes, pinned));
    TRUE(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == pinned);
    WORKS(cudaPointerGetAttributes(&attributes, plain));
    TRUE(attributes.type == cudaMemoryTypeUnregistered);
    TRUE(attributes.device == cudaInvalidDeviceId);
    WORKS(cudaHostGetDevicePointer(&mapped, pinned, 0));
    TRUE(mapped != NULL);
    WORKS(cudaHostRegister(plain, sizeof(plain), cudaHostRegisterDefault));
    WORKS(cudaPointerGetAttributes(&attributes, plain));
    TRUE(attributes.type == cudaMemoryTypeHost);
    WORKS(cudaHostUnregister(plain));
    WORKS(cudaFree(device));
    WORKS(cudaFreeHost(pinned));
}

static void copies()
{
    char in[256];
    char out[256] = {0};
    char *a;
    char *b;

    for (int i = 0; i < 256; i++)
        in[i] = (char)i;
    WORKS(cudaMalloc(&a, 256));
    WORKS(cudaMalloc(&b, 256));
    WORKS(cudaMemcpy(a, in, 256, cudaMemcpyHostToDevice));
    WORKS(cudaMemcpy(b, a, 256, cudaMemcpyDeviceToDevice));
    WORKS(cudaMemcpy(out, b, 256, cudaMemcpyDeviceToHost));
    TRUE(memcmp(in, out, 256) == 0);
    WORKS(cudaMemset(b, 0x7f, 128));
    WORKS(cudaMemcpy(out, b, 256, cudaMemcpyDefault));
    TRUE(out[0] == 0x7f && out[127] == 0x7f && out[128] == in[128]);
    WORKS(cudaMemcpy(out, in, 256, cudaMemcpyHostToHost));
    TRUE(memcmp(in, out, 256) == 0);
    WORKS(cudaMemcpy(out, in, 0, cudaMemcpyHostToDevice));
    GIVES(cudaMemcpy(out, in, 1, (cudaMemcpyKind)77), cudaErrorInvalidMemcpyDirection);
    GIVES(cudaGetLastError(), cudaErrorInvalidMemcpyDirection);
    WORKS(cudaFree(a));
    WORKS(cudaFree(b));
}

static void rectangles()
{
    char in[4][16];
    char out[4][10] = {};
    char *device;
    size_t pitch = 0;
    cudaPitchedPtr box;
    cudaExtent extent = make_cudaExtent(10, 4, 3);

    memset(in, 9, sizeof(in));
    WORKS(cudaMallocPitch(&device, &pitch, 10, 4));
    TRUE(pitch >= 10 && pitch % 16 == 0);
    WORKS(cudaMemset2D(device, pitch, 1, 10, 4));
    WORKS(cudaMemcpy2D(device, pitch, in, 16, 5, 2, cudaMemcpyHostToDevice));
    WORKS(cudaMemcpy2D(out, 10, device, pitch, 10, 4, cudaMemcpyDeviceToHost));
    TRUE(out[0][0] == 9 && out[1][4] == 9 && out[1][5] == 1 && out[2][0] == 1 &&
         out[3][9] == 1);
    GIVES(cudaMemcpy2D(out, 9, device, pitch, 10, 4, cudaMemcpyDeviceToHost),
          cudaErrorInvalidPitchValue);
    (void)cudaGetLastError();
    WORKS(cudaFree(device));

    WORKS(cudaMalloc3D(&box, extent));
    WORKS(cudaMemset3D(box, 3, extent));
    char cube[3][4][10] = {};
    cudaMemcpy3DParms copy = {};

    copy.srcPtr = box;
    copy.dstPtr = make_cudaPitchedPtr(cube, 10, 10, 4);
    copy.extent = extent;
    copy.kind = cudaMemcpyDeviceToHost;
    WORKS(cudaMemcpy3D(&copy));
    TRUE(cube[0][0][0] == 3 && cube[2][3][9] == 3 && cube[1][2][5] == 3);
    WORKS(cudaFree(box.ptr));
}

static void symbols()
{
    int in[16];
    int out[16] = {0};
    void *address = NULL;
    size_t size = 0;

    for (int i = 0; i < 16; i++)
        in[i] = i * 3;
    WORKS(cudaMemcpyToSymbol(device_words, in, sizeof(in)));
    WORKS(cudaMemcpyFromSymbol(out, device_words, 8 * sizeof(int), 8 * sizeof(int)));
    TRUE(out[0] == 24 && out[7] == 45 && out[8] == 0);
    WORKS(cudaMemcpyToSymbol(constant_words, in, sizeof(constant_words)));
    WORKS(cudaMemcpyFromSymbol(out, constant_words, sizeof(constant_words)));
    TRUE(out[3] == 9);
    WORKS(cudaGetSymbolSize(&size, device_words));
    TRUE(size == sizeof(in));
    WORKS(cudaGetSymbolAddress(&address, device_words));
    check_add<<<1, 32>>>((int *)address, 16, 1000);
    WORKS(cudaGetLastError());
    WORKS(cudaMemcpyFromSymbol(out, device_words, sizeof(out)));
    TRUE(out[0] == 1000 && out[15] == 1045);
    GIVES(cudaMemcpyToSymbol(device_words, in, sizeof(in), 4), cudaErrorInvalidValue);
    GIVES(cudaGetSymbolSize(&size, &size), cudaErrorInvalidSymbol);
    (void)cudaGetLastError();
}

static void managed()
{
    int *words;

    TRUE(managed_word == 17);
    managed_word = 4;
    check_add<<<1, 1>>>(&managed_word, 1, 38);
    WORKS(cudaDeviceSynchronize());
    TRUE(managed_word == 42);
    WORKS(cudaMallocManaged(&words, 4096));
    words[5] = 7;
    check_add<<<1, 32>>>(words, 16, 1);
    WORKS(cudaDeviceSynchronize());
    TRUE(words[5] == 8);
    cudaPointerAttributes attributes;

    WORKS(cudaPointerGetAttributes(&attributes, words));
    TRUE(attributes.type == cudaMemoryTypeManaged);
    WORKS(cudaFree(words));
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

static void captures()
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    int *words;
    int out[16];

    WORKS(cudaMalloc(&words, sizeof(out)));
    WORKS(cudaMemset(words, 0, sizeof(out)));
    WORKS(cudaDeviceSynchronize());
    WORKS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    WORKS(cudaStreamIsCapturing(stream, &status));
    TRUE(status == cudaStreamCaptureStatusNone);
    WORKS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    check_add<<<1, 32, 0, stream>>>(words, 16, 2);
    WORKS(cudaGetLastError());
    WORKS(cudaStreamIsCapturing(stream, &status));
    TRUE(status == cudaStreamCaptureStatusActive);
    WORKS(cudaStreamGetCaptureInfo(stream, &status, &id));
    TRUE(id != 0);
    WORKS(cudaStreamEndCapture(stream, &graph));
    WORKS(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        WORKS(cudaGraphLaunch(exec, stream));
    WORKS(cudaStreamSynchronize(stream));
    WORKS(cudaMemcpy(out, words, sizeof(out), cudaMemcpyDeviceToHost));
    TRUE(out[0] == 6 && out[15] == 6);
    WORKS(cudaGraphExecDestroy(exec));
    WORKS(cudaGraphDestroy(graph));
    WORKS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    GIVES(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    GIVES(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
    WORKS(cudaStreamDestroy(stream));
    WORKS(cudaFree(words));
}

static void built_graph()
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t nodes[3];
    cudaStream_t stream;
    int *words;
    int out[16] = {0};
    int count = 16;
    int more = 1;
    void *args[] = {&words, &count, &more};
    cudaMemsetParams fill = {};
    cudaKernelNodeParams add = {};

    WORKS(cudaMalloc(&words, sizeof(out)));
    WORKS(cudaStreamCreate(&stream));
    WORKS(cudaGraphCreate(&graph, 0));
    fill.dst = words;
    fill.elementSize = 1;
    fill.value = 1;
    fill.width = sizeof(out);
    fill.height = 1;
    WORKS(cudaGraphAddMemsetNode(&nodes[0], graph, NULL, 0, &fill));
    add.func = (void *)check_add;
    add.gridDim = dim3(1);
    add.blockDim = dim3(32);
    add.kernelParams = args;
    WORKS(cudaGraphAddKernelNode(&nodes[1], graph, &nodes[0], 1, &add));
    WORKS(cudaGraphAddMemcpyNode1D(&nodes[2], graph, &nodes[1], 1, out, words, sizeof(out),
                                   cudaMemcpyDeviceToHost));
    WORKS(cudaGraphInstantiate(&exec, graph, 0));
    WORKS(cudaGraphLaunch(exec, stream));
    WORKS(cudaStreamSynchronize(stream));
    TRUE(out[0] == 0x01010102 && out[15] == 0x01010102);
    size_t edges = 0;
    cudaKernelNodeParams got = {};

    WORKS(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    TRUE(edges == 2);
    WORKS(cudaGraphKernelNodeGetParams(nodes[1], &got));
    TRUE(got.blockDim.x == 32 && *(int *)got.kernelParams[2] == 1);
    more = 4;
    WORKS(cudaGraphExecKernelNodeSetParams(exec, nodes[1], &add));
    WORKS(cudaGraphLaunch(exec, stream));
    WORKS(cudaStreamSynchronize(stream));
    TRUE(out[0] == 0x01010105 && out[15] == 0x01010105);
    WORKS(cudaGraphExecDestroy(exec));
    WORKS(cudaGraphDestroy(graph));
    WORKS(cudaStreamDestroy(stream));
    WORKS(cudaFree(words));
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
