#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training jobs for pairs.py, one after the other: each line "ddp|fsdp|grow|single GIB STEPS" on stdin is one. ddp and fsdp: one process
a GPU over NCCL, on two GPUs; grow: the same as ddp, but its ranks meet by a file, and its ballast grows while it runs; single: one
process on the first. GIB of ballast on each. Prints one JSON line for each: a checksum
that must not depend on what shares the cards, whether the ballast is as it was, and the seconds of the steps; or "error".
PyTorch is imported once, which takes longest; the processes that use a GPU are forked for each job and end with it."""
import hashlib
import json
import multiprocessing as mp
import os
import socket
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

WIDTH, LAYERS, BATCH = 4096, 4, 512


def add_ballast(ballast, gib, rank):
    """Until there is so much of it."""
    while len(ballast) < gib:
        ballast.append(torch.full((1 << 28,), len(ballast) + rank, dtype=torch.int32, device="cuda"))


def make_model(kind):
    torch.manual_seed(7)
    model = torch.nn.Sequential(*[layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]).cuda()
    if kind in ("ddp", "grow"):
        return torch.nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp":
        return FullyShardedDataParallel(model)
    return model


def train(kind, gib, steps, rank):
    ballast = []
    if kind != "grow":
        add_ballast(ballast, gib, rank)
    model = make_model(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    digest, began = hashlib.sha256(), time.monotonic()
    for step in range(steps):
        add_ballast(ballast, gib * (step + 1) // steps, rank)
        loss = model(torch.randn(BATCH, WIDTH, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        digest.update(str(loss.item()).encode())
    right = all(bool((each == i + rank).all()) for i, each in enumerate(ballast))
    return digest.hexdigest()[:12], right, time.monotonic() - began


def run(rank, kind, port, store, gib, steps, results):
    """The process of one rank."""
    torch.cuda.set_device(rank)
    if kind == "single":
        results.put((rank, *train(kind, gib, steps, rank)))
        return
    if kind == "grow":
        dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("nccl", rank=rank, world_size=2)
    results.put((rank, *train(kind, gib, steps, rank)))
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def job(kind, gib, steps):
    fork = mp.get_context("fork")
    results, port = fork.SimpleQueue(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        ranks = [fork.Process(target=run, args=(rank, kind, port, store, gib, steps, results))
                 for rank in range(1 if kind == "single" else 2)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
    if any(each.exitcode != 0 for each in ranks):
        return {"error": f"{kind}: ranks ended with {[each.exitcode for each in ranks]}"}
    found = sorted(results.get() for _ in ranks)
    return {"checksum": "-".join(each[1] for each in found), "right": all(each[2] for each in found), "seconds": max(each[3] for each in found)}


def main():
    os.environ.update(NCCL_NVLS_ENABLE="0", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    print("ready", flush=True)
    for line in sys.stdin:
        kind, gib, steps = line.split()
        print(json.dumps(job(kind, int(gib), int(steps))), flush=True)


if __name__ == "__main__":
    main()
