# SPDX-License-Identifier: Apache-2.0
"""The rows of the compatibility matrix: a name, the program, its options, the packages and cards that it needs, how many of its
processes stop in the middle (matrix_job.middle), and, where its work cannot be repeated, why: its overhead is not measured then."""
import collections

Row = collections.namedtuple("Row", "key title program arguments environment packages cards ranks no_overhead", defaults=[1, ""])


def torch(key, title, mode, environment=None, cards=1):
    program = "matrix_ranks.py" if cards > 1 else "matrix_torch.py"
    return Row(key, f"PyTorch: {title}", program, [mode], environment or {}, ["torch"], cards, cards)


def library(key, title, name, cudart, cards=1):
    return Row(key, f"{title}, {cudart} CUDA runtime", "matrix_library.py", [name, cudart], {}, ["numpy"], cards)


LIBRARIES = (("cublas", "cuBLAS", 1), ("cudnn", "cuDNN", 1), ("cufft", "cuFFT", 1), ("cusolver", "cuSOLVER", 1), ("nccl", "NCCL", 2))

ROWS = [
    torch("torch", "default allocator", "train"),
    torch("torch-expandable", "expandable segments", "train", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    torch("torch-async", "cudaMallocAsync", "train", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    torch("torch-compile", "torch.compile", "compile"),
    torch("torch-graphs", "CUDA graphs", "graphs"),
    torch("torch-loader-spawn", "DataLoader with CUDA tensors, spawn", "loader-spawn"),
    torch("torch-loader-forkserver", "DataLoader with CUDA tensors, forkserver", "loader-forkserver"),
    torch("torch-ddp", "DDP on two cards", "ddp", cards=2),
    torch("torch-fsdp", "FSDP on two cards", "fsdp", cards=2),
    torch("torch-tensor-parallel", "tensor parallel on two cards", "tensor-parallel", cards=2),
    Row("jax", "JAX, one process", "matrix_more.py", ["jax"], {}, ["jax"], 1),
    Row("jax-pmap", "JAX, pmap on two cards", "matrix_more.py", ["jax-pmap"], {}, ["jax"], 2),
    Row("cupy-pool", "CuPy, memory pool", "matrix_more.py", ["cupy-pool"], {}, ["cupy"], 1),
    Row("cupy-async", "CuPy, stream-ordered memory", "matrix_more.py", ["cupy-async"], {}, ["cupy"], 1),
    Row("cupy-managed", "CuPy, managed memory", "matrix_more.py", ["cupy-managed"], {}, ["cupy"], 1),
    Row("triton", "Triton", "matrix_more.py", ["triton"], {}, ["torch", "triton"], 1),
    Row("numba", "Numba", "matrix_more.py", ["numba"], {}, ["numba"], 1),
    Row("ctypes", "Driver API by ctypes", "matrix_more.py", ["ctypes"], {}, [], 1),
    Row("transformers-train", "transformers, training", "matrix_more.py", ["transformers-train"], {}, ["torch", "transformers"], 1),
    Row("transformers-generate", "transformers, generation", "matrix_more.py", ["transformers-generate"], {},
        ["torch", "transformers"], 1),
    *(library(f"{name}-{cudart}", title, name, cudart, cards) for name, title, cards in LIBRARIES for cudart in ("shared", "static")),
]
