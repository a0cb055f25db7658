#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs soak programs beside each other on a card that is too small for all of them.

test_soak.py --build DIR [--seeds N] [--first S] [--budget SECONDS] [--mode plain|faults|kills|storm|full] [--seconds N] [--jobs N]
  plain   three programs a seed; every one must end with 0 and memory must have moved in the course of the run
  faults  the driver's calls fail at random; a program may see errors, but no wrong byte, no crash, no hang
  kills   one of three is killed at a random moment, the daemon at another and started again; the others must not notice
  storm   kills on two cards: programs on both, groups, short bursts; several are killed, others come in their places
        and some are stopped for a while: nobody may notice
  full    memory that cannot be placed: programs without host memory by their own limits, with a limit of device memory near the card's
        size, and a process without gpushare that takes a part of the card: a program may see errors, but no wrong byte
In each mode status is asked all the time, and must show that no program waits for ever (bounded.py).
--jobs seeds run beside each other, each on a card of its own. Stops early when the budget is used up (it says how many
seeds it did) or one has failed. What 10000 seeds by hand take: HACKING.md.
"""
import concurrent.futures
import functools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bounded import Bounded  # noqa: E402  (beside this file)
from card import MIB, OPTIONS, PATIENCE, BuildTest, Card, Told, main  # noqa: E402  (beside this file)

# what the runtime itself calls; with the result codes that a driver may give
FAULTS = ["cuMemCreate:p0.02:2", "cuMemMap:p0.02:999", "cuMemSetAccess:p0.02:999", "cuMemUnmap:p0.02:999",
          "cuMemRelease:p0.02:999", "cuMemcpyDtoHAsync:p0.05:999", "cuMemcpyHtoDAsync:p0.02:999",
          "cuStreamSynchronize:p0.02:999", "cuMemHostRegister:p0.2:2", "cuMemAddressReserve:p0.02:2",
          "cuCtxSynchronize:p0.02:999", "cuEventCreate:p0.02:2", "cuEventRecord:p0.02:999",
          "cuCtxPushCurrent:p0.3:999", "cuStreamCreate:p0.1:2", "cuMemGetInfo:p0.1:999", "cuMemHostUnregister:p0.2:999",
          "cuEventQuery:p0.02:999", "cuStreamGetId:p0.02:999", "cuStreamGetCtx:p0.02:999", "cuDeviceGetMemPool:p0.02:999",
          "cuStreamWaitEvent:p0.05:999", "cuMemPoolGetAttribute:p0.05:999", "cuDeviceGetGraphMemAttribute:p0.1:999",
          "cuDeviceGraphMemTrim:p0.2:999", "cuEventDestroy:p0.1:999", "cuLaunchKernel:p0.05:701",
          "cuModuleLoadData:p0.5:209", "cuMemHostAlloc:p0.5:2", "cuMemExportToShareableHandle:p0.2:999",
          "cuMemImportFromShareableHandle:p0.2:999"]


class Wrong(Exception):
    """What a seed has found; the text is all there is to say."""

    def __init__(self, more, text):
        said = [f"environment: {more}"]
        for name in ("SIMCUDA_LOG", "GPUSHARE_LOG"):
            if os.path.exists(more[name]):
                with open(more[name], encoding="utf-8") as file:
                    lines = file.readlines()
                    said.append("".join(lines[:25] + ["...\n"] + lines[-15:] if len(lines) > 40 else lines))
        super().__init__("\n".join(said + [f"FAILED: {text}"]))


def finish(child, more, name, timeout, bounded):
    end = time.monotonic() + timeout
    while True:
        try:
            out, err = child.communicate(timeout=1)
        except subprocess.TimeoutExpired as late:
            if bounded.wrong is None and time.monotonic() < end:
                child.send_signal(signal.SIGCONT)  # it may have stopped once more: resume() in kit.py
                continue
            child.kill()
            out, err = child.communicate()
            raise Wrong(more, f"{name}: {bounded.wrong or 'it hangs'}; stderr: {err[-2000:]}") from late
        return child.returncode, out.strip(), err.strip()


def moved(card, number):
    """Bytes that came back, those of them into memory that another program had before, and bytes that this memory held already."""
    try:
        with open(os.path.join(card.folder, f"stats{number}"), encoding="utf-8") as file:
            stats = json.load(file)
    except (OSError, ValueError):
        return 0, 0, 0
    return stats["moved_in"], stats["taken_over"], stats["saved_equal"]


# storm: what each sees, its group, the pause between its bursts in ms; the last two come in the places of killed ones
STORM = [("0,1", "pair", 0), ("1", "pair", 0), ("0,1", "", 0), ("1", "", 40), ("0", "", 0), ("0,1", "bursts", 25), ("1", "pair", 0),
         ("0,1", "", 30)]
STORM_KILLED = 2


def start_one(card, args, rng, seed, number):
    more = {"GPUSHARE_STATS": os.path.join(card.folder, f"stats{number}"),
            "GPUSHARE_LOG": os.path.join(card.folder, f"log{number}"),
            "SIMCUDA_LOG": os.path.join(card.folder, f"driver{number}")}
    if rng.random() < 0.25:  # no hashes: everything is copied
        more["SIMCUDA_BUILTIN"] = "0"
    if rng.random() < 0.15:
        more["GPUSHARE_MEMORY"] = "managed"
    threads, memory, options = rng.choice([1, 1, 2, 4]), "36MiB", []
    if rng.random() < 0.25 and "GPUSHARE_MEMORY" not in more:  # larger than the card
        more["GPUSHARE_OVERCOMMIT"], memory = "64MiB", "96MiB"
        more["GPUSHARE_OVERCOMMIT_GRAIN"] = rng.choice(["2MiB", "8MiB"])
    if args.mode == "storm":
        visible, group, pause = STORM[number]
        more.update(CUDA_VISIBLE_DEVICES=visible, GPUSHARE_GROUP=group)
        threads, memory = 2, rng.choice(["16MiB", "28MiB", "36MiB"])
        options = ["--devices", str(visible.count(",") + 1), "--pause", str(pause)]
    elif args.mode == "full":
        memory = rng.choice(["36MiB", "48MiB", "56MiB"])
    command = [os.path.join(args.build, "tests", "runtime", "soak"), "--seed", str(seed * 10 + number),
               "--seconds", str(args.seconds), "--threads", str(threads), "--memory", memory] + options
    prepare = None
    if args.mode == "full":
        command.append("--faulty")
        limit = rng.choice([0, 480 * MIB, 480 * MIB, 720 * MIB])  # the library leaves 512 MiB alone
        if limit:
            prepare = functools.partial(resource.setrlimit, resource.RLIMIT_DATA, (limit, limit))
        if rng.random() < 0.2:
            more["GPUSHARE_DEVICE_LIMIT"] = rng.choice(["60MiB", "70MiB"])
    if seed % 2 == 0:  # all programs of the card write the same bytes, most of the time
        command.append("--alike")
    if args.mode == "faults":
        more["SIMCUDA_FAIL"] = ",".join(f"{rule}:{rng.randrange(1, 1 << 30)}"
                                        for rule in rng.sample(FAULTS, rng.choice([1, 3, 6])))
        command.append("--faulty")
    return card.start(command, prepare=prepare, **more), more


def start_all(card, args, rng, seed):
    count = len(STORM) - STORM_KILLED if args.mode == "storm" else 3
    return [start_one(card, args, rng, seed, number) for number in range(count)]


def disturb(card, args, rng, children):
    """Kills one program and the daemon at random moments, and stops another for a while. Returns the killed one."""
    victim, stopped = rng.sample([child for child, _ in children], 2)
    time.sleep(rng.random() * args.seconds / 2)
    victim.kill()
    stopped.send_signal(signal.SIGSTOP)
    time.sleep(rng.random() * args.seconds / 4)
    card.stop_daemon(signal.SIGKILL)
    stopped.send_signal(signal.SIGCONT)
    time.sleep(rng.random() / 4)
    card.start_daemon()
    return victim


def wait_until_known(card, children):
    """A new daemon knows all that still run: before, it takes their memory for somebody else's, and refuses it to newcomers."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        status = card.status()
        known = {p["pid"] for d in (status or {}).get("devices", []) for p in d["programs"]}
        if all(child.poll() is not None or child.pid in known for child, _ in children):
            return
        time.sleep(0.05)


def stop_for_a_while(card, rng, running):
    """As Ctrl-Z does, or `docker pause` where there is a freezer: anywhere, and for longer than the daemon waits, or not."""
    stopped = rng.sample(running, min(len(running), rng.choice([1, 2])))
    freezer = make_freezer(card) if rng.random() < 0.5 else None
    for child in stopped:
        if freezer is None:
            child.send_signal(signal.SIGSTOP)
        else:
            write(os.path.join(freezer, "cgroup.procs"), child.pid)
    freeze(freezer, True)
    time.sleep(rng.random() * 1.5)
    freeze(freezer, False)
    for child in stopped:
        child.send_signal(signal.SIGCONT)


def write(path, value):
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(value))
    except ProcessLookupError:
        pass  # it has just ended


def freeze(folder, frozen):
    if folder is None:
        return
    old = os.path.join(folder, "freezer.state")  # of version 1
    if os.path.exists(old):
        write(old, "FROZEN" if frozen else "THAWED")
    else:
        write(os.path.join(folder, "cgroup.freeze"), int(frozen))


def make_freezer(card):
    """A control group that can be frozen; None: this user may make none here. It is removed with the card."""
    for root in ("/sys/fs/cgroup/freezer", "/sys/fs/cgroup"):
        folder = os.path.join(root, os.path.basename(card.folder))
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            continue
        if any(os.path.exists(os.path.join(folder, name)) for name in ("freezer.state", "cgroup.freeze")):
            card.freezers.add(folder)
            return folder
        os.rmdir(folder)
    return None


def storm(card, args, rng, children, seed):
    """Kills some and the daemon at random moments; others come. Returns the killed ones."""
    victims = []
    for child, _ in rng.sample(children, STORM_KILLED):
        time.sleep(rng.random() * args.seconds / 2)
        stop_for_a_while(card, rng, [each for each, _ in children if each.poll() is None])
        child.kill()
        victims.append(child)
        if rng.random() < 0.5:
            card.stop_daemon(signal.SIGKILL)
            time.sleep(rng.random() / 4)
            card.start_daemon()
            wait_until_known(card, children)
        children.append(start_one(card, args, rng, seed, len(children)))
    return victims


def fill(card, args, rng):
    """A process that the daemon does not know takes a part of the card, and gives it back."""
    foreign = Told(card, GPUSHARE_DISABLE="1")
    for _ in range(2):
        time.sleep(rng.random() * args.seconds / 2)
        got = foreign.say(f"alloc {rng.choice([8, 24, 48])}") == "ok"
        time.sleep(rng.random() * args.seconds)
        if got:
            foreign.say("free 0")
    foreign.end()


def one_seed(args, seed):
    rng = random.Random(seed)
    # three times 36 MiB do not fit, one does, with contexts (4 MiB each), reserve and empty slabs
    options = ["--hand-over", "no"] if seed % 5 == 0 else []
    # contexts of those that come later must fit into the reserve of so small a card, 2 MiB
    more = {"SIMCUDA_DEVICES": "2", "SIMCUDA_CONTEXT_MEMORY": "512KiB"} if args.mode == "storm" else {}
    with Card(args.build, memory=rng.choice(["72MiB", "80MiB", "96MiB"]), options=options, **more) as card:
        with Bounded(card) as bounded:
            children = start_all(card, args, rng, seed)
            victims = []
            if args.mode == "kills":
                victims = [disturb(card, args, rng, children)]
            elif args.mode == "storm":
                victims = storm(card, args, rng, children, seed)
            elif args.mode == "full":
                fill(card, args, rng)
            for number, (child, more) in enumerate(children):
                code, out, err = finish(child, more, f"program {number} of seed {seed}", args.seconds + args.patience, bounded)
                if (child in victims and code == -9) or (args.mode == "full" and code == 1 and "fails for ever" in err):
                    continue  # a program that is told so for ever may give up
                if code != 0 or not out.startswith("ok ") or "running without sharing" in err:
                    raise Wrong(more, f"program {number} of seed {seed}: exit {code}: {out} {err}")
        args.waited = max(args.waited, bounded.longest)
        return [sum(figures) for figures in zip(*(moved(card, number) for number in range(len(children))))]


class Soak(BuildTest):
    def test_seeds(self):
        args = OPTIONS
        self.assertIn(args.mode, ("plain", "faults", "kills", "storm", "full"))
        args.waited = 0.0
        start, total, taken, same, done = time.monotonic(), 0, 0, 0, 0
        seed = args.first
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            running = set()
            while True:
                # on a busy machine the programs may not get to fill the card: each seed is longer, until memory has moved
                while len(running) < args.jobs and seed < args.first + args.seeds and (total == 0 or time.monotonic() - start <= args.budget):
                    if done >= args.jobs and total == 0:
                        args.seconds *= 2
                    running.add(pool.submit(one_seed, args, seed))
                    seed += 1
                if not running:
                    break
                ended, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for end in ended:
                    try:
                        back, over, equal = end.result()
                        total += back + equal
                        taken += over
                        same += equal
                    except Wrong as wrong:
                        self.fail(str(wrong))
                    done += 1
        print(f"{done} seeds, {total >> 20} MiB brought back, {taken >> 20} MiB handed over with {same >> 20} MiB that were needed, {args.waited:.0f} s the longest time with nothing running, {time.monotonic() - start:.0f} s")
        self.assertNotEqual(total, 0, "no memory has moved: the test has tested nothing")


if __name__ == "__main__":
    # seconds: how long a program works; jobs: seeds at a time; patience: seconds that a program may take beyond its own
    main(seeds=12, first=1, seconds=1.0, jobs=1, patience=300.0, budget=1e9, mode="plain")
