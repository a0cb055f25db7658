# SPDX-License-Identifier: Apache-2.0
"""CuPy: cuBLAS, cuFFT, a sort and a kernel of its own (NVRTC), before and after the middle."""
import cupy
import numpy
import jobs

how = jobs.options()
result = jobs.Result()
random = numpy.random.default_rng(1)
ballast = [cupy.full((1 << 28,), 3 * i + 1, dtype=cupy.int32) for i in range(int(how.ballast_gib))]
matrix = cupy.asarray(random.standard_normal((1024, 1024)))
signal = cupy.asarray(random.standard_normal(1 << 20).astype(numpy.float32))
keys = cupy.asarray(random.integers(0, 1 << 30, 1 << 20))
scale = cupy.RawKernel(r"""
extern "C" __global__ void scale(const double *in, double *out, double factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * factor + i;
}""", "scale")


def half(factor):
    out = cupy.empty_like(matrix)
    scale((matrix.size // 256,), (256,), (matrix, out, numpy.float64(factor), numpy.int32(matrix.size)))
    result.add(cupy.asnumpy(out))
    result.add(cupy.asnumpy(matrix @ matrix.T))
    result.add(cupy.asnumpy(cupy.fft.rfft(signal)))
    result.add(cupy.asnumpy(cupy.sort(keys)))


half(2.0)
cupy.cuda.Device().synchronize()
jobs.middle(how)
half(3.0)
for i, block in enumerate(ballast):
    if not bool((block == 3 * i + 1).all()):
        raise SystemExit(f"ballast block {i} is not what was put there")
result.print("cupy")
