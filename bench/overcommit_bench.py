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
run beside others. Every word is checked.

First one kernel goes over memory of which one part in --part lies beyond the card, in grains of each of the sizes --grains: with large ones it waits for the card and
for the bus one after the other, with small ones for both at once. Shown with it: how long the driver takes to make, map and release such memory on the card, which is what
smaller chunks cost in hand-offs. `--kinds ""` stops after that.
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


def kernel_rate(program, nbytes, grain, part):
    """Bytes a second of one kernel that reads and writes so much memory, and what the driver answered."""
    answer = program.say(f"mixed {nbytes} {grain} {part}")
    return nbytes / answer["ns"] * 1e9, answer


def kernel_rates(bench, how):
    """({"beyond", "grain_2", ...}: bytes a second of one kernel, the rows for --grains)."""
    program = bench.start(bench.path("bench", "beyond"))
    grains = [int(float(grain) * MIB) for grain in how.grains.split(",")]
    nbytes = how.part * max(grains) * how.rounds
    rates = {"beyond": kernel_rate(program, nbytes // how.part, max(grains), 1)[0]}
    rows = []
    card = kernel_rate(program, nbytes, max(grains), 0)[0]
    bound = nbytes / max(nbytes / card, nbytes / how.part / rates["beyond"])
    offset = program.say("offset")["result"]
    print(f"one kernel: {card / 1e9:.1f} GB/s on the card, {rates['beyond'] / 1e9:.1f} beyond it, at most {bound / 1e9:.1f} with one part in {how.part} there; "
          f"cuMemMap at an offset: CUresult {offset}")
    for grain in grains:
        name = f"grain_{grain / MIB:g}"
        rates[name], mixed = kernel_rate(program, nbytes, grain, how.part)
        _, alone = kernel_rate(program, nbytes, grain, 0)
        make, drop = (alone[key] / 1e6 / (nbytes / GIB) for key in ("make_ns", "drop_ns"))
        print(f"grains of {grain / MIB:4g} MiB: {rates[name] / 1e9:6.1f} GB/s; a GiB of the card is made in {make:.2f} ms and released in {drop:.2f} ms; "
              f"the mixed memory was made in {mixed['make_ns'] / 1e6:.1f} ms")
        rows.append(row(f"one kernel, grains of {grain / MIB:g} MiB", rates[name] / 1e9, "GB/s", bound / 1e9, "bound",
                        make_ms_gib=make, drop_ms_gib=drop, mixed_make_ms=mixed["make_ns"] / 1e6))
    program.end()
    return rates, rows


def least_over_bus(uses, fits, piece):
    """Bytes that must cross the bus in a pass when so many of the pieces fit on the card: the least used lie beyond."""
    return sum(sorted(uses)[:max(len(uses) - fits, 0)]) * piece


def measure(bench, how, limit, ratio, kind, rate, bus, kernel, piece):
    program = bench.start(bench.patched(bench.path("bench", "beyond")), GPUSHARE_DEVICE_LIMIT=str(limit),
                          GPUSHARE_OVERCOMMIT=str(int(limit * (ratio - 1)) + 4 * piece),
                          **({"GPUSHARE_OVERCOMMIT_GRAIN": str(int(how.grain_mib * MIB))} if how.grain_mib else {}))
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
    streams = (f", {how.streams} streams" if how.streams != 1 else "") + (f", grains of {how.grain_mib:g} MiB" if how.grain_mib else "")
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
        ("--grain-mib", {"type": float, "help": "GPUSHARE_OVERCOMMIT_GRAIN of the program"}),
        ("--bus-mib", {"type": float, "default": 1024}),
        ("--grains", {"default": "2,4,8,16,32,128", "help": "MiB"}),
        ("--part", {"type": int, "default": 11}),
        ("--rounds", {"type": int, "default": 4, "help": "so many grains of the largest size lie beyond the card"})))
    with Bench(how.build) as bench:
        limit, piece = int(how.limit_gib * GIB) + EDGE_BYTES, int(how.piece_mib * MIB)
        card = bench.facts()[0]
        rate, bus = device_rate(bench, how, limit, piece)
        print(f"the card's own memory: {rate / 1e9:.1f} GB/s read and written; the bus: {bus['duplex'] / 1e9:.1f} GB/s both ways together")
        kernel, grains = kernel_rates(bench, how)
        rows = [measure(bench, how, limit, float(ratio), kind, rate, bus, kernel, piece)
                for kind in how.kinds.split(",") if kind for ratio in how.ratios.split(",")]
        if rows:
            worst = min(each["ratio"] for each in rows)
            serial = min(each["of_serial"] for each in rows)
            print(f"at least {worst:.2f} of the bound (goal {TARGET}), {serial:.2f} of serial  [{bench.seconds():.0f} s]")
        rows += grains
        write(how.json, "overcommit", card, rows, bus=bus, device_gb_s=rate / 1e9, kernel_gb_s={name: each / 1e9 for name, each in kernel.items()})
        return rows


if __name__ == "__main__":
    main(body)
