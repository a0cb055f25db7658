#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Short requests beside training where both fit: how long the requests take.

Training computes all the time, in batches of --queue kernels that are not waited for one by one, on a quarter of the card (of
--limit-gib); another program on a quarter answers requests of a Poisson process with one short kernel each. Both are copies of
bench/load. In turns: the requests alone; beside the training without gpushare; with gpushare; and, where nvidia-cuda-mps-control is installed (--mps), both as clients of MPS without gpushare. A latency counts
from the time at which the request was to arrive. Printed: p50 and p99, and what the training keeps of its rate alone.
"""
import os
import shutil
import statistics
import subprocess
import time

from harness import GIB, Bench, Failed, end, main, options, row, write
from interactive_bench import arrivals, quantile, request_line

PART = 1 / 4  # of the card, each


class Mps:
    """with Mps(bench) as environment: NVIDIA's daemon for the programs that get this environment."""

    def __init__(self, bench):
        self.folder = os.path.join(bench.folder, "mps")
        os.makedirs(self.folder, exist_ok=True)
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder}

    def __enter__(self):
        done = subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **self.environment}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failed(f"nvidia-cuda-mps-control -d: status {done.returncode}: {done.stderr.strip()}")
        return self.environment

    def __exit__(self, *unused):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", env={**os.environ, **self.environment}, text=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def schedule(how, seconds=None):
    return arrivals(time.monotonic_ns() + int(2e8), how.mean_ms / 1e3, seconds or how.seconds)


def pair(bench, how, steps, limit, environment):
    """The two programs: the requests', the training's."""
    memory = how.limit_gib * GIB * PART
    short, = bench.loads(memory, limit, 1, steps, ({**environment},))
    long, = bench.loads(memory, limit, how.queue, steps, ({**environment},))
    return short, long


def serve(how, short, long):
    """(latencies in ns, the training's kernels a second) of requests with or without training beside them."""
    times = schedule(how)
    if long is not None:
        long.tell(f"work {times[-1]}")
    short.tell(request_line(1, times))
    ends = short.answer()["ends"]
    batches = [at for at in long.answer()["ends"] if times[0] <= at < times[-1]] if long is not None else []
    rate = how.queue * (len(batches) - 1) / (batches[-1] - batches[0]) * 1e9 if len(batches) > 1 else 0
    return [ended - arrived for arrived, ended in zip(times, ends)], rate


def beside(bench, how, steps, limit=None, environment=()):
    short, long = pair(bench, how, steps, limit, dict(environment))
    learn = schedule(how, max(how.seconds / 4, 3 * how.mean_ms / 1e3))  # the daemon sees the bursts, the gate the pace
    long.tell(f"work {learn[-1]}")
    short.tell(request_line(1, learn))
    short.answer()
    long.answer()
    found = serve(how, short, long)
    end([short, long])
    return found


def alone(bench, how, steps):
    """(latencies of requests, kernels a second of training), each with the card to itself, without gpushare."""
    short, long = pair(bench, how, steps, None, {})
    latencies, _ = serve(how, short, None)
    ends, seconds = [], how.seconds / 4
    while len(ends) < 3 and seconds < 16 * how.seconds:  # on a busy machine again, for twice as long
        seconds *= 2
        ends = long.say(f"work {time.monotonic_ns() + int(seconds * 1e9)}")["ends"]
    end([short, long])
    if len(ends) < 3:
        raise Failed(f"{len(ends)} batches in {seconds} s: more --seconds or less --queue")
    return latencies, how.queue / statistics.median(after - before for before, after in zip(ends, ends[1:])) * 1e9


def cases(bench, how, steps):
    limit = how.limit_gib * GIB
    yield "without gpushare", beside(bench, how, steps)
    yield "gpushare", beside(bench, how, steps, limit)
    if how.mps and shutil.which("nvidia-cuda-mps-control"):
        with Mps(bench) as environment:
            yield "MPS", beside(bench, how, steps, environment=environment.items())
    elif how.mps:
        print("MPS is left out: there is no nvidia-cuda-mps-control")


def body():
    how = options(__doc__, (
        ("--limit-gib", {"type": float, "default": 8}),
        ("--kernel-ms", {"type": float, "default": 1, "help": "of both programs' kernels, alone (default 1)"}),
        ("--queue", {"type": int, "default": 256, "help": "kernels of the training that are not waited for (default 256)"}),
        ("--mean-ms", {"type": float, "default": 200, "help": "between two requests (default 200)"}),
        ("--mps", {"action": "store_true", "help": "NVIDIA's MPS as well"}),
        ("--seconds", {"type": float, "default": 30, "help": "of each case (default 30)"})))
    with Bench(how.build) as bench:
        card, _, _ = bench.facts()
        steps, _ = bench.calibrated(how.limit_gib * GIB * PART, how.kernel_ms)
        latencies, rate = alone(bench, how, steps)
        own = {part: quantile(latencies, part) / 1e6 for part in (0.5, 0.99)}
        rows, results = [], {}
        print(f"{'':24}{'p50':>10}{'p99':>10}   training of alone")
        print(f"{'alone':24}{own[0.5]:10.2f}{own[0.99]:10.2f}")
        for name, (took, kept) in cases(bench, how, steps):
            p50, p99 = (quantile(took, part) / 1e6 for part in (0.5, 0.99))
            results[name] = {"p50_ms": p50, "p99_ms": p99, "training": kept / rate}
            print(f"{name:24}{p50:10.2f}{p99:10.2f}{kept / rate:12.3f}   [{bench.seconds():.0f} s]", flush=True)
            rows += [row(f"{name}: p50", p50, "ms", own[0.5], "alone"), row(f"{name}: p99", p99, "ms", own[0.99], "alone"),
                     row(f"{name}: training", kept / rate, "of alone", 1, "alone", other=True)]
        write(how.json, "spatial", card, rows, cases=results, alone_ms={"p50": own[0.5], "p99": own[0.99]}, queue=how.queue,
              kernel_ms=how.kernel_ms, mean_ms=how.mean_ms, title="Short requests beside training, both on the card",
              note="From the scheduled arrival; the mark is the request alone")
    return rows


if __name__ == "__main__":
    main(body)
