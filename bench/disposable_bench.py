#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bytes that need not move when programs first free memory that they do not need (gpushare.h, on_pressure).

Two programs take turns on a card that holds one of them (--limit-gib, by GPUSHARE_DEVICE_LIMIT). Each needs --live of its memory; the
rest is what its allocator keeps, scratch memory of the turn before. In turns with and without a callback that frees it: seconds from a
turn's begin to its end, and the bytes that went out for it. The programs are copies of bench/disposable, or, with --torch, of a
worker whose callback is torch.cuda.empty_cache (needs PyTorch). The daemon counts the bytes that go out; everything else is measured outside.
"""
import os
import statistics

from harness import EDGE_BYTES, GIB, ROOT, Bench, Failed, main, options, row, write

TARGET = 1.1  # of the part that is needed, at most, moves with the callback


def programs(bench, how, limit):
    environment = {"GPUSHARE_DEVICE_LIMIT": str(int(limit) + 2 * EDGE_BYTES)}
    if how.torch:
        _, python = bench.pythons()
        worker = os.path.join(ROOT, "bench", "disposable_worker.py")
        command = [python, worker, os.path.join(ROOT, "python")]
    else:
        command = [bench.patched(bench.path("bench", "disposable"))]
    started = [bench.start(*command, **environment) for _ in range(2)]
    for program in started:
        program.say(f"take {int(limit * 0.9 * how.live)} {int(limit * 0.9 * (1 - how.live))}", timeout=600)
    return started


def moved_out(bench):
    return sum(program["moved_out"] for program in bench.device()["programs"])


def rounds(bench, pair, helps, count):
    """(seconds of each turn, bytes out a turn)"""
    for program in pair:
        program.say(f"help {int(helps)}")
    for program in pair:  # the memory of before is gone
        program.say("turn")
    before = moved_out(bench)
    took = [program.say("turn")["ns"] / 1e9 for _ in range(count) for program in pair]
    return took, (moved_out(bench) - before) / len(took)


def body():
    how = options(__doc__, (
        ("--limit-gib", {"type": float, "default": 16}),
        ("--live", {"type": float, "default": 0.4, "help": "part of its memory that a program needs (default 0.4)"}),
        ("--rounds", {"type": int, "default": 10}),
        ("--torch", {"action": "store_true"})))
    if not 0 < how.live < 1:
        raise Failed("--live is between 0 and 1")
    with Bench(how.build) as bench:
        limit = how.limit_gib * GIB
        card = {"card": None, "driver": None}
        if os.access(bench.path("bench", "load"), os.X_OK):
            card = bench.facts()[0]
        pair = programs(bench, how, limit)
        without, with_it = ([], []), ([], [])
        for _ in range(2):  # both sides twice, in turns
            for side, helps in ((without, False), (with_it, True)):
                took, out = rounds(bench, pair, helps, how.rounds)
                side[0].extend(took)
                side[1].append(out)
        for program in pair:
            program.end()
        out = [statistics.mean(side[1]) for side in (without, with_it)]
        seconds = [statistics.median(side[0]) for side in (without, with_it)]
        needed = limit * 0.9 * how.live
        print(f"a turn: {seconds[0]:.4f} s and {out[0] / GIB:.3f} GiB out; with the callback {seconds[1]:.4f} s and {out[1] / GIB:.3f} GiB out "
              f"({needed / GIB:.3f} GiB are needed): {seconds[1] / seconds[0]:.3f} of the time, {out[1] / max(out[0], 1):.3f} of the bytes"
              f"  [{bench.seconds():.0f} s]")
        rows = [row("bytes out a turn", out[1] / 1e9, "GB", TARGET * needed / 1e9, "at most", out[1] <= TARGET * needed),
                row("seconds of a turn", seconds[1], "s", seconds[0], "without")]
        write(how.json, "disposable", card, rows, live=how.live, torch=how.torch, out_bytes=out, seconds_a_turn=seconds,
              title="Memory that is given back instead of moved", note="With the callback; the mark of the time is without")
    return rows


if __name__ == "__main__":
    main(body)
