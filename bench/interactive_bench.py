#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An interactive program beside training, together more than the card: how long its requests take.

Training computes all the time with 3/4 of the card, the interactive program has 1/2 (of --limit-gib, by GPUSHARE_DEVICE_LIMIT) and is
asked by a Poisson process for short bursts; both are patched copies of bench/load, the daemon is as installed. A latency counts
from the time at which the request was to arrive, whether or not the program was ready for it.

Compared with a card of its own that only has to bring in what is missing: the same arrivals, one request after the other, each as long
as it takes the unpatched program alone (measured in this run), and the bytes that do not fit over the rate of the bus into the card
(measured too) unless the request comes before an idle program gives back its turn. Quantiles are compared with quantiles. The bytes
that the daemon saw coming in are printed beside those that this counts on (memory moves in chunks of up to 128 MiB).

Who is interactive must stay within its share: a request costs its burst and two switches, all together well below half of the time.
"""
import random
import statistics
import time

from harness import GIB, MIB, Bench, Failed, end, main, options, row, write

TRAINING, INTERACTIVE = 3 / 4, 1 / 2
TARGET = 1.2
BATCH = 8
QUANTILES = {"p50": 0.5, "p99": 0.99}


def arrivals(start_ns, mean_s, seconds, seed=5):
    """Times in ns of a Poisson process; always the same ones of a seed."""
    source, times, at = random.Random(seed), [], 0.0
    while (at := at + source.expovariate(1 / mean_s)) < seconds:
        times.append(start_ns + int(at * 1e9))
    if len(times) < 2:
        raise Failed(f"{len(times)} requests in {seconds} s: more --seconds or less --mean-s")
    return times


def request_line(kernels, times):
    return f"requests {kernels} " + " ".join(map(str, times))


def quantile(values, part):
    """The smallest value that so many are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))]


def ideal(times, ends, services, missing, idle):
    """(latencies of a card of its own, how often it brings in what is missing); services: how long each request takes. All in ns."""
    free, before, brought, latencies = 0, None, 0, []
    for arrived, ended, service in zip(times, ends, services):
        away = before is None or arrived - before > idle
        free = max(free, arrived) + service + (missing if away else 0)
        brought += away
        before = ended
        latencies.append(free - arrived)
    return latencies, brought


def alone(bench, memory, steps, command, count):
    """ns of a request, or of a batch, of an unpatched program that has the card to itself: the median."""
    programs = bench.loads(memory, None, BATCH, steps)
    programs[0].say(command([1] * 3))
    ends = programs[0].say(command([1] * (count + 1)))["ends"]
    end(programs)
    return statistics.median(after - before for before, after in zip(ends, ends[1:]))


def entry(bench, program):
    return next(each for each in bench.device()["programs"] if each["pid"] == program.pid)


def beside(bench, training, interactive, kernels, times):
    """Both at once: (ends of the requests, ends of the training's batches)."""
    training.tell(f"work {times[-1]}")
    interactive.tell(request_line(kernels, times))
    return interactive.answer()["ends"], training.answer()["ends"]


def measure(bench, how, bus):
    limit = how.limit_gib * GIB
    steps = {share: bench.calibrated(limit * share, how.kernel_ms) for share in (TRAINING, INTERACTIVE)}
    kernels = max(1, round(how.burst_ms * 1e6 / steps[INTERACTIVE][1]))
    service = alone(bench, limit * INTERACTIVE, steps[INTERACTIVE][0], lambda times: request_line(kernels, times), 8)
    batch = alone(bench, limit * TRAINING, steps[TRAINING][0], lambda times: request_line(BATCH, times), 50)
    training, = bench.loads(limit * TRAINING, limit, BATCH, steps[TRAINING][0])
    interactive, = bench.loads(limit * INTERACTIVE, limit, BATCH, steps[INTERACTIVE][0])
    settle = arrivals(time.monotonic_ns() + int(2e8), how.mean_s, max(3 * how.mean_s, how.seconds / 10))
    beside(bench, training, interactive, kernels, settle)  # what only the first hand-offs cost
    before = entry(bench, interactive)
    times = arrivals(time.monotonic_ns() + int(2e8), how.mean_s, how.seconds)
    ends, batches = beside(bench, training, interactive, kernels, times)
    after, device, daemon = entry(bench, interactive), bench.device(), bench.status()["daemon"]
    end([training, interactive])
    missing = device["demand"] - device["capacity"]
    idle = daemon["idle_ns"] or device["switch_ns"]
    best, brought = ideal(times, ends, [service] * len(times), missing / bus["h2d"] * 1e9, idle)
    took = [ended - arrived for arrived, ended in zip(times, ends)]
    window = (times[-1] - times[0]) / 1e9
    return took, best, {
        "requests": len(times), "alone_ms": service / 1e6, "missing_bytes": missing, "moved_in_bytes": after["moved_in"] - before["moved_in"],
        "counted_in_bytes": brought * missing, "switch_ms": device["switch_ns"] / 1e6, "quantum_ms": device["quantum_ns"] / 1e6,
        "training_of_solo": sum(times[0] <= at < times[-1] for at in batches) * batch / 1e9 / window,
        "interactive_share": len(times) * service / 1e9 / window}


def body():
    how = options(__doc__, (
        ("--limit-gib", {"type": float, "default": 8, "help": "what the card is made to hold (default 8)"}),
        ("--burst-ms", {"type": float, "default": 100, "help": "of a request, alone (default 100)"}),
        ("--mean-s", {"type": float, "default": 0.8, "help": "between two requests (default 0.8)"}),
        ("--kernel-ms", {"type": float, "default": 1}),
        ("--bus-mib", {"type": float, "default": 2048, "help": "copied to measure the bus"}),
        ("--seconds", {"type": float, "default": 80})))
    with Bench(how.build) as bench:
        card, _, bus = bench.facts(how.bus_mib * MIB)
        took, best, said = measure(bench, how, bus)
        rows = []
        for name, part in QUANTILES.items():
            mine, least = quantile(took, part) / 1e6, quantile(best, part) / 1e6
            rows.append(row(f"{name} of {said['requests']} requests", mine, "ms", least, "a card of its own", mine / least <= TARGET))
            print(f"{name}: {mine:.1f} ms, a card of its own {least:.1f} ms: {mine / least:.3f}  at most {TARGET}"
                  f"{'' if rows[-1]['met'] else ' MISSED'}")
        print(f"{said['requests']} requests of {said['alone_ms']:.1f} ms alone, {said['interactive_share'] * 100:.0f} % of the time; "
              f"{said['missing_bytes'] / GIB:.2f} GiB missing each: {said['counted_in_bytes'] / GIB:.2f} GiB counted on, "
              f"{said['moved_in_bytes'] / GIB:.2f} came in; switch {said['switch_ms']:.1f} ms; training at {said['training_of_solo']:.3f} "
              f"of alone; bus {bus['h2d'] / 1e9:.1f} GB/s  [{bench.seconds():.0f} s]")
        write(how.json, "interactive", card, rows, **said, h2d=bus["h2d"], seconds=round(bench.seconds()), target=TARGET,
              latencies_ms=[round(each / 1e6, 3) for each in took], ideal_ms=[round(each / 1e6, 3) for each in best],
              title="Requests of an interactive program beside training", note="From the scheduled arrival; asked for: at most 1.2 of the mark")
    return rows


if __name__ == "__main__":
    main(body)
