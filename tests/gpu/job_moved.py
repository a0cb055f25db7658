# SPDX-License-Identifier: Apache-2.0
"""PyTorch for moves.py: training steps with cuDNN convolutions, and replays of a CUDA graph. job_moved.py STEPS. Where
GS_MOVED_MIDDLE names a path, each third step begins as soon as PATH<n>.done exists, having made PATH<n>. In between work goes on, so
that a move finds the card busy; what that work computes is checked, but is no part of the checksum."""
import hashlib
import os
import sys
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn

MIDDLE, STEPS = os.environ.get("GS_MOVED_MIDDLE"), int(sys.argv[1])
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
gpu = torch.device("cuda")
digest = hashlib.sha256()
ballast = [torch.full((1 << 28,), 3 * i + 1, dtype=torch.int32, device=gpu) for i in range(3)]
model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
                      nn.Flatten(), nn.Linear(64 * 16 * 16, 256), nn.ReLU(), nn.Linear(256, 10)).to(gpu)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = torch.randn(256, 3, 32, 32, generator=torch.Generator().manual_seed(2)).to(gpu)
labels = torch.randint(0, 10, (256,), generator=torch.Generator().manual_seed(3)).to(gpu)
state = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(4)).to(gpu)
weight = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(5)).to(gpu) / 40


def capture():
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        state.copy_(torch.tanh(state @ weight) + 0.1)
    torch.cuda.current_stream().wait_stream(stream)
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        state.copy_(torch.tanh(state @ weight) + 0.1)
    return made


def wait_for_move(number):
    if MIDDLE is None:
        return
    with open(f"{MIDDLE}{number}", "wb"):
        pass
    while not os.path.exists(f"{MIDDLE}{number}.done"):
        busy = data.flatten(1) @ data.flatten(1).T
        assert torch.equal(busy, data.flatten(1) @ data.flatten(1).T), "two equal products differ"


graph = capture()
for step in range(STEPS):
    if step % 3 == 0:
        wait_for_move(step // 3)
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(data), labels)
    loss.backward()
    optimizer.step()
    graph.replay()
    digest.update(loss.detach().cpu().numpy().tobytes())
digest.update(state.cpu().numpy().tobytes())
for i, block in enumerate(ballast):
    assert bool((block == 3 * i + 1).all()), f"block {i} has changed"
print("checksum", digest.hexdigest()[:16])
