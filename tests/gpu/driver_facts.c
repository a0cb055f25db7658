/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_facts.c: asks the driver what it answers in the corner cases that the runtime library
 * stands in for, one line each. Run without and with libgpushare in front, the two outputs must
 * be equal but for lines that begin with '~' (addresses, identities and amounts, which may
 * differ). On the real card this is the comparison of error codes that tests rely on. Lines
 * that begin with "~code" must be equal on the simulated card; on a real one they are only
 * shown.
 *
 * Built without CUDA libraries: cc driver_facts.c -ldl; everything by dlsym.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cudaTypedefs.h>

static void *driver;

#define FN(symbol, pfn) ((pfn)dlsym(driver, #symbol))

static void show_result(const char *what, CUresult result)
{
    printf("%s: %d\n", what, (int)result);
    fflush(stdout);
}

static CUresult m_alloc(CUdeviceptr *p, size_t n)
{
    return FN(cuMemAlloc_v2, PFN_cuMemAlloc_v3020)(p, n);
}

static CUresult m_free(CUdeviceptr p)
{
    return FN(cuMemFree_v2, PFN_cuMemFree_v3020)(p);
}

/* how many bytes an attribute writes, and what */
static void show_attribute(const char *name, CUpointer_attribute which, CUdeviceptr p,
                           int print_value)
{
    unsigned char a[16], b[16];
    CUresult result;
    int bytes = 0;

    memset(a, 0x55, sizeof a);
    memset(b, 0xaa, sizeof b);
    result = FN(cuPointerGetAttribute, PFN_cuPointerGetAttribute_v4000)(a, which, p);
    FN(cuPointerGetAttribute, PFN_cuPointerGetAttribute_v4000)(b, which, p);
    for (int i = 0; i < 16; i++)
        if (a[i] == b[i])
            bytes = i + 1;
    printf("attribute %s: %d, %d bytes", name, (int)result, bytes);
    for (int i = 0; print_value && i < bytes; i++)
        printf(" %02x", a[i]);
    printf("\n");
}

static void attributes_of(const char *what, CUdeviceptr p)
{
    printf("attributes of %s\n", what);
    show_attribute("context", CU_POINTER_ATTRIBUTE_CONTEXT, p, 0);
    show_attribute("memory type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p, 1);
    show_attribute("device pointer", CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p, 0);
    show_attribute("host pointer", CU_POINTER_ATTRIBUTE_HOST_POINTER, p, 0);
    show_attribute("sync memops", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p, 1);
    show_attribute("buffer id", CU_POINTER_ATTRIBUTE_BUFFER_ID, p, 0);
    show_attribute("is managed", CU_POINTER_ATTRIBUTE_IS_MANAGED, p, 1);
    show_attribute("ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p, 1);
    show_attribute("range start", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p, 0);
    show_attribute("range size", CU_POINTER_ATTRIBUTE_RANGE_SIZE, p, 1);
    show_attribute("mapped", CU_POINTER_ATTRIBUTE_MAPPED, p, 1);
    show_attribute("access flags", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p, 1);
    show_attribute("mempool", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p, 1);
    printf("~");
    show_attribute("ipc capable", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p, 1);
    printf("~");
    show_attribute("handle types", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p, 1);
    printf("~");
    show_attribute("rdma capable", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p, 1);
    printf("~");
    show_attribute("mapping size", CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p, 1);
    printf("~");
    show_attribute("mapping base", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, p, 0);
    printf("~");
    show_attribute("block id", CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, p, 0);
}

static void show_allocations(void)
{
    static const size_t sizes[] = {1, 511, 512, 513, 1 << 20, 2 << 20, (2 << 20) + 1, 65 << 20};
    CUdeviceptr p = 0, base;
    size_t size, pitch;

    show_result("alloc 0", m_alloc(&p, 0));
    show_result("alloc SIZE_MAX", m_alloc(&p, SIZE_MAX));
    show_result("alloc SIZE_MAX - 1 MiB", m_alloc(&p, SIZE_MAX - (1 << 20)));
    show_result("alloc 2^50", m_alloc(&p, (size_t)1 << 50));
    show_result("free 0", m_free(0));
    show_result("free 0x1234", m_free(0x1234));
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        printf("size %zu\n", sizes[i]);
        show_result("alloc", m_alloc(&p, sizes[i]));
        printf("aligned to 512: %d, to 2 MiB if as large: %d\n", p % 512 == 0,
               sizes[i] < 2 << 20 || p % (2 << 20) == 0);
        show_result("range", FN(cuMemGetAddressRange_v2, PFN_cuMemGetAddressRange_v3020)(
                                 &base, &size, p + sizes[i] / 2));
        printf("base is right: %d, size %zu\n", base == p, size);
        show_result("range behind it",
                    FN(cuMemGetAddressRange_v2,
                       PFN_cuMemGetAddressRange_v3020)(&base, &size, p - 1) == CUDA_SUCCESS &&
                            base + size > p
                        ? 999
                        : 0);
        show_result("memset behind the end",
                    FN(cuMemsetD8_v2, PFN_cuMemsetD8_v3020)(p, 1, ((size_t)1 << 40)));
        if (sizes[i] > 1)
            show_result("free inside", m_free(p + 1));
        show_result("free", m_free(p));
        show_result("free again", m_free(p));
        show_result("~memset after free",
                    FN(cuMemsetD8_v2, PFN_cuMemsetD8_v3020)(p, 1, sizes[i]));
    }
    show_result("pitch",
                FN(cuMemAllocPitch_v2, PFN_cuMemAllocPitch_v3020)(&p, &pitch, 1000, 100, 4));
    printf("pitch %zu\n", pitch);
    show_result("free pitch", m_free(p));
    show_result("pitch 0 width",
                FN(cuMemAllocPitch_v2, PFN_cuMemAllocPitch_v3020)(&p, &pitch, 0, 100, 4));
    show_result("pitch 0 height",
                FN(cuMemAllocPitch_v2, PFN_cuMemAllocPitch_v3020)(&p, &pitch, 100, 0, 4));
    show_result("pitch element 3",
                FN(cuMemAllocPitch_v2, PFN_cuMemAllocPitch_v3020)(&p, &pitch, 100, 10, 3));
    show_result("pitch too large", FN(cuMemAllocPitch_v2, PFN_cuMemAllocPitch_v3020)(
                                       &p, &pitch, (size_t)1 << 40, 1 << 20, 4));
    show_result("alloc NULL", m_alloc(NULL, 100));
}

static void show_streams(void)
{
    CUstream stream;
    CUdeviceptr p = 0;
    CUgraph graph = NULL;

    show_result("stream create",
                FN(cuStreamCreate, PFN_cuStreamCreate_v2000)(&stream, CU_STREAM_NON_BLOCKING));
    show_result("alloc", m_alloc(&p, 4 << 20));
    show_result("free async of cuMemAlloc memory",
                FN(cuMemFreeAsync, PFN_cuMemFreeAsync_v11020)(p, stream));
    show_result("~free async again", FN(cuMemFreeAsync, PFN_cuMemFreeAsync_v11020)(p, stream));
    show_result("alloc async",
                FN(cuMemAllocAsync, PFN_cuMemAllocAsync_v11020)(&p, 1 << 20, stream));
    show_result("free of async memory", m_free(p));
    show_result("end capture, none",
                FN(cuStreamEndCapture, PFN_cuStreamEndCapture_v10000)(stream, &graph));
    show_result("begin capture", FN(cuStreamBeginCapture_v2, PFN_cuStreamBeginCapture_v10010)(
                                     stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    show_result("begin capture twice",
                FN(cuStreamBeginCapture_v2,
                   PFN_cuStreamBeginCapture_v10010)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    show_result("end capture",
                FN(cuStreamEndCapture, PFN_cuStreamEndCapture_v10000)(stream, &graph));
    show_result("stream destroy", FN(cuStreamDestroy_v2, PFN_cuStreamDestroy_v4000)(stream));
}

static CUresult m_alloc_async(CUdeviceptr *p, size_t n, CUstream stream)
{
    return FN(cuMemAllocAsync, PFN_cuMemAllocAsync_v11020)(p, n, stream);
}

static CUresult m_free_async(CUdeviceptr p, CUstream stream)
{
    return FN(cuMemFreeAsync, PFN_cuMemFreeAsync_v11020)(p, stream);
}

/* freed once in each way, then again in each way */
static void double_frees(CUstream stream, size_t bytes)
{
    CUdeviceptr p = 0;

    printf("~double frees of %zu bytes\n", bytes);
    for (int way = 0; way < 8; way++) {
        if ((way & 6) != 0) /* one of these crashed inside NVIDIA's driver (580, H200) */
            continue;
        const int async_alloc = way & 1, async_free = way & 2, async_again = way & 4;

        show_result("~code allocate",
                    async_alloc ? m_alloc_async(&p, bytes, stream) : m_alloc(&p, bytes));
        show_result("~code free", async_free ? m_free_async(p, stream) : m_free(p));
        show_result("~code free again", async_again ? m_free_async(p, stream) : m_free(p));
        FN(cuStreamSynchronize, PFN_cuStreamSynchronize_v2000)(stream);
    }
}

static void show_ordered(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool = NULL, standard = NULL;
    unsigned long long number = 5;
    CUdeviceptr p = 0, base = 0;
    CUstream stream;
    size_t size = 0;

    show_result("~code stream", FN(cuStreamCreate, PFN_cuStreamCreate_v2000)(&stream, 1));
    show_result("~code async 0 bytes", m_alloc_async(&p, 0, stream));
    show_result("~code async SIZE_MAX", m_alloc_async(&p, SIZE_MAX, stream));
    show_result("~code async 2^50", m_alloc_async(&p, (size_t)1 << 50, stream));
    show_result("~code async NULL", m_alloc_async(NULL, 100, stream));
    show_result("~code free async foreign", m_free_async(0x1234, stream));
    show_result("~code async", m_alloc_async(&p, 3 << 20, stream));
    show_result("~code free async inside", m_free_async(p + 512, stream));
    show_result("~code free inside", m_free(p + 512));
    show_result("~code range", FN(cuMemGetAddressRange_v2,
                                  PFN_cuMemGetAddressRange_v3020)(&base, &size, p + (1 << 20)));
    printf("~code base is right: %d, size %zu\n", base == p, size);
    show_result("~code free async", m_free_async(p, stream));
    show_result("~code synchronize",
                FN(cuStreamSynchronize, PFN_cuStreamSynchronize_v2000)(stream));
    show_result("~code range after free",
                FN(cuMemGetAddressRange_v2, PFN_cuMemGetAddressRange_v3020)(&base, &size, p));
    double_frees(stream, 1000);
    double_frees(stream, 5 << 20);
    show_result("~code pool", FN(cuMemPoolCreate, PFN_cuMemPoolCreate_v11020)(&pool, &props));
    show_result("~code used is read only",
                FN(cuMemPoolSetAttribute, PFN_cuMemPoolSetAttribute_v11020)(
                    pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &number));
    show_result("~code high is only reset",
                FN(cuMemPoolSetAttribute, PFN_cuMemPoolSetAttribute_v11020)(
                    pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &number));
    show_result("~code destroy", FN(cuMemPoolDestroy, PFN_cuMemPoolDestroy_v11020)(pool));
    show_result("~code default pool", FN(cuDeviceGetDefaultMemPool,
                                         PFN_cuDeviceGetDefaultMemPool_v11020)(&standard, 0));
    show_result("~code destroy the default pool",
                FN(cuMemPoolDestroy, PFN_cuMemPoolDestroy_v11020)(standard));
    show_result("~code stream destroy",
                FN(cuStreamDestroy_v2, PFN_cuStreamDestroy_v4000)(stream));
}

int main(void)
{
    CUcontext context;
    CUdeviceptr p = 0;
    size_t free_bytes = 0, total = 0;
    void *host = NULL;

    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        printf("%s\n", dlerror());
        return 77;
    }
    show_result("alloc before init", m_alloc(&p, 100));
    show_result("memset before init", FN(cuMemsetD8_v2, PFN_cuMemsetD8_v3020)(0x1000, 1, 1));
    show_result("init", FN(cuInit, PFN_cuInit_v2000)(0));
    show_result("alloc without context", m_alloc(&p, 100));
    show_result("free without context", m_free(0x1000));
    show_result("memset without context",
                FN(cuMemsetD8_v2, PFN_cuMemsetD8_v3020)(0x1000, 1, 1));
    show_result("synchronize without context",
                FN(cuCtxSynchronize, PFN_cuCtxSynchronize_v2000)());
    show_result("retain",
                FN(cuDevicePrimaryCtxRetain, PFN_cuDevicePrimaryCtxRetain_v7000)(&context, 0));
    show_result("set", FN(cuCtxSetCurrent, PFN_cuCtxSetCurrent_v4000)(context));
    show_result("info", FN(cuMemGetInfo_v2, PFN_cuMemGetInfo_v3020)(&free_bytes, &total));
    printf("~free %zu of %zu\n", free_bytes, total);
    show_result("info NULL", FN(cuMemGetInfo_v2, PFN_cuMemGetInfo_v3020)(NULL, &total));
    show_allocations();
    m_alloc(&p, 4 << 20);
    attributes_of("4 MiB of cuMemAlloc", p);
    m_free(p);
    m_alloc(&p, 3000);
    attributes_of("3000 bytes of cuMemAlloc", p);
    attributes_of("inside", p + 100);
    m_free(p);
    attributes_of("freed", p);
    FN(cuMemAllocHost_v2, PFN_cuMemAllocHost_v3020)(&host, 4096);
    attributes_of("host memory", (CUdeviceptr)host);
    show_result("free host as device", m_free((CUdeviceptr)host));
    show_result("free host", FN(cuMemFreeHost, PFN_cuMemFreeHost_v2000)(host));
    show_streams();
    show_ordered();
    show_result("release",
                FN(cuDevicePrimaryCtxRelease_v2, PFN_cuDevicePrimaryCtxRelease_v11000)(0));
    return 0;
}
