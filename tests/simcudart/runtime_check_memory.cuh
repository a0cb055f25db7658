/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_check_memory.cuh: memory for runtime_check.cu: allocations, pointers, copies, symbols, managed
 * memory.
 */
#pragma once

#include "runtime_check.cuh"

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
