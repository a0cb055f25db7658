#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rebuilds Table 12.2 of the 2021 thesis (the ancestor of gpushare) in gpushare-sim, and puts our way beside it.

The old way (bench/sim/unified.c: unified memory, kernels fault pages in, a first-come-first-served lock for a fixed quantum) has
two parameters that nobody published: the rate at which this program's kernels fault memory in, and how long one pass over its
memory takes. Each is found from one cell: --fault-cell and --pass-cell. All other cells of two copies are predicted, and every
error is printed. Sources of the rest: the thesis (sizes, solo times, card, chapter 10), PCIe 3 x16 for our copies.

A third parameter matters only where the small programs run at the same time (no scheduler, and ours): how much of its GPU part a
program keeps the card busy. The old way's cells are predicted without it (busy = 1), and once more with the value that the row of
another system, Kubeshare, implies (that row is not predicted). Ours is run with that value.
"""
import argparse
import json
import subprocess
import sys

COLUMNS = {"small_50": (7.2, 1318, 0.5), "small_90": (7.2, 692, 0.9), "big_50": (15.3, 1383, 0.5), "big_90": (15.3, 719, 0.9)}
QUANTA = [1000, 500, 400, 300, 200, 100, 60, 50, 40, 30, 20, 15, 10, 5]
PUBLISHED = {  # seconds, two copies at once
    "small_50": [2053, 2053, 2030, 2010, 2007, 2010, 2020, 1995, 1993, 2017, 2007, 1983, 2009, 1982],
    "small_90": [1361, 1363, 1352, 1354, 1360, 1351, 1348, 1351, 1343, 1366, 1360, 1341, 1360, 1334],
    "big_50": [2043, 2070, 2081, 2085, 2092, 2100, 2122, 2145, 2156, 2170, 2204, 2305, 2465, 3496],
    "big_90": [1380, 1400, 1405, 1418, 1423, 1435, 1468, 1473, 1485, 1521, 1583, 1668, 1821, 2788],
}
UNLOCKED = {"small_50": 1772, "small_90": 1128, "big_50": 11757, "big_90": 11434}
KUBESHARE = {"small_50": 1724, "small_90": 1078}
SOLO = {"unlocked": {"small_50": 1332, "small_90": 711, "big_50": 1385, "big_90": 724},
        "unified": {"small_50": 1339, "small_90": 712, "big_50": 1390, "big_90": 734}}


class Simulator:
    def __init__(self, program, scenario):
        self.program, self.scenario = program, scenario
        self.settings = {}

    def run(self, column, way, quantum=None, copies=2, cycles=1, **more):
        """Everything that gpushare-sim has to say about it."""
        memory, solo, share = COLUMNS[column]
        settings = {"run.way": way, "program.copies": copies, "program.memory": f"{memory}GB", "program.cycles": cycles,
                    "program.gpu": f"{solo * share / cycles}s", "program.cpu": f"{solo * (1 - share) / cycles}s",
                    "scheduler.quantum": "auto" if quantum is None else f"{quantum}s", **self.settings,
                    **{name.replace("__", "."): value for name, value in more.items()}}
        command = [self.program, "--json", self.scenario]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        result = subprocess.run(command, stdout=subprocess.PIPE)
        if result.returncode != 0:
            sys.exit(f"{' '.join(command)}: status {result.returncode}")
        return json.loads(result.stdout)

    def seconds(self, column, way, quantum=None, **more):
        return max(program["ended_s"] for program in self.run(column, way, quantum, **more)["programs"])


def bisect(low, high, target, measure):
    """The x for which measure(x), which falls with x, is target."""
    if not measure(low) >= target >= measure(high):
        sys.exit(f"the model cannot reach {target} s: {measure(low):.0f} to {measure(high):.0f}")
    for _ in range(40):
        middle = (low * high) ** 0.5
        if measure(middle) > target:
            low = middle
        else:
            high = middle
    return (low * high) ** 0.5


def calibrate(sim, fault_cell, pass_cell):
    """The two unknown parameters, each from one cell."""
    column, quantum = fault_cell
    target = PUBLISHED[column][QUANTA.index(quantum)]
    fault = bisect(2e9, 50e9, target, lambda rate: sim.seconds(column, "unified", quantum, card__fault=f"{int(rate)}B"))
    sim.settings["card.fault"] = f"{int(fault)}B"
    target = UNLOCKED[pass_cell]
    length = bisect(0.05, 20, target, lambda seconds: sim.seconds(pass_cell, "unlocked", program__pass=f"{seconds:.6f}s"))
    sim.settings["program.pass"] = f"{length:.6f}s"
    return fault, length


def old_way(sim, fault_cell, pass_cell):
    """Every cell of the old way: (row, column, published, model, calibrated)."""
    cells = []
    for name, way in (("solo, no scheduler", "unlocked"), ("solo, quantum 60", "unified")):
        for column in COLUMNS:
            cells.append((name, column, SOLO[way][column], sim.seconds(column, way, 60, copies=1), None))
    for column in COLUMNS:
        cells.append(("no scheduler", column, UNLOCKED[column], sim.seconds(column, "unlocked"), column == pass_cell))
        for quantum, published in zip(QUANTA, PUBLISHED[column]):
            cells.append((f"quantum {quantum}", column, published, sim.seconds(column, "unified", quantum),
                          (column, quantum) == fault_cell))
    return [dict(zip(("row", "column", "published", "model", "calibrated"), cell), error=cell[3] / cell[2] - 1) for cell in cells]


def our_way(sim, busy):
    """Both programs through lockd's scheduler: the same quanta, the automatic one, and what taking turns comes to at the least."""
    cells = []
    for column, (_, solo, share) in COLUMNS.items():
        more = {"program__busy": busy} if column in KUBESHARE else {}
        bound = solo * (1 - share) + 2 * solo * share
        for quantum in QUANTA + [None]:
            result = sim.run(column, "gpushare", quantum, **more)
            seconds = max(program["ended_s"] for program in result["programs"])
            cells.append({"row": "quantum automatic" if quantum is None else f"quantum {quantum}", "column": column,
                          "seconds": seconds, "over_serial": seconds / (2 * solo), "lower_bound_over_serial": bound / (2 * solo),
                          "switch_s": result["totals"]["switch_s"], "quantum_s": result["totals"]["quantum_s"]})
    return cells


def small_against_native(sim, busy):
    """Programs that fit together: ours over the driver's own sharing, which is unified memory without a scheduler here."""
    return {column: sim.seconds(column, "unlocked", program__busy=busy) / sim.seconds(column, "gpushare", program__busy=busy)
            for column in KUBESHARE}


def kubeshare_busy(column="small_90"):
    """Two GPU parts took so much less time together than after each other."""
    _, solo, share = COLUMNS[column]
    return (KUBESHARE[column] - solo * (1 - share)) / (2 * solo * share)


def table(old, ours):
    by_cell = {(cell["row"], cell["column"]): cell for cell in old}
    by_cell_ours = {(cell["row"], cell["column"]): cell for cell in ours}
    rows = ["solo, no scheduler", "solo, quantum 60", "no scheduler"] + [f"quantum {quantum}" for quantum in QUANTA]
    print(f"{'':20}" + "".join(f"{column:^34}" for column in COLUMNS))
    print(f"{'':20}" + f"{'thesis':>8}{'model':>8}{'error':>9}{'ours':>8} " * 4)
    for row in rows + ["quantum automatic"]:
        line = f"{row:20}"
        for column in COLUMNS:
            cell, own = by_cell.get((row, column)), by_cell_ours.get((row, column))
            mark = "*" if cell and cell["calibrated"] else "%"
            line += f"{cell['published']:8.0f}{cell['model']:8.0f}{cell['error'] * 100:+8.1f}{mark}" if cell else " " * 25
            line += f"{own['seconds']:8.0f} " if own else " " * 9
        print(line)
    print("seconds for two copies (solo: one); * calibrated on this cell; ours: lockd's scheduler, copies over PCIe 3, same quantum")


def cell(text):
    column, _, quantum = text.partition(":")
    if column not in PUBLISHED or int(quantum) not in QUANTA:
        raise argparse.ArgumentTypeError(f"{text}: write COLUMN:QUANTUM, as big_90:10")
    return column, int(quantum)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulator", help="gpushare-sim")
    parser.add_argument("scenario", help="scenarios/thesis.ini")
    parser.add_argument("--fault-cell", type=cell, default=("big_90", 10), help="COLUMN:QUANTUM (default big_90:10)")
    parser.add_argument("--pass-cell", choices=("big_50", "big_90"), default="big_90", help="of the row without scheduler")
    parser.add_argument("--limit", type=float, default=0.15, help="the largest error allowed of a predicted cell")
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    options = parser.parse_args()

    sim = Simulator(options.simulator, options.scenario)
    fault, length = calibrate(sim, options.fault_cell, options.pass_cell)
    busy = kubeshare_busy()
    old, ours = old_way(sim, options.fault_cell, options.pass_cell), our_way(sim, busy)
    table(old, ours)
    busy_cells = {column: sim.seconds(column, "unlocked", program__busy=busy) for column in KUBESHARE}
    native = small_against_native(sim, busy)
    predicted = [each for each in old if each["calibrated"] is False]
    beyond = [each for each in predicted if abs(each["error"]) > options.limit]
    worst = max(predicted, key=lambda each: abs(each["error"]))
    print(f"calibrated: faults in at {fault / 1e9:.2f} GB/s ({options.fault_cell[0]}, quantum {options.fault_cell[1]}), "
          f"a pass takes {length:.2f} s ({options.pass_cell}, no scheduler)")
    print(f"predicted: {len(predicted)} cells, {len(predicted) - len(beyond)} within {options.limit * 100:.0f} %, mean error "
          f"{sum(abs(each['error']) for each in predicted) / len(predicted) * 100:.1f} %, worst {worst['error'] * 100:+.1f} % "
          f"({worst['row']}, {worst['column']})")
    for each in beyond:
        print(f"  beyond: {each['row']}, {each['column']}: {each['error'] * 100:+.1f} %")
    for column, seconds in busy_cells.items():
        print(f"  {column} without scheduler, card busy {busy * 100:.0f} % of a GPU part (from Kubeshare's small_90): "
              f"{seconds:.0f} s, {(seconds / UNLOCKED[column] - 1) * 100:+.1f} %")
    for column, (_, solo, share) in COLUMNS.items():
        best = min((each for each in ours if each["column"] == column), key=lambda each: each["seconds"])
        five = next(each for each in ours if each["column"] == column and each["row"] == "quantum 5")
        automatic = next(each for each in ours if each["column"] == column and each["row"] == "quantum automatic")
        print(f"ours, {column}: {five['over_serial']:.3f} of serial at 5 s, {automatic['over_serial']:.3f} automatic "
              f"({automatic['quantum_s']:.0f} s), {best['over_serial']:.3f} best; turns one after the other are "
              f"{best['lower_bound_over_serial']:.3f} at least")
    for column, ratio in native.items():
        print(f"ours, {column}: {ratio:.4f} of the throughput of sharing by the driver alone")
    fine = {cycles: max(program["ended_s"] for program in sim.run("big_50", "gpushare", cycles=cycles)["programs"]) / 2766
            for cycles in (1, 5, 20)}
    print("ours, big_50 with its two parts alternating: " +
          ", ".join(f"{cycles} times {ratio:.3f} of serial" for cycles, ratio in fine.items()))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"benchmark": "thesis", "date": "2026-11-21", "card": "P100, simulated", "driver": None,
                       "calibration": {"fault_bytes_per_s": fault, "pass_s": length,
                                       "fault_cell": options.fault_cell, "pass_cell": options.pass_cell},
                       "busy_from_kubeshare": busy, "unlocked_with_busy": busy_cells,
                       "native": native, "alternating_over_serial": fine, "old": old, "ours": ours}, file, indent=1)
            file.write("\n")
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
