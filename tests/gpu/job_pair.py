#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training job for pairs.py: job_pair.py ddp|fsdp|single GIB STEPS. ddp and fsdp: one process a GPU over NCCL, on two GPUs;
single: one process on the first. GIB of ballast on each. Prints one JSON line: a checksum that must not depend on who shares
the cards, whether the ballast is as it was, and the seconds of the steps."""
import hashlib
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WIDTH, LAYERS, BATCH = 4096, 4, 512


def ballast_of(gib, rank):
    return [torch.full((1 << 28,), i + rank, dtype=torch.int32, device="cuda") for i in range(gib)]


def make_model(kind):
    torch.manual_seed(7)
    model = torch.nn.Sequential(*[layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]).cuda()
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model)
    return model


def train(kind, gib, steps, rank):
    ballast = ballast_of(gib, rank)
    model = make_model(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    digest, began = hashlib.sha256(), time.monotonic()
    for _ in range(steps):
        loss = model(torch.randn(BATCH, WIDTH, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        digest.update(str(loss.item()).encode())
    right = all(bool((each == i + rank).all()) for i, each in enumerate(ballast))
    return digest.hexdigest()[:12], right, time.monotonic() - began


def run(rank, kind, port, gib, steps, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    results.put((rank, *train(kind, gib, steps, rank)))
    dist.barrier()
    dist.destroy_process_group()


def main():
    kind, gib, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.environ.update(NCCL_NVLS_ENABLE="0", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    if kind == "single":
        found = [(0, *train(kind, gib, steps, 0))]
    else:
        mp.set_start_method("spawn")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        results = mp.Queue()
        ranks = [mp.Process(target=run, args=(rank, kind, port, gib, steps, results)) for rank in range(2)]
        for each in ranks:
            each.start()
        found = sorted(results.get() for _ in ranks)
        for each in ranks:
            each.join()
    print(json.dumps({"checksum": "-".join(each[1] for each in found), "right": all(each[2] for each in found),
                      "seconds": max(each[3] for each in found)}))


if __name__ == "__main__":
    main()
