# SPDX-License-Identifier: Apache-2.0
"""One of the programs of equal_bench.py, told what to do by lines on standard input; it knows nothing of gpushare. equal_worker.py torch|stub

Each line is answered by a line of JSON.

  take server|tuning BYTES CACHE  a model of about so many bytes, the same in each program, and so much that only this program has: {"bytes": N}
  step                            one unit of work: {"ns": N}
  check                           results, or bytes, that are not what they must be: {"wrong": N}

torch: a Llama-like model of random weights. A server's step is a request: a prompt of 128 tokens, and the first token of the answer; its
cache is written anew. A tuning's step trains adapters of low rank (LoRA) beside the model's weights. stub: the driver alone, by ctypes. A step
reads the model and writes the cache.
"""
import ctypes
import math
import os
import sys
import time

from worker import Driver, answer_lines

BLOCK = 2 << 20


class Torch:
    PROMPT, SEQUENCE, VOCABULARY, RANK = 128, 512, 32000, 16

    def __init__(self):
        import torch
        from random_llama import make_model
        self.torch, self.make_model, self.steps, self.wrong, self.reference = torch, make_model, 0, 0, None

    def take(self, kind, nbytes, cache):
        torch, hidden = self.torch, 4096
        layers = max(1, round((nbytes / 2 - 2 * self.VOCABULARY * hidden) / (16 * hidden * hidden)))
        self.kind, self.model = kind, self.make_model(hidden, layers, self.VOCABULARY)
        self.cache = torch.empty(cache // 4, dtype=torch.int32, device="cuda") if cache else None
        self.words = torch.randint(0, self.VOCABULARY, (1, self.PROMPT if kind == "server" else self.SEQUENCE),
                                   generator=torch.Generator().manual_seed(1)).cuda()
        if kind == "tuning":
            self.add_adapters()
        else:
            self.model.eval()
        self.sums = self.sum_up()
        torch.cuda.empty_cache()
        for _ in range(3):
            self.step()
        return torch.cuda.memory_reserved()

    def frozen(self):
        return [each for each in self.model.parameters() if self.kind == "server" or not each.requires_grad]

    def sum_up(self):
        return [each.view(self.torch.int16).sum(dtype=self.torch.int64).item() for each in self.frozen()]

    def add_adapters(self):
        torch, rank = self.torch, self.RANK

        class Adapted(torch.nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base = base
                self.down = torch.nn.Linear(base.in_features, rank, bias=False, device="cuda", dtype=torch.bfloat16)
                self.up = torch.nn.Linear(rank, base.out_features, bias=False, device="cuda", dtype=torch.bfloat16)
                torch.nn.init.zeros_(self.up.weight)

            def forward(self, x):
                return self.base(x) + self.up(self.down(x))

        self.model.requires_grad_(False)
        for layer in self.model.model.layers:
            for name in ("q_proj", "v_proj"):
                setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.model.config.use_cache = False
        self.model.train()
        self.optimizer = torch.optim.Adam([each for each in self.model.parameters() if each.requires_grad], lr=1e-4)

    def step(self):
        began = time.monotonic_ns()
        self.steps += 1
        if self.cache is not None:
            self.cache.fill_(self.steps)
        if self.kind == "server":
            with self.torch.inference_mode():
                said = self.model.generate(self.words, max_new_tokens=1, min_new_tokens=1, do_sample=False, pad_token_id=0)[0, -1].item()
            self.reference = said if self.reference is None else self.reference
            self.wrong += said != self.reference
        else:
            loss = self.model(input_ids=self.words, labels=self.words).loss
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.wrong += not math.isfinite(loss.item())
        return time.monotonic_ns() - began

    def check(self):
        return self.wrong + sum(now != before for now, before in zip(self.sum_up(), self.sums))


class Stub(Driver):
    def __init__(self):
        self.steps = 0

    def fill(self, address, blocks, value_of):
        for block in range(blocks):
            self.call("cuMemsetD32Async", ctypes.c_uint64(address + block * BLOCK), ctypes.c_uint(value_of(block)), ctypes.c_size_t(BLOCK // 4), None)

    def value(self, block):
        return (block * 2654435761 + 1) % (1 << 32)

    def take(self, kind, nbytes, cache):
        self.begin()
        self.blocks, self.cache_blocks = nbytes // BLOCK, cache // BLOCK
        if kind == "tuning" and self.cache_blocks:
            self.cache = self.allocate(self.cache_blocks * BLOCK).value
        self.model = self.allocate(self.blocks * BLOCK).value
        if kind == "server" and self.cache_blocks:
            self.cache = self.allocate(self.cache_blocks * BLOCK).value
        self.fill(self.model, self.blocks, self.value)
        self.step()
        return (self.blocks + self.cache_blocks) * BLOCK

    def step(self):
        began = time.monotonic_ns()
        self.steps += 1
        if self.cache_blocks:
            self.fill(self.cache, self.cache_blocks, lambda block: os.getpid() * 65536 + self.steps * 256 + block % 256)
        word = ctypes.c_uint()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(word), ctypes.c_uint64(self.model), ctypes.c_size_t(4))
        return time.monotonic_ns() - began

    def check(self):
        wrong, found = 0, (ctypes.c_uint * (BLOCK // 4))()
        for block in range(self.blocks):
            self.call("cuMemcpyDtoH_v2", found, ctypes.c_uint64(self.model + block * BLOCK), ctypes.c_size_t(BLOCK))
            wrong += bytes(found) != self.value(block).to_bytes(4, "little") * (BLOCK // 4)
        return wrong


def obey(job, word, words):
    if word == "take":
        return {"bytes": job.take(words[0], int(words[1]), int(words[2]))}
    if word == "step":
        return {"ns": job.step()}
    return {"wrong": job.check()}


if __name__ == "__main__":
    answer_lines({"torch": Torch, "stub": Stub}[sys.argv[1]], obey)
