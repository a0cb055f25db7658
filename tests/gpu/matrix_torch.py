# SPDX-License-Identifier: Apache-2.0
"""The PyTorch rows of the matrix on one card: matrix_torch.py MODE. Deterministic: every run gives the same bytes."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from matrix_job import Job, middle

STEPS = 200


def deterministic():
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def make_model():
    return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))


def batches(steps, device):
    draw = torch.Generator().manual_seed(2)
    for _ in range(steps):
        yield (torch.randn(256, 1024, generator=draw).to(device), torch.randint(0, 10, (256,), generator=draw).to(device))


def train(model, steps, device):
    """Trains it; returns one more step as a function, with data from the host."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)  # tensor parallel mixes kinds of tensors

    def step(data, labels):
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()

    for number, (data, labels) in enumerate(batches(steps, device)):
        if number == steps // 2:
            torch.cuda.synchronize()
            middle()
        step(data, labels)
    data, labels = next(batches(1, "cpu"))
    return lambda: step(data.to(device), labels.to(device))


def training(job, compiled):
    model = make_model().cuda()
    iteration = train(torch.compile(model) if compiled else model, STEPS, "cuda")
    for parameter in model.parameters():
        job.add(parameter.detach().float().cpu().numpy())
    return iteration


def graphs(job):
    state = torch.randn(2048, 2048, generator=torch.Generator().manual_seed(4)).cuda()
    weight = torch.randn(2048, 2048, generator=torch.Generator().manual_seed(5)).cuda() / 50
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            state.copy_(torch.tanh(state @ weight) + 0.1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state.copy_(torch.tanh(state @ weight) + 0.1)
    for step in range(10 * STEPS):
        if step == 5 * STEPS:
            torch.cuda.synchronize()
            middle()
        graph.replay()
    job.add(state.cpu().numpy())

    def iteration():
        graph.replay()
        return state, weight  # the graph uses them: they must live as long
    return iteration


class OnDevice(Dataset):
    """Items that are made on the device, by a worker."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((256, 1024), float(index), device="cuda")


def loader(job, how):
    """An iteration is an epoch; the workers stay."""
    items = DataLoader(OnDevice(), batch_size=None, num_workers=2, multiprocessing_context=how, prefetch_factor=2,
                       persistent_workers=True)
    total = torch.zeros(256, 1024, device="cuda")

    def epoch(stops=False):
        for number, item in enumerate(items):
            if stops and number == len(items) // 2:
                middle()
            total.add_(item * 0.5)
            del item

    epoch(stops=True)
    job.add(total.cpu().numpy())
    return epoch


def ballast_of(gib):
    return [torch.full((1 << 28,), 3 * i + 1, dtype=torch.int32, device="cuda") for i in range(gib)]


def is_unchanged(ballast):
    return all(bool((block == 3 * i + 1).all()) for i, block in enumerate(ballast))


def main():
    job = Job(__doc__)
    job.hold()
    deterministic()
    ballast = ballast_of(job.ballast_gib)
    torch.cuda.synchronize()
    if job.mode == "graphs":
        iteration = graphs(job)
    elif job.mode.startswith("loader-"):
        iteration = loader(job, job.mode.removeprefix("loader-"))
    else:
        iteration = training(job, job.mode == "compile")
    torch.cuda.synchronize()
    job.done(is_unchanged(ballast))
    job.repeat(iteration, torch.cuda.synchronize)


if __name__ == "__main__":
    main()
