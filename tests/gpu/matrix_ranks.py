# SPDX-License-Identifier: Apache-2.0
"""The PyTorch rows of the matrix with a process for each of two cards: matrix_ranks.py ddp|fsdp|tensor-parallel. Deterministic: every
run gives the same bytes. Only the ranks import PyTorch, which takes long."""
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile

from matrix_job import Job

CARDS = 2


def spread(model, mode, rank):
    """The model over all ranks."""
    if mode == "ddp":
        from torch.nn.parallel import DistributedDataParallel
        return DistributedDataParallel(model, device_ids=[rank])
    if mode == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    return parallelize_module(model, init_device_mesh("cuda", (CARDS,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})


def rank_main(rank, store):
    import torch
    from torch import distributed
    import matrix_torch
    job = Job(__doc__)  # the options of the program that started it
    job.hold()
    matrix_torch.deterministic()
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=CARDS)
    ballast = matrix_torch.ballast_of(job.ballast_gib)
    model = spread(matrix_torch.make_model().cuda(), job.mode, rank)
    iteration = matrix_torch.train(model, matrix_torch.STEPS, "cuda")
    with torch.no_grad():
        answer = model(next(matrix_torch.batches(1, "cuda"))[0])
    if rank == 0:
        job.add(answer.float().cpu().numpy())
    right = matrix_torch.is_unchanged(ballast)
    distributed.barrier()
    if rank == 0:
        job.done(right)
    elif not right:
        raise SystemExit("the ballast is not what was put there")
    job.repeat(iteration, torch.cuda.synchronize, answers=rank == 0)
    distributed.barrier()
    distributed.destroy_process_group()


def run_ranks(target, count, *words):
    """Whether all of target(rank, *words) end with 0. When one does not, the others are killed, since they would wait for it."""
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=target, args=(rank, *words)) for rank in range(count)]
    for rank in ranks:
        rank.start()
    waiting = ranks
    while waiting:
        multiprocessing.connection.wait([rank.sentinel for rank in waiting])
        waiting = [rank for rank in waiting if rank.exitcode is None]
        if any(rank.exitcode not in (None, 0) for rank in ranks):
            for rank in waiting:
                rank.kill()
            for rank in ranks:
                rank.join()
            return False
    return True


def main():
    Job(__doc__)  # refuses wrong options before anything is started
    with tempfile.TemporaryDirectory() as folder:
        if not run_ranks(rank_main, CARDS, os.path.join(folder, "store")):
            sys.exit(1)  # the rank has said why


if __name__ == "__main__":
    main()
