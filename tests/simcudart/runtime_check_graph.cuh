/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_check_graph.cuh: graphs for runtime_check.cu: captured, and built node by node.
 */
#pragma once

#include "runtime_check.cuh"

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
