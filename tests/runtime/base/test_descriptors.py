# SPDX-License-Identifier: Apache-2.0
"""The first program may have few descriptors, and so may the daemon that it starts; thirty others come that may have more. None of
them may run without sharing. test_descriptors.py --build DIR"""
import argparse
import ctypes
import os
import resource
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import Card, Told, check, failures  # noqa: E402  (in the folder above)

LOW, OTHERS = 24, 30
PR_CAPBSET_DROP, CAP_SYS_RESOURCE = 24, 24
LIBC = ctypes.CDLL(None, use_errno=True)


def few_descriptors():
    LIBC.prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE)  # root could have more at once
    resource.setrlimit(resource.RLIMIT_NOFILE, (LOW, LOW))


def most_descriptors(pid):
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("Max open files")).split()[4])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    build = parser.parse_args().build
    with Card(build, memory="256MiB", daemon=False, **Told.SMALL_CONTEXTS) as card:
        programs = [Told(card, prepare=few_descriptors)]
        check(programs[0].say("alloc 1") == "ok", "the first program")
        check([most_descriptors(pid) for pid in card.daemon_pids()] == [LOW], f"its daemon may have {LOW} descriptors")
        for _ in range(OTHERS):
            programs.append(Told(card))
        check([told.say("alloc 1") for told in programs[1:]] == ["ok"] * OTHERS, "the others")
        for told in programs:
            told.until(lambda entry: entry["resident"] != 0)
        together = card.status()["daemon"]["programs"]
        check(together == 1 + OTHERS, f"{together} programs share the card")
        most = [most_descriptors(pid) for pid in card.daemon_pids()]
        check(len(most) == 1 and most[0] > LOW, f"their daemon may have {most} descriptors")
        for told in programs:
            check(told.say("check") == "ok", "every byte")
            told.end()  # without a word
    sys.exit(1 if failures else 0)


main()
