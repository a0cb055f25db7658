# SPDX-License-Identifier: Apache-2.0
"""PyTorch: training steps with cuDNN convolutions and cuBLAS matmuls, and a CUDA graph that is captured in the first half
and replayed in the second. Deterministic, so that every run must give the same bytes."""
import os
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn
import jobs

how = jobs.options()
result = jobs.Result()
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
gpu = torch.device("cuda")


def keep(tensor):
    result.add(tensor.detach().float().cpu().numpy())


ballast = [torch.full((1 << 28,), 3 * i + 1, dtype=torch.int32, device=gpu) for i in range(int(how.ballast_gib))]

model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
                      nn.ReLU(), nn.Flatten(), nn.Linear(64 * 16 * 16, 256), nn.ReLU(), nn.Linear(256, 10)).to(gpu)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = torch.randn(256, 3, 32, 32, generator=torch.Generator().manual_seed(2)).to(gpu)
labels = torch.randint(0, 10, (256,), generator=torch.Generator().manual_seed(3)).to(gpu)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(data), labels)
        loss.backward()
        optimizer.step()
        keep(loss)


def capture():
    """A graph of matmuls on static tensors: each replay updates `state`."""
    state = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(4)).to(gpu)
    weight = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(5)).to(gpu) / 40
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            state.copy_(torch.tanh(state @ weight) + 0.1)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state.copy_(torch.tanh(state @ weight) + 0.1)
    return graph, state, weight


train(5)
graph, state, weight = capture()
graph.replay()
torch.cuda.synchronize()
keep(state)
jobs.middle(how)
for _ in range(5):
    graph.replay()
torch.cuda.synchronize()
keep(state)
train(5)
for parameter in model.parameters():
    keep(parameter)
for i, block in enumerate(ballast):
    if not bool((block == 3 * i + 1).all()):
        raise SystemExit(f"ballast block {i} is not what was put there")
result.print("torch")
