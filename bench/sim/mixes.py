#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random mixes of servers and a training job on gpushare-sim: are the servers served first, and does training keep its floor?

usage: mixes.py GPUSHARE_SIM [--mixes N] [--first SEED] [--only SEED] [--minutes M] [--wild] [--sweep] [--step RATE] [--jobs N] [--json FILE] [-v]

Each seed is another mix: one to five servers with requests of 10 ms to 5 s (regular, Poisson, or several at once; kernels of 10 us to 100 ms with
CPU time between), one training job (half of them with pauses for evaluation), memory that does not fit. Nothing says which program is which.
Each mix runs twice: as it is, and with `policy priority` and the servers before the training job, which is what always going first would
give. --wild: more kinds of each: requests whose length varies, notebooks that are used each 30 s, up to three training jobs, programs that start later,
several users, memory of any size. --sweep: one server beside training, its rate from 0.1 to 0.6 requests a second in small steps; no step may be a cliff. --only prints the
scenario of one seed. Exit status 1 if a bound is broken.
"""
import argparse
import concurrent.futures
import json
import math
import os
import random
import subprocess
import sys
import tempfile

FLOOR = 0.6  # of its fair share, that training keeps
BUS = 50e9
SPARE = 10.0  # seconds that bursts may use up at once, of what training ran before
ARRIVALS = ("regular", "poisson", "clustered")


def log_uniform(dice, low, high):
    return math.exp(dice.uniform(math.log(low), math.log(high)))


def make_server(dice, card, training, load):
    """A [program] section. load: part of the time that its requests and the switches for them take."""
    memory = dice.uniform(max(0.1 * card, card - training + 0.02 * card), 0.9 * card)
    burst, kernel = log_uniform(dice, 0.01, 5), log_uniform(dice, 1e-5, 0.1)
    gap = kernel * dice.uniform(0.05, 2) if dice.random() < 0.7 else log_uniform(dice, 1e-5, 0.01)
    kernels = max(1, min(1000, round(burst / (kernel + gap))))
    kernel = min(kernel, burst)
    burst = kernels * (kernel + gap)
    arrivals = dice.choice(ARRIVALS)
    cluster = min(dice.randint(2, 5), max(1, int(5 / burst))) if arrivals == "clustered" else 1
    between = (cluster * burst + 2 * (memory + training - card) / BUS) / load
    # two bursts without a rest between are one; a rest has to be a part of the time
    return {"memory": memory, "gpu": kernel, "cpu": gap, "kernels": kernels, "between": between, "arrivals": arrivals, "cluster": cluster,
            "burst": burst * cluster, "regular": arrivals == "regular"}


def make_mix(seed):
    dice = random.Random(seed)
    card = dice.choice((16, 24, 40, 80)) * 1e9
    training = {"memory": card * dice.uniform(0.5, 0.95), "gpu": log_uniform(dice, 0.005, 0.5), "cpu": log_uniform(dice, 1e-5, 0.01)}
    if dice.random() < 0.5:
        training["pause"] = log_uniform(dice, 1, 60)
        training["every"] = max(1, round(log_uniform(dice, 20, 300) / (training["gpu"] + training["cpu"])))
    count = dice.choice((1, 1, 2, 2, 3, 4, 5))
    whole = dice.uniform(0.05, 0.4)
    parts = [dice.random() + 0.2 for _ in range(count)]
    servers = [make_server(dice, card, training["memory"], whole * part / sum(parts)) for part in parts]
    users = dice.random() < 0.5
    for i, each in enumerate([training] + servers):
        each["user"], each["start"] = i if users else 0, 0
    return {"seed": seed, "card": card, "trainings": [training], "servers": servers, "load": whole}


def make_wild_training(dice, card):
    training = {"memory": card * dice.uniform(0.3, 0.95), "gpu": log_uniform(dice, 0.001, 0.5), "cpu": log_uniform(dice, 1e-5, 0.05)}
    if dice.random() < 0.6:
        training["pause"] = log_uniform(dice, 0.3, 60)
        training["every"] = max(1, round(log_uniform(dice, 15, 300) / (training["gpu"] + training["cpu"])))
    return training


def make_wild_server(dice, card, training, load):
    """As make_server, but of any size; or a notebook."""
    if dice.random() < 0.25:
        memory, burst, kernels = dice.uniform(0.02, 0.9) * card, log_uniform(dice, 0.05, 5), dice.choice((1, 10, 100))
        return {"memory": memory, "gpu": burst / kernels, "cpu": burst / kernels * dice.uniform(0.01, 1), "kernels": kernels, "between": dice.uniform(20, 40),
                "arrivals": "notebook", "cluster": 1, "burst": burst, "regular": dice.random() < 0.3, "spread": "exp"}
    server = make_server(dice, card, training, load)
    server["spread"] = dice.choice(("", "", "exp", "turn"))
    return server


def make_wild(seed):
    dice = random.Random(seed)
    card = dice.choice((16, 24, 40, 80)) * 1e9
    trainings = [make_wild_training(dice, card) for _ in range(dice.choice((1, 1, 1, 2, 3)))]
    count = dice.choice((1, 1, 2, 2, 3, 4, 5))
    whole = dice.uniform(0.03, 0.4)
    parts = [dice.random() + 0.2 for _ in range(count)]
    servers = [make_wild_server(dice, card, trainings[0]["memory"], whole * part / sum(parts)) for part in parts]
    short = 1.02 * card - sum(each["memory"] for each in trainings + servers)
    trainings[0]["memory"] = min(0.95 * card, trainings[0]["memory"] + max(0.0, short))  # they take turns
    users = dice.choice((1, 2, 9))
    for i, each in enumerate(trainings + servers):
        each["user"], each["start"] = i % users, dice.choice((0.0, 0.0, dice.uniform(0, 200)))
    return {"seed": seed, "card": card, "trainings": trainings, "servers": servers, "load": whole}


def spread_of(server, seconds):
    """The GPU time of a kernel, whose mean is so many seconds."""
    if server.get("spread") == "exp" and server["kernels"] == 1:
        return f"exp {seconds * 1e6:.0f}us"
    if server.get("spread") in ("exp", "turn"):  # the whole request is longer or shorter
        return "turn " + " ".join(f"{seconds * part * 1e6:.1f}us" for part in (0.3, 1.2, 0.6, 2.2, 0.7, 1.0))
    return f"{seconds * 1e6:.0f}us"


def scenario(mix, minutes, first):
    """first: the servers always go first."""
    text = (f"[run]\nfor = {minutes}min\nwarmup = {minutes / 6:.2f}min\nseed = {mix['seed'] % 2 ** 32}\n[card]\nmemory = {mix['card'] / 1e6:.0f}MB\n"
            f"[scheduler]\npolicy = {'priority' if first else 'fair'}\n")
    for i, training in enumerate(mix["trainings"]):
        text += (f"[program train{i}]\nmemory = {training['memory'] / 1e6:.0f}MB\ngpu = {training['gpu'] * 1e6:.0f}us\n"
                 f"cpu = {training['cpu'] * 1e6:.0f}us\nstop = uniform 0ms 20ms\nuser = {training['user']}\nstart = {training['start']:.1f}s\n")
        if "pause" in training:
            text += f"pause_every = {training['every']}\npause = exp {training['pause']:.3f}s\n"
    for i, server in enumerate(mix["servers"]):
        text += (f"[program serve{i}]\nmemory = {server['memory'] / 1e6:.0f}MB\ngpu = {spread_of(server, server['gpu'])}\ncpu = {server['cpu'] * 1e6:.0f}us\n"
                 f"kernels = {server['kernels']}\nrequest = {'' if server['regular'] else 'exp '}{server['between']:.4f}s\n"
                 f"cluster = {server['cluster']}\nstop = uniform 0ms 5ms\nuser = {server['user']}\nstart = {server['start']:.1f}s\n"
                 f"priority = {1 if first else 0}\n")
    return text


def simulate(simulator, text, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write(text)
        file.flush()
        result = subprocess.run([simulator, "--json", *options, file.name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode not in (0, 1) or result.stderr:
        raise RuntimeError(f"{simulator}: status {result.returncode}: {result.stderr}\n{text}")
    return json.loads(result.stdout)


def fair_share(mix, program):
    """Of the device: an equal part of that of its user."""
    users = [each["user"] for each in mix["trainings"] + mix["servers"]]
    return 1 / len(set(users)) / users.count(program["user"])


def look_at(run, mix=None):
    """mix: of random programs; without it all are of one user."""
    trains = [each for each in run["programs"] if each["program"].startswith("train")]
    servers = [each for each in run["programs"] if not each["program"].startswith("train")]
    # their time on the CPU between kernels is part of a turn
    fair = [fair_share(mix, each) for each in mix["trainings"]] if mix else [1 / len(run["programs"])] * len(trains)
    _, kept, wanted, share = min((each["held_s"] / max(each["held_s"] + each["wait_s"], 1e-9) / part, each["held_s"] / max(each["held_s"] + each["wait_s"], 1e-9),
                                  each["held_s"] + each["wait_s"], part) for each, part in zip(trains, fair))
    return {"training": sum(each["gpu_s"] for each in trains) / run["totals"]["seconds"], "kept": kept, "wanted_s": wanted, "fair": share,
            "yielded_s": sum(each["yielded_s"] for each in trains),
            "waited_s": sum(each["wait_s"] for each in trains),
            "servers": [{key: each[key] for key in ("latency_p50_ms", "latency_p99_ms", "ideal_p50_ms", "ideal_p99_ms", "interactive", "requests", "turns")}
                        for each in servers]}


def faults_of(row):
    """The promises that are not kept, in words."""
    default, first, faults = row["default"], row["first"], []
    floor = FLOOR * default["fair"] * max(0.0, 1 - SPARE / max(default["wanted_s"], 1))
    if default["kept"] < 0.97 * floor:
        faults.append(f"training keeps {default['kept']:.3f} of its time, less than the floor of {floor:.3f}")
    # what always going first would leave to training is more than it is due: so nothing is in the way of it
    room = first["kept"] - 1.1 * first["fair"]
    for i, (each, best) in enumerate(zip(default["servers"], first["servers"])):
        if each["requests"] < 20:
            continue
        for part, most in (("p50", 1.5), ("p99", 4)):
            # which program ran last, and so which bytes are missing, is chance where there are several others
            has, may = each[f"latency_{part}_ms"], most * max(best[f"latency_{part}_ms"], best[f"ideal_{part}_ms"], each[f"ideal_{part}_ms"]) + 20
            if room > 0 and has > may and (part == "p50" or each["requests"] >= 200):
                faults.append(f"server {i}: {part} {has:.0f} ms, of {best[f'latency_{part}_ms']:.0f} ms when it always goes first")
    return faults


def run_mix(simulator, seed, minutes, make):
    mix = make(seed)
    row = {"seed": seed, "load": mix["load"], "count": len(mix["servers"]), "bursts_s": [round(each["burst"], 3) for each in mix["servers"]],
           "arrivals": [each["arrivals"] for each in mix["servers"]], "pauses": any("pause" in each for each in mix["trainings"]),
           "default": look_at(simulate(simulator, scenario(mix, minutes, False)), mix),
           "first": look_at(simulate(simulator, scenario(mix, minutes, True)), mix)}
    row["faults"] = faults_of(row)
    return row


def ratios(rows, part):
    return sorted(each[f"latency_{part}_ms"] / max(best[f"latency_{part}_ms"], best[f"ideal_{part}_ms"])
                  for row in rows for each, best in zip(row["default"]["servers"], row["first"]["servers"])
                  if each["requests"] >= 20 and row["first"]["kept"] > 1.1 * row["first"]["fair"])


# --- a sweep of rates ---

SERVING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenarios", "serving-4s.ini")
STEP = 0.025  # requests a second, of which the bounds are


def run_rate(simulator, rate, minutes):
    with open(SERVING, encoding="utf-8") as file:
        text = file.read().split("[expect]")[0]
    run = simulate(simulator, text, "--set", f"program serve.request=exp {1 / rate:.6f}s", "--set", f"run.for={minutes}min", "--set",
                   f"run.warmup={minutes / 12}min")
    seen = look_at(run)
    return {"rate": rate, "training": seen["training"], "kept": seen["kept"], "interactive": seen["servers"][0]["interactive"],
            **{part: seen["servers"][0][f"latency_{part}_ms"] / 1e3 for part in ("p50", "p99")},
            **{"ideal_" + part: seen["servers"][0][f"ideal_{part}_ms"] / 1e3 for part in ("p50", "p99")}}


def cliffs_of(rows, steps):
    """Nowhere is p50 above 1.6 times the ideal, p99 above 5 times. No step of 0.025 requests a second makes p50 more than 1.3 times, or p99 more than 1.8 times as long, or takes more than 0.06 of the card from training, over what
    the ideal itself changes; steps: so many in one."""
    faults = []
    for row in rows:
        if row["kept"] < 0.97 * FLOOR / 2:
            faults.append(f"{row['rate']:.3f}/s: training keeps {row['kept']:.3f}, less than {FLOOR / 2}")
        for part, most in (("p50", 1.6), ("p99", 5)):
            if row[part] > most * row["ideal_" + part]:
                faults.append(f"{row['rate']:.3f}/s: {part} {row[part]:.2f} s, more than {most} times the ideal")
    for before, after in zip(rows, rows[1:]):
        for part, most in (("p50", 1.3), ("p99", 1.8)):
            change = after[part] / before[part] / max(1, after["ideal_" + part] / before["ideal_" + part])
            if change > most ** steps:
                faults.append(f"{before['rate']:.3f} to {after['rate']:.3f}/s: {part} from {before[part]:.2f} to {after[part]:.2f} s")
        if before["training"] - after["training"] > 0.06 * steps:
            faults.append(f"{before['rate']:.3f} to {after['rate']:.3f}/s: training from {before['training']:.3f} to {after['training']:.3f}")
    return faults


def print_sweep(rows):
    print(f"{'rate':>6} {'p50 s':>7} {'p99 s':>7} {'ideal p50':>9} {'p99':>6} {'training':>9} {'kept':>6} {'shown':>6}")
    for row in rows:
        print(f"{row['rate']:6.3f} {row['p50']:7.2f} {row['p99']:7.2f} {row['ideal_p50']:9.2f} {row['ideal_p99']:6.2f} {row['training']:9.3f} "
              f"{row['kept']:6.3f} {row['interactive']:6.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulator")
    parser.add_argument("--mixes", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--only", type=int, metavar="SEED")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--wild", action="store_true")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--step", type=float, default=STEP, metavar="RATE")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    make = make_wild if options.wild else make_mix
    if options.only is not None:
        print(scenario(make(options.only), options.minutes, False), end="")
        return 0
    faults, rows, sweep = 0, [], []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        if options.sweep:
            rates = [round(0.1 + options.step * i, 3) for i in range(round(0.5 / options.step) + 1)]
            sweep = list(pool.map(lambda rate: run_rate(options.simulator, rate, 2 * options.minutes), rates))
            print_sweep(sweep)
            for fault in cliffs_of(sweep, options.step / STEP):
                print("BROKEN", fault)
                faults += 1
        for row in pool.map(lambda seed: run_mix(options.simulator, seed, options.minutes, make), range(options.first, options.first + options.mixes)):
            rows.append(row)
            faults += len(row["faults"])
            if options.verbose or row["faults"]:
                print(f"seed {row['seed']}: load {row['load']:.2f}, bursts {row['bursts_s']} s {row['arrivals']}, training keeps {row['default']['kept']:.3f} "
                      f"({row['first']['kept']:.3f} where servers always go first)")
            for fault in row["faults"]:
                print("  BROKEN", fault)
    for part in ("p50", "p99"):
        values = ratios(rows, part)
        if values:
            print(f"{part} over that of always going first: median {values[len(values) // 2]:.2f}, 95 % {values[int(0.95 * (len(values) - 1))]:.2f}, "
                  f"worst {values[-1]:.2f}, of {len(values)} servers")
    if rows:
        print(f"{len(rows)} mixes; training keeps at least {min(row['default']['kept'] / row['default']['fair'] for row in rows):.2f} of its fair share")
    print(f"{faults} bounds broken")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"benchmark": "mixes", "first": options.first, "minutes": options.minutes, "mixes": rows, "sweep": sweep}, file, indent=1)
            file.write("\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
