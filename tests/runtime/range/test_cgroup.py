# SPDX-License-Identifier: Apache-2.0
"""Programs in a real memory cgroup, of either version: what the library and the daemon make of its limit. Skipped (77) where no
group can be made. test_cgroup.py --build DIR [--disk FOLDER]"""
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import MIB, OPTIONS, PATIENCE, BuildTest, Card, Told, check, main  # noqa: E402  (in the folder above)

LARGE = 4096 * MIB


class Group:
    """A group below this process's own: with Group(LARGE) as group: group.take(told). With a name, processes go into a group of
    that name inside of it, which has no limit of its own, as a container's group in its pod's."""

    def __init__(self, limit, inner=""):
        self.first, self.above = find_own()
        self.folder = os.path.join(self.above, f"gs-test-{os.getpid()}")
        self.inner = os.path.join(self.folder, inner)
        os.makedirs(self.inner)
        try:
            self.set_limit(limit)
        except OSError:
            os.removedirs(self.inner)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        with open(os.path.join(self.inner, "cgroup.procs"), encoding="ascii") as file:
            for pid in file.read().split():
                write(os.path.join(self.above, "cgroup.procs"), pid)
        for folder in dict.fromkeys((self.inner.rstrip("/"), self.folder)):
            until = time.monotonic() + 20
            while os.path.exists(folder):
                try:
                    os.rmdir(folder)
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.05)

    def write(self, name, value):
        write(os.path.join(self.folder, name), value)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="ascii") as file:
            return file.read()

    def set_limit(self, limit):
        self.write("memory.limit_in_bytes" if self.first else "memory.max", limit)

    def usage(self):
        return int(self.read("memory.usage_in_bytes" if self.first else "memory.current"))

    def take(self, told):
        write(os.path.join(self.inner, "cgroup.procs"), told.child.pid)

    def hits(self):
        """How often its memory reached the limit."""
        if self.first:
            return int(self.read("memory.failcnt"))
        return sum(int(line.split()[1]) for line in self.read("memory.events").splitlines() if line.split()[0] in ("max", "oom"))

    def kills(self):
        """How often the kernel has ended a process for it. Version 1 says so in memory.oom_control."""
        lines = self.read("memory.oom_control" if self.first else "memory.events").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.split()[0] == "oom_kill")


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{value}\n")


def find_own():
    """Whether memory is with version 1, and the folder of our own group."""
    own = {}
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            own["memory" if "memory" in controllers.split(",") else controllers] = path
    first = "memory" in own
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields, kind = (part.split() for part in line.split(" - ", 1))
            if kind[0] == ("cgroup" if first else "cgroup2") and (not first or "memory" in kind[2].split(",")) and fields[3] == "/":
                return first, fields[4] + own["memory" if first else ""].rstrip("/")
    raise OSError("no memory hierarchy is mounted")


def in_memory(folder):
    """Whether the file system of the folder is a tmpfs."""
    best = ("", "")
    with open("/proc/self/mounts", encoding="utf-8") as file:
        for line in file:
            _, place, kind = line.split()[:3]
            if (folder + "/").startswith(place.rstrip("/") + "/") and len(place) >= len(best[0]):
                best = (place, kind)
    return best[1] in ("tmpfs", "overlay")  # an overlay may end in one


def host_total(card, true, timeout=PATIENCE):
    """What the daemon lets programs have altogether, when true(total) or after a while."""
    end = time.monotonic() + timeout
    while True:
        total = card.status()["daemon"]["host_total"]
        if true(total) or time.monotonic() > end:
            return total
        time.sleep(0.05)


class Cgroup(BuildTest):
    def test_small(self):
        """No room for a copy: the memory stays on the card, and the limit is never reached."""
        with Card(self.build, memory="96MiB", **Told.SMALL_CONTEXTS) as card, Group(LARGE) as group:
            told, other = Told(card), Told(card)
            group.take(told)
            check(told.say("alloc 80") == "ok", "80 MiB on the card")
            told.until(lambda entry: entry["resident"] == entry["demand"] != 0)
            group.set_limit(group.usage() + 40 * MIB)
            hits = group.hits()
            other.ask_for_all()
            entry = told.until(lambda entry: entry["pinned"] > 2 * MIB, 300)
            check(entry["demand"] + entry["pinned"] == 82 * MIB and entry["pinned"] > 2 * MIB, f"it stays: {entry['pinned'] / MIB:g} MiB of 82 (2 are the edges of all ranges)")
            other.child.kill()
            other.child.wait()
            check(told.say("check") == "ok", "every byte")
            check(group.hits() == hits, f"the limit was reached {group.hits() - hits} times")
            told.end(silent=False)

    def test_large(self):
        """Enough room: everything leaves and comes back."""
        with Card(self.build, memory="96MiB", **Told.SMALL_CONTEXTS) as card, Group(LARGE) as group:
            told, other = Told(card), Told(card)
            group.take(told)
            check(told.say("alloc 80") == "ok", "80 MiB on the card")
            gone = told.make_room(other)
            check(gone["on_host"] == 80 * MIB, f"{gone['on_host'] / MIB:g} of 80 MiB have left")
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def spill(self, folder, room):
        """A pod whose limit leaves no room for a copy, with GPUSHARE_SPILL. room: the folder has some."""
        with Card(self.build, memory="96MiB", **Told.SMALL_CONTEXTS) as card, Group(LARGE, inner="container") as pod:
            told, other = Told(card, GPUSHARE_SPILL=folder), Told(card)
            pod.take(told)
            answer = told.say("alloc 80")
            check(answer == "ok", f"80 MiB on the card: {answer}")
            told.until(lambda entry: entry["resident"] == entry["demand"] != 0)
            pod.set_limit(pod.usage() + 40 * MIB)
            hits = pod.hits()
            if room:
                gone = told.make_room(other)
                check(gone["on_host"] == 80 * MIB, f"{gone['on_host'] / MIB:g} of 80 MiB have left")
            else:
                other.ask_for_all()
                entry = told.until(lambda entry: entry["pinned"] > 2 * MIB, 300)
                check(entry["demand"] + entry["pinned"] == 82 * MIB and entry["pinned"] > 2 * MIB, f"it stays: {entry['pinned'] / MIB:g} MiB of 82")
                other.child.kill()
                other.child.wait()
            check(told.say("check") == "ok", "every byte")
            check(pod.kills() == 0, "nothing was killed")
            check(pod.hits() == hits, f"the limit was reached {pod.hits() - hits} times")
            told.end(silent=room)

    def test_spill_to_a_disk(self):
        """No room in the pod: what leaves the card goes to the file."""
        folder = tempfile.mkdtemp(prefix="gs-cgroup-", dir=OPTIONS.disk or None)
        self.addCleanup(shutil.rmtree, folder)
        if in_memory(folder):
            self.skipTest(f"{folder} is in memory: name a folder on a disk with --disk")
        self.spill(folder, room=True)

    def test_spill_to_memory(self):
        """A folder in memory (tmpfs, an emptyDir of the medium Memory) is the pod's memory too: it is no room, and nothing is killed."""
        folder = tempfile.mkdtemp(prefix="gs-cgroup-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, folder)
        self.spill(folder, room=False)

    def test_together(self):
        """The daemon heeds a limit while it holds for all programs, wherever the daemon itself is."""
        with open("/proc/meminfo", encoding="ascii") as file:
            machine = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
        limit = machine // 4
        with Card(self.build, memory="96MiB", **Told.SMALL_CONTEXTS) as card, Group(limit) as group:
            first, second = Told(card), Told(card)
            for inside in (first, second):
                group.take(inside)  # which may have said hello before
                check(inside.say("alloc 10") == "ok", "10 MiB")
            first.end()  # the daemon looks again where all are
            total = host_total(card, lambda total: total <= limit)
            check(total <= limit, f"all are inside: {total / MIB:.0f} MiB of {limit / MIB:.0f}")
            outside = Told(card)
            outside.say("alloc 10")
            total = host_total(card, lambda total: total > limit)
            check(total > limit, f"one is outside: {total / MIB:.0f} MiB")
            outside.end()
            total = host_total(card, lambda total: total <= limit)
            check(total <= limit, f"it has left: {total / MIB:.0f} MiB")
            second.end()

    def setUp(self):
        try:
            with Group(LARGE):
                pass
        except (OSError, KeyError) as error:
            self.skipTest(f"no memory cgroup can be made here: {error}")


if __name__ == "__main__":
    main(disk="")
