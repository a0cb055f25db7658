# SPDX-License-Identifier: Apache-2.0
"""One of the programs of overcommit_llm.py: trains a transformer, or generates with one. It knows nothing of gpushare.

overcommit_llm_worker.py torch|stub

Each line is answered by a line of JSON; times are ns of CLOCK_MONOTONIC, {"oom": true} when there was not enough memory.

  take train|generate BYTES   a model whose weights (train: with gradients and moments) need about so much: {"bytes": N}
  peak BATCH CHECKPOINT       one unit of work; the most bytes that were allocated meanwhile: {"bytes": N}
  work BATCH CHECKPOINT LEAST SECONDS  units until then, LEAST at least: {"from": N, "ends": [...], "tokens": of a unit, "said": [...],
                              "bytes": the most allocated, "reserved": the most that the allocator has held}

A unit is a step of training (bf16, fused Adam, CHECKPOINT 1: gradient checkpointing) on BATCH sequences, which says its loss, or a request:
BATCH prompts and TOKENS more tokens of each by greedy generation, which says the sum of the first ones (the later ones differ from
request to request also unpatched, alone on a card). torch: a Llama-like model of random weights.
stub: the driver alone, by ctypes, on pieces of memory of which those allocated last are used most. It is what runs on the simulated card.
"""
import ctypes
import sys
import time

from worker import Driver, OutOfMemory, answer_lines


class Torch:
    SEQUENCE, PROMPT, TOKENS, VOCABULARY = 512, 512, 16, 32000

    def __init__(self):
        import torch
        from random_llama import make_model
        self.torch, self.make_model, self.units = torch, make_model, 0

    def take(self, kind, nbytes):
        torch, self.kind = self.torch, kind
        hidden, each = (2048, 8) if kind == "train" else (4096, 2)  # bytes a weight
        layers = max(1, round((nbytes / each - 2 * self.VOCABULARY * hidden) / (16 * hidden * hidden)))
        self.model = self.make_model(hidden, layers, self.VOCABULARY)
        self.draw = torch.Generator().manual_seed(1)
        if kind == "train":
            self.model.config.use_cache = False
            self.model.train()
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-5, fused=True)
        else:
            self.model.eval()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    def use(self, checkpoint):
        if self.kind == "train" and checkpoint:
            self.model.gradient_checkpointing_enable()

    def unit(self, batch):
        try:
            return self.step(batch) if self.kind == "train" else self.request(batch)
        except self.torch.OutOfMemoryError:
            pass
        # here what the exception referred to has gone
        if self.kind == "train":
            self.optimizer.zero_grad(set_to_none=True)
        self.torch.cuda.empty_cache()
        raise OutOfMemory

    def step(self, batch):
        draw = self.torch.Generator().manual_seed(self.units)
        words = self.torch.randint(3, self.VOCABULARY, (batch, self.SEQUENCE), generator=draw).cuda()
        self.units += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(input_ids=words, labels=words).loss
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def request(self, batch):
        draw = self.torch.Generator().manual_seed(batch)
        prompts = self.torch.randint(3, self.VOCABULARY, (batch, self.PROMPT), generator=draw).cuda()
        with self.torch.inference_mode():
            words = self.model.generate(prompts, max_new_tokens=self.TOKENS, min_new_tokens=self.TOKENS, do_sample=False, pad_token_id=0)
        return words[:, self.PROMPT].sum().item()

    def tokens(self, batch):
        return batch * (self.SEQUENCE if self.kind == "train" else self.TOKENS)

    def forget_peak(self):
        self.units = 0
        self.torch.cuda.reset_peak_memory_stats()

    def peak(self):
        return self.torch.cuda.max_memory_allocated()

    def reserved(self):
        return self.torch.cuda.max_memory_reserved()


class Stub(Driver):
    PIECES, OFTEN, GRANULE = 16, 8, 2 << 20

    def __init__(self):
        self.pieces, self.most = [], 0

    def take(self, _kind, nbytes):
        self.begin()
        self.piece = max(nbytes // self.PIECES // self.GRANULE, 1) * self.GRANULE
        for _ in range(self.PIECES):
            self.add_piece()
        return nbytes

    def add_piece(self):
        self.pieces.append(self.allocate(self.piece))

    def use(self, checkpoint):
        self.part = 2 if checkpoint else 1

    def unit(self, batch):
        """What a batch needs comes behind the weights, and is used more than they."""
        more = batch // self.part
        while len(self.pieces) < self.PIECES + more:
            self.add_piece()
        self.most = max(self.most, (self.PIECES + more) * self.piece)
        for number, address in enumerate(self.pieces[:self.PIECES + more]):
            for _ in range(self.OFTEN if number >= self.PIECES else 1):
                self.call("cuMemsetD8Async", address, ctypes.c_ubyte(number), ctypes.c_size_t(self.piece), None)
        self.call("cuCtxSynchronize")
        found = (ctypes.c_ubyte * 1)()
        said = 0
        for address in self.pieces[:self.PIECES]:
            self.call("cuMemcpyDtoH_v2", found, ctypes.c_uint64(address.value + self.piece - 1), ctypes.c_size_t(1))
            said += found[0]
        return said

    def tokens(self, batch):
        return batch

    def forget_peak(self):
        while len(self.pieces) > self.PIECES:
            self.call("cuMemFree_v2", self.pieces.pop())
        self.most = 0

    def peak(self):
        return self.most

    reserved = peak


def work(job, batch, least, seconds):
    job.forget_peak()
    began, ends, said = time.monotonic_ns(), [], []
    while len(ends) < least or time.monotonic_ns() - began < seconds * 1e9:
        said.append(job.unit(batch))
        ends.append(time.monotonic_ns())
    return {"from": began, "ends": ends, "tokens": job.tokens(batch), "said": said, "bytes": job.peak(), "reserved": job.reserved()}


def obey(job, word, words):
    if word == "take":
        return {"bytes": job.take(words[0], int(words[1]))}
    batch, checkpoint = int(words[0]), words[1] == "1"
    job.use(checkpoint)
    if word == "peak":
        job.forget_peak()
        job.unit(batch)
        return {"bytes": job.peak()}
    if word == "work":
        return work(job, batch, int(words[2]), float(words[3]))
    sys.exit(f"cannot do '{word}'; what it can: bench/overcommit_llm_worker.py")


def obey_if_possible(job, word, words):
    try:
        return obey(job, word, words)
    except OutOfMemory:
        return {"oom": True}


if __name__ == "__main__":
    answer_lines({"torch": Torch, "stub": Stub}[sys.argv[1]], obey_if_possible)
