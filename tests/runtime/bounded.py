# SPDX-License-Identifier: Apache-2.0
"""The rule about memory that cannot be placed, seen from outside: a program gets an error, host memory at its addresses, or waits for a
bounded time, which status explains. None says for ever that it runs, or waits, while nothing happens."""
import threading
import time

LIMIT = 60    # seconds: the longest wait for memory of a program that has its turn, or that never fits (GS_SHORT_LIMIT_NS)
SPARE = 40    # seconds: what a busy machine and the daemon's own patience add
TOLD = 20     # seconds in which a state may be an old one
RESTS = {"idle", "paused", "stopped", "traced", "frozen", "no device", ""}  # it wants nothing, or somebody stopped it


class Bounded:
    """with Bounded(card) as bounded: ...; bounded.wrong says what broke the rule (None: nothing), bounded.longest is the longest wait in s."""

    def __init__(self, card):
        self.card, self.over, self.wrong, self.longest = card, threading.Event(), None, 0.0
        self.seen = {}  # (device, pid): (what it had done then, since)
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.over.set()
        self.thread.join()

    def watch(self):
        while self.wrong is None and not self.over.wait(0.2):
            try:
                status = self.card.status()
            except OSError:
                status = None
            if not status or "devices" not in status:
                self.seen.clear()  # without a daemon nobody explains anything
                continue
            now, before, self.seen = time.monotonic(), self.seen, {}
            for device in status["devices"]:
                self.look(device, before, now)

    def look(self, device, before, now):
        rests = []  # how long each program that wants something has not got ahead
        for program in device["programs"]:
            key = (device["uuid"], program["pid"])
            done = (program["calls"], program["demand"], program["over"])
            was, since = before.get(key, (None, now))
            if was != done or program["state"] in RESTS:
                since = now
            self.seen[key] = (done, since)
            if program["state"] not in RESTS:
                rests.append(now - since)
                self.judge(device, program, now - since)
        if rests:
            self.longest = max(self.longest, min(rests))
            if min(rests) > LIMIT + SPARE:
                self.fail(device, f"nothing has run for {min(rests):.0f} s")

    def judge(self, device, program, rests):
        lacks = program["resident"] < program["demand"]
        if rests > TOLD and lacks and program["state"] == "runs":
            self.fail(device, f"pid {program['pid']} lacks memory for {rests:.0f} s, and status says that it runs")
        if rests > TOLD and program["state"] in ("waits", "does not fit") and not program["why"]:
            self.fail(device, f"pid {program['pid']} waits for {rests:.0f} s, and status does not say why")
        if rests > (LIMIT + SPARE) * (1 + len(device["programs"])):  # its own turns count, beside those of the others
            self.fail(device, f"pid {program['pid']} has got no further for {rests:.0f} s")

    def fail(self, device, text):
        programs = [{name: program[name] for name in ("pid", "state", "why", "demand", "resident", "budget", "pinned", "stays", "over", "calls")}
                    for program in device["programs"]]
        self.wrong = self.wrong or f"{text}; capacity {device['capacity']}, programs {programs}"
