# SPDX-License-Identifier: Apache-2.0
"""bench/disposable.c with PyTorch: takes the same lines, and gives back what its allocator keeps. disposable_worker.py PYTHON_FOLDER"""
import json
import sys
import time

sys.path.insert(0, sys.argv[1])
import torch  # noqa: E402

from gpushare_patch import api  # noqa: E402


def main():
    live, cache_bytes, turns = None, 0, 0
    for line in sys.stdin:
        word, *numbers = line.split()
        said = {}
        if word == "take":
            live = torch.ones(int(numbers[0]), dtype=torch.uint8, device="cuda")
            cache_bytes = int(numbers[1])
        elif word == "help":
            api.on_pressure(torch.cuda.empty_cache if numbers[0] == "1" else None)
        elif word == "turn":
            began = time.monotonic_ns()
            scratch = torch.empty(cache_bytes, dtype=torch.uint8, device="cuda")
            turns += 1
            scratch.fill_(turns % 255 + 1)  # what has not changed would not be copied
            live.add_(1)
            torch.cuda.synchronize()
            del scratch  # the allocator keeps the memory
            said = {"ns": time.monotonic_ns() - began}
        print(json.dumps(said), flush=True)


main()
