#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One program larger than the card (GPUSHARE_OVERCOMMIT), against the best that its bytes allow.

The card is --limit-gib (GPUSHARE_DEVICE_LIMIT); a patched copy of bench/beyond has --ratios times as much, in pieces of --piece-mib. In
`even` each pass reads and writes every piece once: what does not fit goes over the bus, whichever pieces those are. In `skewed` the
last third that was allocated is used --often times a pass and the rest once, so that it matters which pieces are on the card. The bound
of a pass: the larger of the time that the card takes for all kernels with everything in its own memory (measured on pieces that fit), and
that of the least bytes that must cross the bus in each direction, at half of its duplex rate (measured). No program whose kernels run one after the
other can reach it, however its pieces are placed: *serial* is the sum of the time that its kernels take on the pieces on the card and on those beyond it, at
the rate at which a kernel reads and writes host memory (measured). With --streams N the pieces take turns on N streams, so that kernels which wait for the bus
run beside others. `mixed` is one kernel on memory of which an eleventh is beyond the card, in one piece or spread in grains of 2 MiB. Every word is checked.
"""
import statistics

from harness import EDGE_BYTES, GIB, MIB, Bench, Failed, main, options, row, write

TARGET = 0.8  # of the bound's speed


def check(program, what):
    for line in ("check", "kinds"):
        wrong = program.say(line, timeout=600)["wrong"]
        if wrong:
            raise Failed(f"{what}: {line}: {wrong} are wrong")


def median_pass(program, count):
    """Seconds of a pass, the median of the later half: by then everything is where it stays."""
    times = program.say(f"passes {count}", timeout=600)["ns"]
    return statistics.median(times[len(times) // 2:]) / 1e9, times[0] / 1e9


def device_rate(bench, how, limit, piece):
    """Bytes a second that the kernels go over in the card's own memory, and the bus."""
    program = bench.start(bench.patched(bench.path("bench", "beyond")), GPUSHARE_DEVICE_LIMIT=str(limit))
    bus = program.say(f"bus {int(how.bus_mib * MIB)}")
    count = max(int(limit * 0.8) // piece, 1)
    program.say(f"take {count} {piece}")
    program.say(f"streams {how.streams}")
    seconds, _ = median_pass(program, how.passes)
    program.end()
    return count * piece / seconds, bus


def kernel_rates(bench, piece):
    """Bytes a second of one kernel that reads and writes: host memory alone; memory of which an eleventh is there, at its end, and spread."""
    program = bench.start(bench.path("bench", "beyond"))
    grain = 2 * MIB
    parts = [(8 * piece, piece, 1), (11 * piece, piece, 11), (11 * piece, grain, 11)]
    rates = [nbytes / program.say(f"mixed {nbytes} {size} {part}")["ns"] * 1e9 for nbytes, size, part in parts]
    program.end()
    print(f"a kernel reads and writes {rates[0] / 1e9:.1f} GB/s beyond the card; mixed, an eleventh beyond: {rates[1] / 1e9:.1f} GB/s, spread {rates[2] / 1e9:.1f}")
    return dict(zip(("beyond", "mixed", "spread"), rates))


def least_over_bus(uses, fits, piece):
    """Bytes that must cross the bus in a pass when so many of the pieces fit on the card: the least used lie beyond."""
    return sum(sorted(uses)[:max(len(uses) - fits, 0)]) * piece


def measure(bench, how, limit, ratio, kind, rate, bus, kernel, piece):
    program = bench.start(bench.patched(bench.path("bench", "beyond")), GPUSHARE_DEVICE_LIMIT=str(limit),
                          GPUSHARE_OVERCOMMIT=str(int(limit * (ratio - 1)) + 4 * piece))
    room = program.say("info")
    capacity = room["free"] - (int(limit * (ratio - 1)) + 4 * piece)  # of the card itself
    count = int(limit * ratio) // piece
    made = program.say(f"take {count} {piece}", timeout=600)["ns"] / 1e9
    often = count - count // 3
    uses = [how.often if kind == "skewed" and i >= often else 1 for i in range(count)]
    program.say("uses " + " ".join(str(use) for use in uses))
    program.say(f"streams {how.streams}")
    program.say("edit")
    seconds, first = median_pass(program, how.passes)
    check(program, f"{kind} at {ratio}")
    used = max(each["host_used"] for each in bench.device()["programs"])
    program.end()
    over = least_over_bus(uses, capacity // piece, piece)
    bound = max(sum(uses) * piece / rate, over / (bus["duplex"] / 2))
    serial = (sum(uses) * piece - over) / rate + over / kernel["beyond"]
    print(f"{kind:6} {ratio:5.2f} x the card: {count} pieces made in {made:.2f} s; a pass {seconds:.4f} s (the first {first:.4f}), "
          f"bound {bound:.4f} s ({over / GIB:.2f} GiB over the bus): {bound / seconds:.2f} of it, {serial / seconds:.2f} of serial; {used / GIB:.2f} GiB of host memory")
    streams = f", {how.streams} streams" if how.streams != 1 else ""
    return row(f"{kind}, {ratio:g} x the card{streams}", 1 / seconds, "passes/s", 1 / bound, "bound", bound / seconds >= TARGET,
               over_gb=over / 1e9, made_s=made, first_s=first, of_serial=serial / seconds)


def body():
    how = options(__doc__, (
        ("--limit-gib", {"type": float, "default": 16}),
        ("--piece-mib", {"type": float, "default": 256}),
        ("--ratios", {"default": "1.1,1.25,1.5,2"}),
        ("--kinds", {"default": "even,skewed"}),
        ("--often", {"type": int, "default": 8}),
        ("--streams", {"type": int, "default": 1, "help": "1 to 16"}),
        ("--passes", {"type": int, "default": 20}),
        ("--bus-mib", {"type": float, "default": 1024})))
    with Bench(how.build) as bench:
        limit, piece = int(how.limit_gib * GIB) + EDGE_BYTES, int(how.piece_mib * MIB)
        card = bench.facts()[0]
        rate, bus = device_rate(bench, how, limit, piece)
        print(f"the card's own memory: {rate / 1e9:.1f} GB/s read and written; the bus: {bus['duplex'] / 1e9:.1f} GB/s both ways together")
        kernel = kernel_rates(bench, piece)
        rows = [measure(bench, how, limit, float(ratio), kind, rate, bus, kernel, piece)
                for kind in how.kinds.split(",") for ratio in how.ratios.split(",")]
        worst = min(each["ratio"] for each in rows)
        serial = min(each["of_serial"] for each in rows)
        print(f"at least {worst:.2f} of the bound (goal {TARGET}), {serial:.2f} of serial  [{bench.seconds():.0f} s]")
        write(how.json, "overcommit", card, rows, bus=bus, device_gb_s=rate / 1e9, kernel_gb_s={name: each / 1e9 for name, each in kernel.items()})
        return rows


if __name__ == "__main__":
    main(body)
