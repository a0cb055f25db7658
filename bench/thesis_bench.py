#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ancestor's Table 12.2 on this card: two copies of a program at once, over one after the other.

The 2021 thesis had one P100 with 16 GB. Its programs took 15.3 GB (big: two do not fit) or 7.2 GB (small: two do) and were 719 s
alone, 90 or 50 % of it on the GPU; turns were 5 s and more. Here bench/load computes on all of its memory in kernels of a
fixed amount of work and rests for the CPU part. Quantum and card are scaled by the same factor, 5 s / --five-ms (25 with 200 ms), the
card by GPUSHARE_DEVICE_LIMIT, in which programs have 15.3/16 or 7.2/16 each as there. A switch moves what does not fit, and its
length over the quantum is what decides; two ways to keep that:

  this bus   the limit is 16 GiB over the factor: the thesis' programs beside a bus of today
  P100's bus the limit makes a switch, at the duplex rate measured in this run, 28 % of the 5 s quantum, as it is with 14 GB
             each way at the 20 GB/s of PCIe 3 x16 in both directions (docs/benchmarks.md, "The ancestor's table")

The run time is scaled more (719 s over the factor would be 29 s): fewer turns of the same kind, with the same parts of CPU and GPU.
What does not scale is there in full: the last kernels of a turn, messages, mapping of memory, some ms a switch.

  phases     "once": the CPU part, then the GPU part, as in the thesis; "in turns": ten times a tenth of each
  serial     twice one unpatched program alone (as the thesis counts it)
  at least   (CPU + 2 GPU) / serial, or the overlap that phases in turns allow, with a switch at the bus' rate for each quantum: what
             no order of turns can beat

Small ones run unpatched and patched in turns of the same run. Prints a table; figures are seconds over serial.
"""
from harness import GIB, MIB, Bench, Failed, end, main, options, row, together, write

FIVE_S, P100_SHARE = 5, 0.28  # the latter is of a quantum of 5 s
BIG, SMALL = 15.3 / 16, 7.2 / 16  # of the limit
CYCLES = {"once": 1, "in turns": 10}
TARGETS = {0.9: 1.00, 0.5: 0.60}  # of big ones at the quantum of 5 s
SMALL_TARGET = 0.99
ALL = [(share, phases) for share in TARGETS for phases in CYCLES]
DEFAULT = [(0.9, "once", True), (0.9, "once", False), (0.5, "in turns", True), (0.5, "in turns", False)]
BATCH = 8


class Mix:
    """How a program of this run divides its time: share of the GPU, in kernels and rests."""

    def __init__(self, share, solo, kernel_ns):
        self.share, self.solo = share, solo
        unit = BATCH * max(CYCLES.values())
        self.kernels = max(1, round(solo * share * 1e9 / kernel_ns / unit)) * unit
        self.rest_ns = round(solo * (1 - share) * 1e9)

    def line(self, cycles, part=1.0):
        """The command for it; part: of all of it."""
        kernels = max(1, round(self.kernels * part / cycles / BATCH)) * BATCH
        return f"phases {cycles} {kernels} {round(self.rest_ns * part / cycles)}"

    def name(self):
        return f"{self.share * 100:.0f}/{100 - self.share * 100:.0f}"

    def at_least(self, cycles, switch_part):
        """Over serial; switch_part: a switch over the quantum."""
        gpu = self.share * (1 + switch_part)
        rest = 1 - self.share
        if cycles == 1:
            return (rest + 2 * gpu) / 2
        # GPU parts one after the other; or, if a program rests longer than the other computes, one program and the other's last part
        return max(2 * gpu + rest / cycles, rest + gpu + min(gpu, rest) / cycles) / 2


def seconds_of(programs, line):
    """From the first one's beginning to the last one's end."""
    answers = together(programs, line)
    return (max(each["to"] for each in answers) - min(each["from"] for each in answers)) / 1e9


def moved(bench):
    return sum(program["moved_out"] for program in bench.device()["programs"])


def big_pair(bench, limit, steps, mix, cycles, quantum_s):
    """(seconds, what the daemon says afterwards) of two patched copies that do not fit."""
    bench.ctl("set", "quantum", f"{quantum_s * 1000:.3f}" if quantum_s else "auto")
    pair = bench.loads(limit * BIG, limit, BATCH, steps, [{}] * 2)
    before = bench.device()
    seconds = seconds_of(pair, mix.line(cycles))
    device = bench.device()
    if moved(bench) == 0:
        raise Failed("two big programs moved nothing: do they not fit into the limit?")
    end(pair)
    return seconds, {"switches": device["switches"] - before["switches"], "quantum_s": device["quantum_ns"] / 1e9,
                     "switch_s": device["switch_ns"] / 1e9}


def small_pairs(bench, limit, steps, mix, part):
    """Native throughput over ours: seconds of pairs unpatched, patched, patched, unpatched."""
    native = bench.loads(limit * SMALL, None, BATCH, steps, [{}] * 2)
    ours = bench.loads(limit * SMALL, limit, BATCH, steps, [{}] * 2)
    for pair in (native, ours):  # warm
        seconds_of(pair, mix.line(1, 0.02))
    took = {"native": 0.0, "gpushare": 0.0}
    for name in ("native", "gpushare", "gpushare", "native"):
        took[name] += seconds_of(native if name == "native" else ours, mix.line(1, part))
    if moved(bench) != 0:
        raise Failed("two small programs fit, but their memory was moved")
    end(native + ours)
    return took


def serial(bench, mix, memory, steps):
    programs = bench.loads(memory, None, BATCH, steps)
    seconds_of(programs, mix.line(1, 0.02))
    seconds = 2 * seconds_of(programs, mix.line(1))
    end(programs)
    return seconds


def big_rows(bench, how, name, limit, duplex, cells):
    """Rows of one bus; cells: (share, phases, whether at the fixed quantum)"""
    rows, quantum = [], how.quantum * how.five_ms / 1000 / FIVE_S
    steps, kernel_ns = bench.calibrated(limit * BIG, how.kernel_ms)
    switch = 2 * limit * (2 * BIG - 1) / duplex
    one_after_other = {}
    for share, phases, is_fixed in cells:
        mix = Mix(share, how.solo, kernel_ns)
        if share not in one_after_other:
            one_after_other[share] = serial(bench, mix, limit * BIG, steps)
        seconds, said = big_pair(bench, limit, steps, mix, CYCLES[phases], quantum if is_fixed else None)
        length = quantum if is_fixed else said["quantum_s"]
        ratio, target = seconds / one_after_other[share], TARGETS[share]
        rows.append(row(f"big {mix.name()} {phases}, {f'{how.quantum:g} s' if is_fixed else 'automatic'}, {name}", ratio, "of serial",
                        target, "at most", ratio <= target, seconds=seconds, serial_s=one_after_other[share],
                        at_least=mix.at_least(CYCLES[phases], switch / length), limit_bytes=int(limit),
                        **{**said, "quantum_s": length, "switch_at_bus_s": switch}))
        show(rows[-1], bench)
    return rows


def small_rows(bench, how, limit):
    rows = []
    steps, kernel_ns = bench.calibrated(limit * SMALL, how.kernel_ms)
    for share in TARGETS:
        mix = Mix(share, how.solo, kernel_ns)
        took = small_pairs(bench, limit, steps, mix, 1 / 4)
        ratio = took["native"] / took["gpushare"]
        rows.append(row(f"small {mix.name()} once, native", ratio, "of native", ceiling=SMALL_TARGET, against="at least",
                        met=ratio >= SMALL_TARGET, **{f"{name}_s": seconds for name, seconds in took.items()}))
        show(rows[-1], bench)
    return rows


def show(each, bench):
    more = ""
    if "serial_s" in each:
        more = (f"   {each['seconds']:6.2f} of {each['serial_s']:6.2f} s, at least {each['at_least']:.3f}; {each['switches']} switches, "
                f"quantum {each['quantum_s'] * 1000:.0f} ms, switch {each['switch_s'] * 1000:.1f} ms (bus {each['switch_at_bus_s'] * 1000:.1f})")
    else:
        more = f"   native {each['native_s']:.2f} s, gpushare {each['gpushare_s']:.2f} s"
    print(f"{each['name']:42}{each['value']:7.3f}  {each['against']} {each['ceiling']:.2f}{'' if each['met'] else ' MISSED'}{more}"
          f"  [{bench.seconds():.0f} s]", flush=True)


def body():
    how = options(__doc__, (
        ("--solo", {"type": float, "default": 9, "metavar": "S", "help": "a program alone (default 9)"}),
        ("--five-ms", {"type": float, "default": 200, "metavar": "MS", "help": "what stands for the thesis' 5 s (default 200)"}),
        ("--quantum", {"type": float, "default": 5, "metavar": "S", "help": "a row of the table (default 5)"}),
        ("--kernel-ms", {"type": float, "default": 1}),
        ("--limit-mib", {"type": float, "help": "the limit, for both buses, instead of the scaled one"}),
        ("--bus-mib", {"type": float, "default": 2048, "help": "copied to measure the bus"}),
        ("--all", {"action": "store_true", "help": "every mix with both phases, and P100's bus (three times as long)"})))
    with Bench(how.build) as bench:
        card, _, bus = bench.facts(how.bus_mib * MIB)
        five = how.five_ms / 1000
        limits = {"this bus": 16 * GIB * five / FIVE_S, "P100's bus": P100_SHARE * five * bus["duplex"] / 2 / (2 * BIG - 1)}
        if how.limit_mib:
            limits = {name: how.limit_mib * MIB for name in limits}
        print(f"{card['card']}: 5 s are {how.five_ms:g} ms, the card " +
              ", ".join(f"{limit / GIB:.2f} GiB ({name})" for name, limit in limits.items()), flush=True)
        cells = [(share, phases, fixed) for share, phases in ALL for fixed in (True, False)] if how.all else DEFAULT
        rows = big_rows(bench, how, "this bus", limits["this bus"], bus["duplex"], cells)
        if how.all:
            rows += big_rows(bench, how, "P100's bus", limits["P100's bus"], bus["duplex"], [(share, "once", True) for share in TARGETS])
        rows += small_rows(bench, how, limits["this bus"])
        write(how.json, "thesis-card", card, rows, duplex=bus["duplex"], solo_s=how.solo, five_ms=how.five_ms,
              seconds=round(bench.seconds()), title="Two copies at once over one after the other: Table 12.2 of the 2021 thesis on this card",
              scale="part of what is asked for (beyond twice: cut off)", note="Big: shorter is better (dashed: no order of turns is below). Small: throughput over native")
    return rows


if __name__ == "__main__":
    main(body)
