#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs with the same bytes save when they take turns on a card that holds one of them (--limit-gib, by GPUSHARE_DEVICE_LIMIT).

  models  two servers of one model, each with a cache of its own: the time of the first token after a switch beyond its time without one;
          and one of them with a fine-tuning of the same model by adapters (LoRA): the bytes that a switch moves, and its time
  host    four programs with the same bytes: the host memory of all together, after each has left the card often enough

Each case runs first without memory handed over, where every byte moves, and then with it, in one run by the same processes. --job stub: the driver
alone, which also runs on the simulated card; the case host always. Every program must be right in the end.
"""
import os
import statistics
import time

from harness import EDGE_BYTES, GIB, ROOT, Bench, Failed, main, options, row, write

WORKER = os.path.join(ROOT, "bench", "equal_worker.py")
FIRST_TOKEN_S = 0.12  # the goals
MOVED, TOOK = 0.25, 0.35
HOST = 1.15
REST_S = 0.2  # so that a program that has nothing to do is seen to be idle
COUNTED = ("moved_in", "moved_out")


class Case:
    def __init__(self, how, kinds, job, nbytes, cache, limit):
        self.how, self.nbytes = how, nbytes
        self.config = os.path.join("/tmp", f"gpushare-equal-{os.getpid()}.conf")
        self.hand_over(False)
        self.bench = Bench(how.build, daemon=("--config", self.config))
        self.card = self.bench.facts()[0]
        python = self.bench.pythons()[1]
        environment = {"GPUSHARE_DEVICE_LIMIT": str(int(limit) + len(kinds) * EDGE_BYTES)}
        if how.log:
            environment["GPUSHARE_LOG"] = os.path.join(os.path.abspath(how.log), f"{'-'.join(kinds)}.log")
        self.programs = [self.bench.start(python, WORKER, job, **environment) for _ in kinds]
        self.bytes = [program.say(f"take {kind} {nbytes} {cache}", timeout=600)["bytes"] for program, kind in zip(self.programs, kinds)]
        print(f"{' and '.join(kinds)}: {' and '.join(f'{each / GIB:.2f}' for each in self.bytes)} GiB  [{self.bench.seconds():.0f} s]", flush=True)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.bench.close()
        os.unlink(self.config)

    def hand_over(self, yes):
        with open(self.config, "w", encoding="ascii") as file:
            file.write(f"[scheduling]\nhand-over = {'yes' if yes else 'no'}\n")

    def begin_hand_over(self):
        self.hand_over(True)
        self.bench.ctl("reload")

    def counts(self):
        programs = self.bench.device()["programs"]
        return {key: sum(each[key] for each in programs) for key in (*COUNTED, "saved_equal", "host_used")}

    def switches(self, rounds, programs=None):
        """(seconds that each switch added to a step, bytes moved a switch, bytes found equal a switch)"""
        took, before = [], self.counts()
        for _ in range(rounds):
            for program in programs or self.programs:
                time.sleep(REST_S)
                first = program.say("step", timeout=120)["ns"]
                took.append((first - min(program.say("step", timeout=120)["ns"] for _ in range(2))) / 1e9)
        after = self.counts()
        return took, sum(after[key] - before[key] for key in COUNTED) / len(took), (after["saved_equal"] - before["saved_equal"]) / len(took)

    def settled(self, programs):
        """The same after some switches that do not count."""
        self.switches(self.how.warm, programs)
        return self.switches(self.how.rounds, programs)

    def end(self):
        wrong = sum(program.say("check", timeout=300)["wrong"] for program in self.programs)
        for program in self.programs:
            program.end()
        if wrong:
            raise Failed(f"{wrong} results are wrong")


def tell(name, ways):
    for what, (took, moved, found) in zip(("not handed over", "handed over"), ways):
        print(f"{name}, {what}: a switch takes {statistics.median(took):.4f} s (slowest {max(took):.4f}), moves {moved / GIB:.2f} GiB, {found / GIB:.2f} GiB are found: "
              + " ".join(f"{each:.3f}" for each in took), flush=True)


def models(how):
    with Case(how, ("server", "server", "tuning"), how.job, int(how.model_gib * GIB), int(how.cache_gib * GIB), how.limit_gib * GIB) as case:
        pairs = {"two servers": case.programs[:2], "server and LoRA": case.programs[::2]}
        ways = {name: [case.settled(pair)] for name, pair in pairs.items()}
        case.begin_hand_over()
        for name, pair in pairs.items():
            ways[name].append(case.settled(pair))
            tell(name, ways[name])
        case.end()
    rows = []
    for name, (without, with_it) in ways.items():
        seconds, before = (statistics.median(way[0]) for way in (with_it, without))
        figures = {"took": with_it[0], "took_before": without[0], "moved_gb": with_it[1] / 1e9, "moved_before_gb": without[1] / 1e9}
        if name == "two servers":
            rows.append(row(f"{name}: first token after a switch, beyond its service", seconds, "s", FIRST_TOKEN_S, "at most", seconds <= FIRST_TOKEN_S, **figures))
        else:
            rows.append(row(f"{name}: bytes of a switch", with_it[1] / max(without[1], 1), "of before", MOVED, "at most", with_it[1] <= MOVED * without[1], **figures))
            rows.append(row(f"{name}: time of a switch", seconds / before, "of before", TOOK, "at most", seconds <= TOOK * before))
    return case.card, rows


def pss(programs):
    """Bytes of memory of the processes, what several have in common divided among them."""
    total = 0
    for program in programs:
        with open(f"/proc/{program.pid}/smaps_rollup", encoding="ascii") as file:
            total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return total


def host(how):
    nbytes = int(how.host_gib * GIB)
    with Case(how, ("server",) * 4, "stub", nbytes, 0, nbytes + nbytes // 8) as case:
        case.switches(2)
        before = case.counts()["host_used"]
        at = pss(case.programs)
        case.begin_hand_over()
        until, least = time.monotonic() + how.patience, before
        while time.monotonic() < until and least > HOST * nbytes:
            case.switches(1)
            time.sleep(1)
            least = case.counts()["host_used"]
        print(f"four programs with the same {nbytes / GIB:.2f} GiB: {before / GIB:.2f} GiB of host memory, handed over {least / GIB:.2f}; the processes have "
              f"{at / GIB:.2f} and {pss(case.programs) / GIB:.2f} GiB, {how.patience - until + time.monotonic():.0f} s", flush=True)
        case.end()
        return case.card, [row("host memory of four programs with the same bytes", least / nbytes, "times one", HOST, "at most", least <= HOST * nbytes, before=before / nbytes)]


CASES = {"models": models, "host": host}


def body():
    how = options(__doc__, (
        ("--case", {"action": "append", "choices": tuple(CASES)}),
        ("--job", {"choices": ("torch", "stub"), "default": "torch"}),
        ("--limit-gib", {"type": float, "default": 11}),
        ("--model-gib", {"type": float, "default": 8}),
        ("--cache-gib", {"type": float, "default": 0.25}),
        ("--host-gib", {"type": float, "default": 8}),
        ("--rounds", {"type": int, "default": 5}),
        ("--warm", {"type": int, "default": 3, "help": "rounds before those that count"}),
        ("--patience", {"type": float, "default": 60, "help": "seconds in which the host memory must become as small as asked for"}),
        ("--log", {"metavar": "FOLDER", "help": "for the programs' log"})))
    rows, began = [], time.monotonic()
    for name in how.case or CASES:
        card, found = CASES[name](how)
        rows += found
        write(how.json, "equal", card, rows)
    for each in rows:
        print(f"{each['name']}: {each['value']:.4g} {each['unit']} (at most {each['ceiling']:g}){'' if each['met'] else ', missed'}")
    print(f"[{time.monotonic() - began:.0f} s]")
    return rows


if __name__ == "__main__":
    main(body)
