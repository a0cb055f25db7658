#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Language models that are larger than the card (GPUSHARE_OVERCOMMIT), against what is done without it. Needs PyTorch and transformers.

The card is --limit-gib (GPUSHARE_DEVICE_LIMIT), what the program has is --ratio times as much. Each way runs in a process of its own
(bench/overcommit_llm_worker.py, random weights), one after the other:

  alone       unpatched, on the whole card, which holds it: what there would be without the limit
  overcommit  GPUSHARE_OVERCOMMIT; what is used most is brought to the card
  once        the same with GPUSHARE_PLACEMENT=once: what was allocated last stays beyond the card
  checkpoint  (train) gradient checkpointing with the same batch, within the limit
  smaller     (train) the largest batch that fits the limit

  --case train     fine-tuning; the batch makes it as large as that
  --case generate  one prompt at a time; the weights are as large as that
  --case cache     --batch prompts at a time: weights that fit the card, and a cache beside them

Tokens a second, from the median of the later half of what was done in --seconds. Losses and tokens must be those of `alone`. Asked for is that
overcommit does at least twice of once.
"""
import json
import os
import statistics
import time

from harness import EDGE_BYTES, GIB, ROOT, Bench, Failed, main, options, row, write

WORKER = os.path.join(ROOT, "bench", "overcommit_llm_worker.py")
GOAL = 2            # times what is reached with everything where it was allocated
TRAINED = 0.6       # of the limit: weights, gradients and moments
FITS = 0.88         # of the limit: the allocator's rest
WEIGHTS = 0.92      # of the limit, beside a cache
LOSS_WITHIN = 0.02  # sums in another order
MOST_BATCH = 1024
LEAST = 4           # units


class Case:
    def __init__(self, bench, how, name):
        self.bench, self.how, self.name = bench, how, name
        self.limit = int(how.limit_gib * GIB)
        self.kind = "train" if name == "train" else "generate"
        self.bytes = int(self.limit * {"train": TRAINED, "generate": how.ratio, "cache": WEIGHTS}[name])
        self.stats = os.path.join(bench.folder, f"{name}.stats")
        self.found, self.notes = {}, []

    def start(self, python, **environment):
        return self.bench.start(python, WORKER, self.how.job, **environment)

    def begin(self, plain, patched):
        """All at once: they load their libraries meanwhile."""
        limit = {"GPUSHARE_DEVICE_LIMIT": str(self.limit + EDGE_BYTES)}
        beyond = {**limit, "GPUSHARE_OVERCOMMIT": str(self.limit)}
        more = {"GPUSHARE_STATS": self.stats}
        if self.how.log:
            more["GPUSHARE_LOG"] = os.path.join(os.path.abspath(self.how.log), f"{self.name}.log")
        self.programs = {"alone": self.start(plain), "overcommit": self.start(patched, **more, **beyond),
                         "once": self.start(patched, GPUSHARE_PLACEMENT="once", **beyond)}
        if self.name == "train":  # the one that tries batches has changed its weights then
            self.programs.update(probe=self.start(plain), checkpoint=self.start(patched, **limit), smaller=self.start(patched, **limit))

    def take(self, way):
        began = time.monotonic()
        said = self.programs[way].say(f"take {self.kind} {self.bytes}", timeout=600)
        if said.get("oom"):
            raise Failed(f"{self.name}: there is no room for the model ({way})")
        print(f"{self.name} {way}: model of {said['bytes'] / GIB:.2f} GiB made in {time.monotonic() - began:.1f} s", flush=True)

    def peak(self, batch):
        said = self.programs["probe"].say(f"peak {batch} 0", timeout=600)
        return float("inf") if said.get("oom") else said["bytes"]

    def largest_batch(self, nbytes):
        """The largest batch with which no more is allocated than that."""
        fits, fails = 0, 1
        while fails <= MOST_BATCH and self.peak(fails) <= nbytes:
            fits, fails = fails, 2 * fails
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self.peak(middle) <= nbytes:
                fits = middle
            else:
                fails = middle
        if fits == 0:
            raise Failed(f"{self.name}: not even a batch of 1 fits {nbytes / GIB:.2f} GiB")
        return fits

    def batches(self):
        if self.name != "train":
            self.batch = self.smaller = self.how.batch if self.name == "cache" else 1
            return
        self.take("probe")
        self.peak(1)  # makes the moments
        self.smaller = self.largest_batch(self.limit * FITS)
        self.batch = self.largest_batch(self.limit * self.how.ratio)
        self.programs.pop("probe").end()

    def work(self, way):
        """Tokens a second."""
        batch, seconds = self.batch, self.how.seconds
        program = self.programs[way]
        checkpoint = int(way == "checkpoint")
        if way == "smaller":
            batch = self.smaller
        try:
            said = program.say(f"work {batch} {checkpoint} {LEAST} {seconds}", timeout=self.how.patience)
            while said.get("oom") and way == "smaller" and batch > 1:
                batch -= 1
                said = program.say(f"work {batch} {checkpoint} {LEAST} {seconds}", timeout=self.how.patience)
        except Failed as error:
            if program.child.poll() is not None:
                raise
            self.notes.append(f"{way}: not {LEAST} units within {self.how.patience:g} s")
            print(f"{self.name} {way}: {error}", flush=True)
            program.kill()
            return
        if said.get("oom"):
            self.notes.append(f"{way}: out of memory")
            return
        times = [(after - before) / 1e9 for before, after in zip([said["from"]] + said["ends"], said["ends"])]
        said.update(batch=batch, seconds=statistics.median(times[len(times) // 2:]), times=times)
        said["rate"] = said["tokens"] / said["seconds"]
        self.found[way] = said
        print(f"{self.name} {way}: " + " ".join(f"{each:.3f}" for each in times[:30]) + " s", flush=True)

    def run(self):
        self.batches()
        for way, program in self.programs.items():
            self.take(way)
            self.work(way)
            if program.child.poll() is None:
                program.end()
            if way == "overcommit" and os.path.exists(self.stats):
                with open(self.stats, encoding="utf-8") as file:
                    exchanged = json.load(file)["exchanged"]
                self.notes.append(f"{exchanged / GIB:.2f} GiB changed places")

    def is_right(self, way):
        mine, alone = self.found[way], self.found["alone"]
        if mine["batch"] != alone["batch"]:
            return True
        pairs = list(zip(mine["said"], alone["said"]))[:LEAST]
        if self.kind == "train":
            return all(abs(one - other) <= LOSS_WITHIN * abs(other) for one, other in pairs)
        return all(one == other for one, other in pairs)

    def rows(self):
        alone = self.found.get("alone")
        if alone is None:
            raise Failed(f"{self.name}: {'; '.join(self.notes)}")
        size = f"{alone['bytes'] / self.limit:.2f} x the card"
        rows = [row(f"{self.name}, {size}: {way}", said["rate"], "tokens/s", alone["rate"], "alone", other=way != "overcommit", batch=said["batch"],
                    right=self.is_right(way), allocated_gb=said["bytes"] / 1e9, reserved_gb=said["reserved"] / 1e9, first_s=said["times"][0])
                for way, said in self.found.items()]
        if "overcommit" in self.found:
            # once is at most this fast where it has not come to an end
            once = self.found["once"]["rate"] if "once" in self.found else alone["tokens"] * LEAST / self.how.patience
            gain = self.found["overcommit"]["rate"] / once
            rows.append(row(f"{self.name}: overcommit over once", gain, "times", GOAL, "goal", gain >= GOAL))
        return rows

    def table(self):
        return [f"{self.name:8} {way:10} batch {said['batch']:3}  {said['rate']:9.1f} tokens/s  {said['rate'] / self.found['alone']['rate']:5.2f} of alone  "
                f"{said['bytes'] / GIB:6.2f} GiB allocated, {said['reserved'] / GIB:6.2f} held  {'' if self.is_right(way) else 'NOT AS ALONE'}"
                for way, said in self.found.items()] + [f"{self.name:8} {note}" for note in self.notes]


def body():
    how = options(__doc__, (
        ("--case", {"action": "append", "choices": ("train", "generate", "cache")}),
        ("--limit-gib", {"type": float, "default": 20}),
        ("--ratio", {"type": float, "default": 1.25}),
        ("--batch", {"type": int, "default": 24, "help": "prompts of the case cache"}),
        ("--seconds", {"type": float, "default": 8, "help": "for each way (default 8)"}),
        ("--patience", {"type": float, "default": 45, "help": "seconds after which a way is given up (default 45)"}),
        ("--log", {"metavar": "FOLDER", "help": "for the log of each case's program with overcommit: which exchanges were undone"}),
        ("--job", {"choices": ("torch", "stub"), "default": "torch"})))
    with Bench(how.build) as bench:
        card, total, _ = bench.facts()
        if total < how.limit_gib * how.ratio * GIB:
            raise Failed(f"the card has {total / GIB:.1f} GiB, and `alone` needs {how.limit_gib * how.ratio:.1f}")
        plain, patched = bench.pythons()
        rows, lines, wrong = [], [], []
        for name in how.case or ("train", "generate", "cache"):
            case = Case(bench, how, name)
            case.begin(plain, patched)
            case.run()
            rows += case.rows()
            lines += case.table()
            wrong += [f"{name} {way}" for way in case.found if not case.is_right(way)]
            write(how.json, "overcommit-llm", card, rows, limit_gib=how.limit_gib)
        print("", *lines, sep="\n")
        gains = "; ".join(f"{each['name']} {each['value']:.2f}" for each in rows if each["unit"] == "times")
        print(f"{gains} times (goal {GOAL})  [{bench.seconds():.0f} s]")
        if wrong:
            raise Failed(f"not what `alone` said: {', '.join(wrong)}")
        return rows


if __name__ == "__main__":
    main(body)
