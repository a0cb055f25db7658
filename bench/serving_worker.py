# SPDX-License-Identifier: Apache-2.0
"""One of the programs of serving_bench.py: a training job or a server, told what to do by lines on standard input.

serving_worker.py PYTHON_FOLDER torch|stub      the folder holds gpushare_patch

Each line is answered by a line of JSON; times are ns of CLOCK_MONOTONIC.

  take KIND BYTES SCRATCH  train or serve: makes a model that needs about so much memory; requests have scratch memory: {"bytes": N}
  help none|pressure|discard  what is said of the scratch memory, which the allocator keeps: {}
  unit                   how long a unit of a request takes, alone: {"ns": N}
  work UNTIL             steps of training until then; when each had finished: {"ends": [...]}
  requests UNITS TIME... a request of so many units at each time, or when free: {"ends": [...], "cpu": [processor time of each]}
  check                  results that were not what they must be: {"wrong": N}

torch: a Llama-like model of random weights. A step is one of fine-tuning (bf16, Adam, gradient checkpointing), a request a prompt of 128
tokens and UNITS tokens by greedy generation, which must always be the same ones. stub: the driver alone, by ctypes: a step sets
all of the memory, a unit one part of it. It is what runs on the simulated card.

Scratch memory is written by each request, with other contents each time, and not needed afterwards. pressure: what the allocator keeps is freed when memory is to
leave (on_pressure; torch.cuda.empty_cache). discard: it stays, and after a request its contents are given up.
"""
import ctypes
import math
import os
import sys
import threading
import time

from worker import Driver, answer_lines

sys.path.insert(0, sys.argv[1])
from gpushare_patch import api  # noqa: E402

PARTS = 16  # of the stub's memory


class Torch:
    PROMPT, BATCH, SEQUENCE, VOCABULARY = 128, 4, 1024, 32000
    OVER_WEIGHTS = 5.1  # memory of training over the weights' (bf16): gradients, two moments, a step's temporary memory

    def __init__(self):
        # else small blocks are cut from the freed scratch memory, which is too small for the next request then
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:1024")
        import torch
        from random_llama import make_model
        self.torch, self.make_model = torch, make_model
        self.reference, self.wrong, self.steps = {}, 0, 0
        self.scratch_bytes, self.kept, self.requests = 0, None, 0

    def take(self, kind, nbytes, scratch_bytes):
        torch, self.scratch_bytes = self.torch, scratch_bytes
        weights = nbytes / self.OVER_WEIGHTS if kind == "train" else nbytes * 0.98
        hidden = 4096 if weights > 4 << 30 else 2048
        layer = 16 * hidden * hidden * 2  # bytes
        layers = max(1, round((weights - 2 * self.VOCABULARY * hidden * 2) / layer))
        self.model = self.make_model(hidden, layers, self.VOCABULARY)
        draw = torch.Generator().manual_seed(1)
        if kind == "train":
            self.model.gradient_checkpointing_enable()
            self.model.train()
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-5, foreach=True)
            self.data = torch.randint(0, self.VOCABULARY, (8, self.BATCH, self.SEQUENCE), generator=draw)
            for _ in range(2):
                self.step()
        else:
            self.model.eval()
            self.prompt = torch.randint(0, self.VOCABULARY, (1, self.PROMPT), generator=draw).cuda()
            for _ in range(2):
                self.request(8)
        return torch.cuda.max_memory_reserved()

    def step(self):
        batch = self.data[self.steps % 8].cuda(non_blocking=True)
        self.steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(input_ids=batch, labels=batch).loss
        loss.backward()
        self.optimizer.step()
        self.wrong += not math.isfinite(loss.item())

    def help(self, mode):
        api.on_pressure(self.torch.cuda.empty_cache if mode == "pressure" else None)
        self.kept = self.scratch() if mode == "discard" else None

    def scratch(self):
        return self.torch.empty(self.scratch_bytes, dtype=self.torch.uint8, device="cuda")

    def request(self, units):
        if self.scratch_bytes:
            self.requests += 1
            (self.scratch() if self.kept is None else self.kept).fill_(self.requests % 255 + 1)
        self.generate(units)
        if self.kept is not None:
            api.discard(self.kept)

    def generate(self, units):
        with self.torch.inference_mode():
            tokens = self.model.generate(self.prompt, max_new_tokens=units, min_new_tokens=units, do_sample=False, pad_token_id=0)
            said = tokens[0, self.PROMPT:].tolist()
        self.wrong += self.reference.setdefault(units, said) != said

    def check(self):
        return self.wrong


class Stub(Driver):
    def __init__(self):
        self.steps, self.values = 0, [0] * PARTS
        self.lock = threading.Lock()  # the callback must not free what a request is using
        self.scratch_bytes, self.scratch, self.mode = 0, ctypes.c_uint64(), "none"
        self.requests = 0

    def take(self, _kind, nbytes, scratch_bytes):
        self.scratch_bytes = scratch_bytes
        self.begin()
        self.part = nbytes // PARTS
        self.memory = self.allocate(self.part * PARTS)
        self.step()
        return nbytes

    def place(self, number):
        return ctypes.c_uint64(self.memory.value + number * self.part)

    def set_part(self):
        number = self.steps % PARTS
        self.steps += 1
        self.values[number] = self.steps % 251
        self.call("cuMemsetD8Async", self.place(number), ctypes.c_ubyte(self.values[number]), ctypes.c_size_t(self.part), None)

    def step(self):
        for _ in range(PARTS):
            self.set_part()
        self.call("cuCtxSynchronize")

    def help(self, mode):
        self.mode = mode
        api.on_pressure(self.free_scratch if mode == "pressure" else None)

    def free_scratch(self):
        with self.lock:
            self.call("cuCtxSetCurrent", self.context)
            if self.scratch.value:
                self.call("cuMemFree_v2", self.scratch)
                self.scratch.value = 0

    def request(self, units):
        with self.lock:
            if self.scratch_bytes:
                if not self.scratch.value:
                    self.call("cuMemAlloc_v2", ctypes.byref(self.scratch), ctypes.c_size_t(self.scratch_bytes))
                self.requests += 1
                self.call("cuMemsetD8Async", self.scratch, ctypes.c_ubyte(self.requests % 255 + 1), ctypes.c_size_t(self.scratch_bytes), None)
            for _ in range(units):
                self.set_part()
                self.call("cuCtxSynchronize")
            if self.mode == "discard" and self.scratch.value:
                api.discard(self.scratch.value, self.scratch_bytes)

    def check(self):
        wrong, found = 0, ctypes.create_string_buffer(self.part)
        for number, value in enumerate(self.values):
            self.call("cuMemcpyDtoH_v2", found, self.place(number), ctypes.c_size_t(self.part))
            wrong += self.part - found.raw.count(value)
        return wrong


def rest_until(when):
    left = when - time.monotonic_ns()
    if left > 0:
        time.sleep(left / 1e9)


def time_unit(job, count=16):
    began = time.monotonic_ns()
    job.request(count)
    return (time.monotonic_ns() - began) // count


def obey(job, word, words):
    if word == "take":
        return {"bytes": job.take(words[0], int(words[1]), int(words[2]))}
    if word == "help":
        job.help(words[0])
        return {}
    if word == "unit":
        time_unit(job)
        return {"ns": sorted(time_unit(job) for _ in range(3))[1]}
    if word == "check":
        return {"wrong": job.check()}
    ends = []
    if word == "work":
        while time.monotonic_ns() < int(words[0]):
            job.step()
            ends.append(time.monotonic_ns())
    elif word == "requests":
        cpu = []
        for when in words[1:]:
            rest_until(int(when))
            before = time.thread_time_ns()
            job.request(int(words[0]))
            ends.append(time.monotonic_ns())
            cpu.append(time.thread_time_ns() - before)
        return {"ends": ends, "cpu": cpu}
    else:
        sys.exit(f"cannot do '{word}'; what it can: bench/serving_worker.py")
    return {"ends": ends}


if __name__ == "__main__":
    answer_lines({"torch": Torch, "stub": Stub}[sys.argv[2]], obey)
