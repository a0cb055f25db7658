#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that goes from one program to the other as it is (hand-over, the default), with every byte checked. test_handed.py --build DIR"""
import json
import os
import resource
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import MIB, PATIENCE, BuildTest, Card, Told, check, main, wait_for  # noqa: E402  (beside this file)


def held(card, pid):
    """Descriptors of the card's memory that gpushare has in a process; the simulated driver's own have lower numbers."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append((int(fd), os.readlink(f"/proc/{pid}/fd/{fd}")))
        except OSError:
            pass  # closed meanwhile
    return [link for fd, link in links if fd >= 64 and link.startswith(card.folder)]


class Two:
    """Two programs of 104 MiB each on a card of 144."""

    def __init__(self, card):
        self.stats = [os.path.join(card.folder, name) for name in ("a", "b")]
        self.both = [Told(card, GPUSHARE_STATS=name) for name in self.stats]
        for told in self.both:
            check(all(told.say(command) == "ok" for command in ["alloc 20"] * 5 + ["zero 4"]), "six pieces")

    def turns(self, count, text):
        for _ in range(count):
            for told in self.both:
                check(told.say("change 0 9") == "ok" and told.say("check") == "ok", f"{text}: every byte")

    def end(self):
        """Bytes given, taken over and brought in."""
        for told in self.both:
            told.end()
        figures = []
        for name in self.stats:
            with open(name, encoding="utf-8") as file:
                figures.append(json.load(file))
        return [sum(one[what] for one in figures) for what in ("given", "taken_over", "moved_in")]


def to_and_fro(build):
    """What does not fit the other's needs is released; nothing is left open."""
    with Card(build, memory="144MiB", options=["--idle", "5"], **Told.SMALL_CONTEXTS) as card:
        two = Two(card)
        two.turns(4, "to and fro")
        last = two.both[1]
        end = time.monotonic() + PATIENCE
        while not held(card, last.child.pid) and time.monotonic() < end:  # on a busy machine the other may have taken too long to leave
            two.turns(1, "to and fro")
        check(0 < len(held(card, last.child.pid)) <= 6, f"{len(held(card, last.child.pid))} descriptors of memory in use")
        check(last.say("child") == "ok", "a child")
        with open(f"/proc/{last.child.pid}/task/{last.child.pid}/children", encoding="ascii") as file:
            child = int(file.read())
        check(wait_for(lambda: held(card, child) == []), "a child has none")  # it may not have run yet
        check(all(last.say(f"free {i}") == "ok" for i in range(6)), "free")
        last.until(lambda entry: entry["resident"] == entry["demand"])
        check(held(card, last.child.pid) == [], "no descriptor of freed memory")
        return handed_over(two, 8)


def handed_over(two, part):
    """Whether at least one byte of so many that came in was another program's before."""
    given, taken, moved = two.end()
    print(f"{moved / MIB:g} MiB came in, {taken / MIB:g} of {given / MIB:g} MiB were handed over", flush=True)
    check(given >= taken, "no more is taken over than was given")
    return taken >= moved / part


def reloaded(build):
    """The setting goes off and on again while programs run."""
    with Card(build, memory="144MiB", daemon=False, **Told.SMALL_CONTEXTS) as card:
        config = os.path.join(card.folder, "lockd.conf")

        def setting(word):
            with open(config, "w", encoding="ascii") as file:
                file.write(f"[scheduling]\nidle = 5\nhand-over = {word}\n")

        setting("yes")
        card.options = ["--config", config]
        card.start_daemon()
        two = Two(card)
        for word in ("no", "yes"):
            two.turns(1, "before a reload")
            setting(word)
            card.daemon.send_signal(signal.SIGHUP)
            two.turns(1, f"hand-over = {word}")
        setting("no")
        card.daemon.send_signal(signal.SIGHUP)
        two.turns(1, "hand-over = no")
        return handed_over(two, 20)


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return sum(int(ticks) for ticks in file.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")


class Handed(BuildTest):
    def test_numbers_taken(self):
        """A program closes numbers that are not its own, the daemon's connection among them, and opens files and sockets there: they
        stay as they are, and the programs share as before."""
        with Card(self.build, memory="144MiB", options=["--idle", "5"], **Told.SMALL_CONTEXTS) as card:
            two = Two(card)
            for _ in range(2):
                two.turns(1, "before")
                check(two.both[1].say("steal") == "ok", "every number is its own now")
                two.turns(1, "after")
                check(two.both[1].say("kept") == "ok", "and still is")
            before, since = processor_seconds(two.both[1].child.pid), time.monotonic()
            time.sleep(1)
            check(processor_seconds(two.both[1].child.pid) - before < 0.5 * (time.monotonic() - since), "a program that does nothing takes no processor time")
            check(two.both[1].entry() is not None, "the daemon knows it")
            two.end()

    def test_few_numbers(self):
        """With no descriptors to spare all goes on as without the setting."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with Card(self.build, memory="144MiB", options=["--idle", "5"], **Told.SMALL_CONTEXTS) as card:
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, most[1]))
            two = Two(card)
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
            two.turns(1, "64 descriptors")
            for told in two.both:
                check(held(card, told.child.pid) == [], "none of them is ours")
            check(two.end()[1] == 0, "nothing was handed over")

    def test_to_and_fro(self):
        self.assertTrue(any(to_and_fro(self.build) for _ in range(5)), "enough was handed over")  # on a busy machine much comes too late

    def test_reloaded(self):
        self.assertTrue(any(reloaded(self.build) for _ in range(5)), "enough was handed over")


if __name__ == "__main__":
    main()
