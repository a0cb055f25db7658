# SPDX-License-Identifier: Apache-2.0
"""Triton: one kernel, compiled in the first half, launched in both."""
import torch
import triton
import triton.language as tl
import jobs

how = jobs.options()
result = jobs.Result()


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    tl.store(out + offset, tl.load(x + offset, mask=mask) + 2 * tl.load(y + offset, mask=mask), mask=mask)


ballast = [torch.full((1 << 28,), 3 * i + 1, dtype=torch.int32, device="cuda") for i in range(int(how.ballast_gib))]
n = (1 << 22) + 17
x = torch.randn(n, generator=torch.Generator().manual_seed(1)).cuda()
y = torch.randn(n, generator=torch.Generator().manual_seed(2)).cuda()


def half(rounds):
    global x
    for _ in range(rounds):
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
        x = out
    result.add(x.cpu().numpy())


half(3)
torch.cuda.synchronize()
jobs.middle(how)
half(3)
for i, block in enumerate(ballast):
    if not bool((block == 3 * i + 1).all()):
        raise SystemExit(f"ballast block {i} is not what was put there")
result.print("triton")
