// SPDX-License-Identifier: Apache-2.0
// kernels.cu: what nvcc writes, for test_module.c: parameters with padding, a global, an initialised constant, a managed one.
__device__ unsigned counter = 41;
__device__ float table[1000];
__constant__ int factor = 6;
__managed__ long shared_total = 5;

extern "C" __global__ void mixed(char a, double b, short c, double *result)
{
    *result = a + b + c;
}

extern "C" __global__ void no_standin(int *p)
{
    *p = factor + (int)table[counter] + (int)shared_total;
}
