# SPDX-License-Identifier: Apache-2.0
"""Programs that start the daemon on demand while an earlier one is leaving. Every program must find a daemon, before it gives up
(which it would say) and without a word on stderr. test_starts.py --build DIR [--seconds S]"""
import argparse
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import PATIENCE, Card, daemon_script  # noqa: E402

AT_ONCE = 3
failures = 0


def check_end(child, began, title):
    global failures
    out, err = child.communicate(timeout=PATIENCE)
    if child.returncode != 0 or err != "":
        failures += 1
        print(f"FAILED: {title}: exit {child.returncode} after {time.monotonic() - began:.1f} s: {out}{err}", flush=True)


def storm(build, idle_exit, kill, seconds):
    """Starts programs all the time; kill: now and then ends the daemon by force. Not more often, and not before all that were there
    at the last time have ended: one that has just started waits 300 ms for others, so a program that many daemons die under may
    hear from none of them before it gives up."""
    title = f"--idle-exit {idle_exit}{' with kills' if kill else ''}"
    dice = random.Random(7)
    count = 0
    with Card(build, memory="256MiB", daemon=False) as card:
        command = [os.path.join(build, "tests", "runtime", "soak"), "--seconds", "0.05", "--threads", "1", "--memory", "10MiB",
                   "--seed", "1"]
        script = daemon_script(card, idle_exit)
        until = time.monotonic() + seconds
        kill_at = time.monotonic() + dice.uniform(0.1, 1)
        live, killed_under = [], []
        while live or time.monotonic() < until:
            if len(live) < AT_ONCE and time.monotonic() < until:
                live.append((card.start(command, GPUSHARE_LOCKD=script), time.monotonic()))
                time.sleep(dice.choice([0, 0, 0.02, 0.1, 0.3]))
            if kill and time.monotonic() > kill_at and not any(pair in live for pair in killed_under):
                killed_under = list(live)
                kill_at = time.monotonic() + dice.uniform(1, 2)
                for pid in card.daemon_pids():
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            for pair in [pair for pair in live if pair[0].poll() is not None]:
                live.remove(pair)
                check_end(*pair, title)
                count += 1
            time.sleep(0.005)
    print(f"{title}: {count} programs", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--seconds", type=float, default=5)
    words = parser.parse_args()
    for idle_exit, kill in ((0, False), (1, False), (0, True)):
        storm(words.build, idle_exit, kill, words.seconds)
    sys.exit(1 if failures else 0)


main()
