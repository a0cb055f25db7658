# SPDX-License-Identifier: Apache-2.0
"""The rows of the matrix beside PyTorch and the libraries: matrix_more.py MODE. Deterministic: every run gives the same bytes."""
import ctypes
import os

from matrix_job import Job, middle

ROUNDS = 200
NUMBERS = 1 << 24  # of Triton's and Numba's rows
GIB = 1 << 30


def rounds(iteration, synchronize):
    """ROUNDS of iteration(number), with the stop in the middle."""
    for number in range(ROUNDS):
        if number == ROUNDS // 2:
            synchronize()
            middle()
        iteration(number)


def run_jax(job, cards):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
    import jax
    import jax.numpy as jnp
    import numpy
    job.hold()
    if jax.default_backend() != "gpu":
        raise SystemExit(f"JAX runs on {jax.default_backend()}, not on the GPU")
    ballast = [jnp.full((1 << 28,), 3 * i + 1, dtype=jnp.int32) for i in range(job.ballast_gib)]
    state = jnp.asarray(numpy.random.default_rng(1).standard_normal((cards, 1024, 1024), dtype=numpy.float32) / 50)

    def step(one):
        return jnp.tanh(one @ one) + 0.01

    def summed(one):
        return jax.lax.psum(step(one), "cards") * 0.1

    each = jax.pmap(summed, axis_name="cards") if cards > 1 else jax.jit(step)

    def iteration(_number=0):
        nonlocal state
        state = each(state)

    def synchronize():
        jax.block_until_ready(state)

    rounds(iteration, synchronize)
    job.add(numpy.asarray(state))
    job.done(all(bool((block == 3 * i + 1).all()) for i, block in enumerate(ballast)))
    job.repeat(iteration, synchronize)


def run_cupy(job, allocator):
    import cupy
    job.hold()
    if allocator == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    elif allocator == "managed":
        cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
    # managed memory stays small: its sum must never come near what the card has
    ballast = [cupy.full(GIB // 4, 3 * i + 1, dtype=cupy.int32) for i in range(0 if allocator == "managed" else job.ballast_gib)]
    state = cupy.random.RandomState(1).standard_normal((2048, 2048), dtype=cupy.float32) / 50

    def iteration(_number=0):
        nonlocal state
        state = cupy.tanh(state @ state) + cupy.float32(0.01)

    def synchronize():
        cupy.cuda.Device().synchronize()

    rounds(iteration, synchronize)
    job.add(cupy.asnumpy(state))
    job.done(all(bool((block == 3 * i + 1).all()) for i, block in enumerate(ballast)))
    job.repeat(iteration, synchronize)


def run_triton(job):
    import torch
    import triton
    import triton.language as tl
    job.hold()

    @triton.jit
    def mix(address, count, value, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(address + at, tl.load(address + at, mask=at < count) * 3 + value, mask=at < count)

    ballast = [torch.full((1 << 28,), 3 * i + 1, dtype=torch.int32, device="cuda") for i in range(job.ballast_gib)]
    numbers = torch.arange(NUMBERS, dtype=torch.int32, device="cuda")

    def iteration(number=5):
        mix[(triton.cdiv(numbers.numel(), 1024),)](numbers, numbers.numel(), number, BLOCK=1024)

    rounds(iteration, torch.cuda.synchronize)
    job.add(numbers.cpu().numpy())
    job.done(all(bool((block == 3 * i + 1).all()) for i, block in enumerate(ballast)))
    job.repeat(iteration, torch.cuda.synchronize)


def run_numba(job):
    import numpy
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # NumPy 2.5 has dropped what Numba imports
    from numba import cuda
    job.hold()

    @cuda.jit
    def mix(numbers, value):
        at = cuda.grid(1)
        if at < numbers.size:
            numbers[at] = numbers[at] * 3 + value

    ballast = [cuda.to_device(numpy.full(GIB // 4, 3 * i + 1, dtype=numpy.int32)) for i in range(job.ballast_gib)]
    numbers = cuda.to_device(numpy.arange(NUMBERS, dtype=numpy.int32))

    def iteration(number=5):
        mix[NUMBERS // 256, 256](numbers, number)

    rounds(iteration, cuda.synchronize)
    job.add(numbers.copy_to_host())
    job.done(all(bool((block.copy_to_host() == 3 * i + 1).all()) for i, block in enumerate(ballast)))
    job.repeat(iteration, cuda.synchronize)


def run_ctypes(job):
    driver = ctypes.CDLL("libcuda.so.1")
    job.hold()

    def call(name, *arguments):
        result = getattr(driver, name)(*arguments)
        if result != 0:
            raise SystemExit(f"{name}: CUresult {result}")

    context, block = ctypes.c_void_p(), ctypes.c_uint64()
    ballast = [ctypes.c_uint64() for _ in range(job.ballast_gib)]
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    for i, address in enumerate(ballast):
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(GIB))
        call("cuMemsetD32_v2", address, ctypes.c_uint(3 * i + 1), ctypes.c_size_t(GIB // 4))
    size = 64 << 20
    call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size))

    def iteration(number=0):
        call("cuMemsetD8_v2", block, ctypes.c_ubyte(number), ctypes.c_size_t(size >> (number % 8)))

    def synchronize():
        call("cuCtxSynchronize")

    rounds(iteration, synchronize)
    back = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", back, block, ctypes.c_size_t(size))
    job.add(back.raw)
    right = True
    for i, address in enumerate(ballast):
        call("cuMemcpyDtoH_v2", back, address, ctypes.c_size_t(size))
        right = right and back.raw == (3 * i + 1).to_bytes(4, "little") * (size // 4)
    job.done(right)
    job.repeat(iteration, synchronize)


def run_transformers(job, generate):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    job.hold()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    ballast = [torch.full((1 << 28,), 3 * i + 1, dtype=torch.int32, device="cuda") for i in range(job.ballast_gib)]
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=8, n_embd=512, vocab_size=4096, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    model = model.cuda()
    words = torch.randint(0, 4096, (4, 128), generator=torch.Generator().manual_seed(2)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def written(count):
        with torch.no_grad():
            return model.generate(words[:, :16], max_new_tokens=count, do_sample=False, pad_token_id=0)

    def trained():
        optimizer.zero_grad(set_to_none=True)
        model(words, labels=words).loss.backward()
        optimizer.step()

    if generate:
        model.eval()
        middle()
        job.add(written(100).cpu().numpy())
    else:
        for step in range(50):
            if step == 25:
                middle()
            trained()
        for parameter in model.parameters():
            job.add(parameter.detach().cpu().numpy())
    job.done(all(bool((block == 3 * i + 1).all()) for i, block in enumerate(ballast)))
    job.repeat((lambda: written(10)) if generate else trained, torch.cuda.synchronize)


MODES = {"jax": lambda job: run_jax(job, 1), "jax-pmap": lambda job: run_jax(job, 2), "cupy-pool": lambda job: run_cupy(job, "pool"),
         "cupy-async": lambda job: run_cupy(job, "async"), "cupy-managed": lambda job: run_cupy(job, "managed"), "triton": run_triton,
         "numba": run_numba, "ctypes": run_ctypes, "transformers-train": lambda job: run_transformers(job, False),
         "transformers-generate": lambda job: run_transformers(job, True)}


def main():
    job = Job(__doc__)
    MODES[job.mode](job)


if __name__ == "__main__":
    main()
