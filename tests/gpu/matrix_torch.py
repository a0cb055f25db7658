# SPDX-License-Identifier: Apache-2.0
"""The PyTorch rows of the matrix: matrix_torch.py MODE. Deterministic: every run gives the same bytes."""
import os
import tempfile

import torch
import torch.multiprocessing as processes
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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)  # tensor parallel mixes kinds of tensors
    for step, (data, labels) in enumerate(batches(steps, device)):
        if step == steps // 2:
            torch.cuda.synchronize()
            middle()
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()


def keep_parameters(job, model):
    for parameter in model.parameters():
        job.add(parameter.detach().float().cpu().numpy())


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


class OnDevice(Dataset):
    """Items that are made on the device, by a worker."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((256, 1024), float(index), device="cuda")


def loader(job, how):
    items = DataLoader(OnDevice(), batch_size=None, num_workers=2, multiprocessing_context=how, prefetch_factor=2)
    total = torch.zeros(256, 1024, device="cuda")
    for number, item in enumerate(items):
        if number == 32:
            middle()
        total += item * 0.5
        del item
    job.add(total.cpu().numpy())


def ballast_of(gib):
    return [torch.full((1 << 28,), 3 * i + 1, dtype=torch.int32, device="cuda") for i in range(gib)]


def require_unchanged(ballast):
    if any(not bool((block == 3 * i + 1).all()) for i, block in enumerate(ballast)):
        raise SystemExit("the ballast is not what was put there")


# --- two cards ---

def rank_main(rank, mode, gib, store, out):
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel
    deterministic()
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
    ballast = ballast_of(gib)
    model = make_model().cuda()
    if mode == "ddp":
        model = DistributedDataParallel(model, device_ids=[rank])
    elif mode == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel
        model = FullyShardedDataParallel(model)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        model = parallelize_module(model, init_device_mesh("cuda", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(model, STEPS, "cuda")
    with torch.no_grad():
        answer = model(next(iter(batches(1, "cuda")))[0])
    require_unchanged(ballast)
    if rank == 0:
        torch.save(answer.float().cpu(), out)
    distributed.barrier()
    distributed.destroy_process_group()


def two_cards(job, mode):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        processes.spawn(rank_main, args=(mode, job.ballast_gib, os.path.join(folder, "store"), out), nprocs=2)
        job.add(torch.load(out).numpy())


def main():
    job = Job(__doc__)
    deterministic()
    if job.mode in ("ddp", "fsdp", "tensor-parallel"):
        job.begin()
        two_cards(job, job.mode)
        job.done()
        return
    ballast = ballast_of(job.ballast_gib)
    torch.cuda.synchronize()
    job.begin()
    if job.mode == "graphs":
        graphs(job)
    elif job.mode.startswith("loader-"):
        loader(job, job.mode.removeprefix("loader-"))
    else:
        model = make_model().cuda()
        train(torch.compile(model) if job.mode == "compile" else model, STEPS, "cuda")
        keep_parameters(job, model)
    torch.cuda.synchronize()
    require_unchanged(ballast)
    job.done()


if __name__ == "__main__":
    main()
