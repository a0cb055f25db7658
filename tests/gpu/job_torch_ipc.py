# SPDX-License-Identifier: Apache-2.0
"""PyTorch: CUDA tensors that go from process to process (torch.multiprocessing). job_torch_ipc.py spawn|forkserver

A child changes tensors of its parent in place; two workers make batches on the GPU for it, as a DataLoader's do."""
import hashlib
import sys
import torch
import torch.multiprocessing as mp

PATIENCE = 120


def change(given, done):
    """Until it gets None: triples what comes, and sends it back as it is."""
    while (tensor := given.get(timeout=PATIENCE)) is not None:
        tensor.mul_(3)
        torch.cuda.synchronize()
        done.put(float(tensor.double().sum()))
        del tensor


def make_batches(number, batches, go_on):
    for i in range(4):
        batch = torch.full((1 << 20,), 100 * number + i, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        batches.put((number, i, batch))
    go_on.wait(PATIENCE)  # what is sent lives as long as its maker


def main():
    mp.set_start_method(sys.argv[1])
    result = hashlib.sha256()
    given, done, batches, go_on = mp.Queue(), mp.Queue(), mp.Queue(), mp.Event()
    child = mp.Process(target=change, args=(given, done))
    child.start()
    for size in (1000, 1 << 16, 1 << 24):  # in one segment with others, and in its own
        tensor = torch.arange(size, dtype=torch.float32, device="cuda") % 17
        given.put(tensor)
        said = done.get(timeout=PATIENCE)
        assert said == float(tensor.double().sum()), size
        result.update(tensor.cpu().numpy().tobytes())
    given.put(None)
    child.join()
    workers = [mp.Process(target=make_batches, args=(i, batches, go_on)) for i in range(2)]
    for worker in workers:
        worker.start()
    sums = {}
    for _ in range(8):
        number, i, batch = batches.get(timeout=PATIENCE)
        sums[number, i] = int(batch.long().sum())
        del batch
    go_on.set()
    for worker in workers:
        worker.join()
    assert all(process.exitcode == 0 for process in [child, *workers])
    result.update(repr(sorted(sums.items())).encode())
    print("result", result.hexdigest()[:16], flush=True)


if __name__ == "__main__":
    main()
