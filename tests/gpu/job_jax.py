# SPDX-License-Identifier: Apache-2.0
"""JAX: a jitted training step (convolution, matmul, gradient), run before and after the middle."""
import os
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
import jax
import jax.numpy as jnp
import numpy
import jobs

how = jobs.options()
result = jobs.Result()
if jax.default_backend() != "gpu":
    raise SystemExit(f"JAX runs on {jax.default_backend()}, not on the GPU")
random = numpy.random.default_rng(1)
ballast = [jnp.full((1 << 28,), 3 * i + 1, dtype=jnp.int32) for i in range(int(how.ballast_gib))]
images = jnp.asarray(random.standard_normal((64, 32, 32, 3), dtype=numpy.float32))
labels = jnp.asarray(random.integers(0, 10, 64))
weights = {
    "kernel": jnp.asarray(random.standard_normal((3, 3, 3, 16), dtype=numpy.float32) / 5),
    "dense": jnp.asarray(random.standard_normal((32 * 32 * 16, 10), dtype=numpy.float32) / 100),
}


def loss(weights):
    hidden = jax.lax.conv_general_dilated(images, weights["kernel"], (1, 1), "SAME",
                                          dimension_numbers=("NHWC", "HWIO", "NHWC"))
    logits = jax.nn.relu(hidden).reshape(images.shape[0], -1) @ weights["dense"]
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(labels.shape[0]), labels])


@jax.jit
def step(weights):
    value, gradient = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient)


def train(weights):
    for _ in range(5):
        value, weights = step(weights)
        result.add(numpy.asarray(value))
    return weights


weights = train(weights)
jax.block_until_ready((weights, ballast))
jobs.middle(how)
weights = train(weights)
for name in sorted(weights):
    result.add(numpy.asarray(weights[name]))
for i, block in enumerate(ballast):
    if not bool((block == 3 * i + 1).all()):
        raise SystemExit(f"ballast block {i} is not what was put there")
result.print("jax")
