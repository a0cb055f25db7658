#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of the device plugin: the time of each of many Allocate calls as kubelet's side sees it (grpcio, the Python of this
machine included), its memory, and the processor time that it uses when nothing happens.
device_plugin.py --build DIR [--calls N] [--idle SECONDS] [--p99-ms MOST]; exit status 1: the 99th percentile is above MOST."""
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests", name) for name in ("cluster/plugin", "cluster", "")]
import kit  # noqa: E402
import kubelet  # noqa: E402

kubelet.need_grpc()
import running  # noqa: E402


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return {line.split(":")[0]: int(line.split()[1]) for line in file if line.startswith(("VmRSS", "RssAnon"))}


class Bench(running.PluginTest):
    """One run of the plugin, as the tests start it."""

    def test_cost(self):
        plugin = self.begin("--log-level", "warning", "--period", "30")
        plugin.next_list()
        idle = kit.OPTIONS.idle
        before, begin = processor_seconds(self.process.pid), time.monotonic()
        time.sleep(idle)
        used = processor_seconds(self.process.pid) - before
        print(f"idle: {used:.2f} s of processor time in {time.monotonic() - begin:.0f} s, resident {memory_kib(self.process.pid)} KiB")
        times = []
        for i in range(kit.OPTIONS.calls):
            start = time.perf_counter()
            plugin.allocate([f"{running.FIRST}::{i % 10}"])
            times.append((time.perf_counter() - start) * 1e3)
        times.sort()
        p99 = times[len(times) * 99 // 100]
        print(f"{len(times)} Allocate calls: median {times[len(times) // 2]:.2f} ms, p99 {p99:.2f} ms, longest {times[-1]:.2f} ms, "
              f"plugin {processor_seconds(self.process.pid) - before - used:.2f} s; resident {memory_kib(self.process.pid)} KiB")
        self.assertLessEqual(p99, kit.OPTIONS.p99_ms)


if __name__ == "__main__":
    sys.argv += ["Bench.test_cost"]
    kit.main(calls=10000, idle=60.0, p99_ms=5.0)
