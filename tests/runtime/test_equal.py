#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs with the same bytes: memory that is handed over and holds what its next owner lacks is not copied. Every byte is checked.
test_equal.py --build DIR [--rounds N] [--first SEED]

--rounds: of test_rounds, in which programs change and share bytes at random and are killed at random moments, as is the daemon. 1000
rounds take half an hour."""
import contextlib
import fcntl
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lockd")]
from fake import COPY, copy_message, hello  # noqa: E402  (in the folder of the daemon's tests)
from card import MIB, OPTIONS, PATIENCE, BuildTest, Card, Told, check, main, sanitized  # noqa: E402  (beside this file)

STAGES = 4 * 32  # MiB: what four programs need to copy from common memory that is not registered yet


class Hostile(threading.Thread):
    """A program of the same user that takes every offer it hears of, and offers memory that is nearly the same: with another byte, or
    with the same bytes at first, without seals, to change it later."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        end = time.monotonic() + PATIENCE
        while self.socket.connect_ex(path) != 0:  # of two daemons that start, one gives up
            check(time.monotonic() < end, "a daemon that listens")
            time.sleep(0.01)
        self.socket.send(hello("hostile"))
        self.lies = 0
        self.start()

    def offer(self, contents, bytes_, seals, changes=False):
        copy = os.memfd_create("lie", os.MFD_ALLOW_SEALING)
        os.ftruncate(copy, bytes_)
        os.pwrite(copy, contents, 0)
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, seals)
        socket.send_fds(self.socket, [copy_message(bytes_)], [copy])
        if changes:
            time.sleep(0.05)
            os.pwrite(copy, bytes(bytes_), 0)
        os.close(copy)
        self.lies += 1

    def run(self):
        all_seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.socket, 4096, 32)
                if not data:
                    return
                if struct.unpack("<IHHII", data[:16])[2] == COPY and fds:
                    bytes_, number, own, _ = struct.unpack("<QQII", data[16:])
                    self.socket.send(copy_message(bytes_, number))
                    if not own:
                        contents = os.pread(fds[0], bytes_, 0)
                        at = random.randrange(bytes_)
                        self.offer(contents[:at] + bytes([contents[at] ^ 1]) + contents[at + 1:], bytes_, all_seals)
                        self.offer(contents, bytes_, 0, True)
                        self.offer(contents[:bytes_ // 2], bytes_, all_seals & ~fcntl.F_SEAL_WRITE, True)
                for fd in fds:
                    os.close(fd)
            except OSError:
                return  # the daemon has ended


class Pair(Card):
    """Two programs on a card that is too small for both. A program's contents follow from the sizes that it allocates one after the
    other, so those of the two are the same where they allocate the same."""

    def __init__(self, build, how=("alloc", "alloc"), sizes=(20,) * 5, memory="128MiB", **environment):
        super().__init__(build, memory=memory, options=["--idle", "5"], **Told.SMALL_CONTEXTS, **environment)
        self.how, self.sizes = how, sizes
        self.both = []

    def __enter__(self):
        super().__enter__()
        try:
            self.both = [Told(self) for _ in self.how]
            for told, how in zip(self.both, self.how):
                for mib in self.sizes:
                    self.ok(told, f"{how} {mib}")
        except BaseException:
            self.__exit__()  # else the daemon stays, with this test's output
            raise
        return self

    @staticmethod
    def ok(told, command):
        answer = told.say(command)
        if answer != "ok":
            check(False, f"{command}: {answer}")

    def replace(self, told, how):
        """Kills the program and starts another in its place; bytes that the killed program had found."""
        entry = told.entry()
        told.child.kill()
        told.child.wait()
        self.both[self.both.index(told)] = fresh = Told(self)
        for mib in self.sizes:
            self.ok(fresh, f"{how} {mib}")
        return entry["saved_equal"] if entry else 0

    def turn(self, told, change):
        """Bytes copied in, and found in memory of the other program, for one turn, in MiB. `check` reads all that is there."""
        self.ok(self.both[self.both.index(told) - 1], "touch")  # so that it has left
        before = told.until(lambda entry: entry["resident"] < entry["demand"])
        if change:
            self.ok(told, change)
        self.ok(told, "check")
        after = told.until(lambda entry: entry["resident"] == entry["demand"]
                           and entry["moved_in"] + entry["saved_equal"] + entry["saved_zero"]
                           > before["moved_in"] + before["saved_equal"] + before["saved_zero"])
        return tuple((after[key] - before[key]) // MIB for key in ("moved_in", "saved_equal"))

    def until(self, what, true, change=None):
        """Turns to and fro until true(copied, equal): what a busy machine passes on too late is released instead."""
        end, seen = time.monotonic() + PATIENCE, []
        while time.monotonic() < end:
            for told in self.both:
                seen.append(self.turn(told, change))
                if len(seen) > 4 and true(*seen[-1]):
                    print(f"{what}: {seen[-1][0]} MiB copied, {seen[-1][1]} MiB found, in turn {len(seen)}", flush=True)
                    return
        check(False, f"{what}: {seen}")


    def host(self):
        """MiB of host memory that all of them count together."""
        return round(sum(told.entry()["host_used"] for told in self.both) / MIB)

    def shared(self):
        """MiB of common memory that they have mapped, as the kernel counts it: what several have is divided among them."""
        pages, inside = 0, False
        for told in self.both:
            with open(f"/proc/{told.child.pid}/smaps", encoding="ascii") as file:
                for line in file:
                    if not line.split(maxsplit=1)[0].endswith(":"):
                        inside = "memfd:gpushare-copy" in line
                    elif inside and line.startswith("Pss:"):
                        pages += int(line.split()[1])
        return round(pages / 1024)

    def until_common(self, most, most_shared=None):
        """Turns until all of them together hold at most so many MiB on the host, and so many of common memory: not in a sanitizer's
        build, where a turn takes longer than an offer waits."""
        most_shared = None if sanitized(self.build) else most_shared
        end, seen = time.monotonic() + PATIENCE, []
        while time.monotonic() < end:
            for told in self.both:
                self.ok(told, "check")
            seen.append((self.host(), self.shared()))
            if seen[-1][0] <= most and (most_shared is None or seen[-1][1] <= most_shared):
                print(f"host memory of {len(self.both)} programs, common: {seen[-1]} MiB, in round {len(seen)}", flush=True)
                return
            time.sleep(0.02)
        check(False, f"host memory, common: {seen[:10]} ... {seen[-10:]}")


class Equal(BuildTest):
    def test_same_contents(self):
        with Pair(self.build) as pair:
            pair.until("the same", lambda copied, equal: copied == 0 and equal >= 60)
            last = pair.both[0].entry()
            check(last["saved"] == last["saved_equal"] + last["saved_zero"] + last["saved_unchanged"] and last["saved_unchanged"] > 0,
                  f"all of it is told: {last}")

    def test_one_byte(self):
        """A block of 2 MiB with another byte is copied, and the rest is not."""
        with Pair(self.build) as pair:
            pair.ok(pair.both[0], "change 2 9")
            pair.until("one byte", lambda copied, equal: equal >= 60 and copied > 0 and copied % 20 == 2)

    def test_bytes_that_change(self):
        with Pair(self.build) as pair:
            pair.until("changes", lambda copied, equal: equal >= 20 and copied > 0, "change 1 3")

    def test_other_places(self):
        """The first of the one is missing in the other, which has another one at the end."""
        with Pair(self.build) as pair:
            pair.ok(pair.both[1], "alloc 20")
            pair.ok(pair.both[1], "free 0")
            pair.until("other places", lambda copied, equal: equal >= 60)

    def test_several_sizes(self):
        """Memory of each size is kept for chunks of that size, whichever chunk is the next. The programs have more beside that, a model
        and a server's cache and a training's adapters, so to say. 100 to 144 MiB are found, as the memory lies at first."""
        with Pair(self.build, sizes=(4, 4, 4, 4, 14, 14, 14) * 3, memory="236MiB") as pair:
            pair.ok(pair.both[0], "alloc 32")
            for _ in range(10):
                pair.ok(pair.both[1], "alloc 2")
            pair.until("several sizes", lambda copied, equal: equal >= 90)

    def test_shifted(self):
        """The chunks of the two stand in another order, so a piece that comes often serves a chunk that is already chosen for one of the
        pieces behind it. All is found, in each turn; what is in one program only fills 8 MiB."""
        with Pair(self.build, sizes=(8,) * 12) as pair:
            pair.ok(pair.both[1], "alloc 8")
            pair.ok(pair.both[1], "free 0")
            pair.until("shifted", lambda copied, equal: equal == 64)
            seen = [pair.turn(told, None) for told in 3 * pair.both]
            check(sum(equal >= 56 for _, equal in seen) >= 5, f"MiB copied and found: {seen}")  # a busy machine may lose a turn's

    def test_server_and_training(self):
        """The one has caches beside the model, of the size of its weights, the other adapters. What both hold leaves first, and takes
        no place in which other memory would have to be copied over it: in both directions all is found that leaves."""
        with Pair(self.build, sizes=(16, 12, 8) * 2, memory="118MiB") as pair:
            for _ in range(2):
                pair.ok(pair.both[0], "alloc 16")
            for _ in range(5):
                pair.ok(pair.both[1], "alloc 4")
            end, seen = time.monotonic() + PATIENCE, []
            while len(seen) < 2 or min(equal for _, equal in seen[-2:]) < 56:
                check(time.monotonic() < end, f"MiB copied and found: {seen}")
                seen.append(pair.turn(pair.both[len(seen) % 2], "change 8 1" if len(seen) % 2 else None))
            print(f"server and training: MiB copied and found {seen[-2:]}, in turn {len(seen)}", flush=True)

    def test_server_and_fine_tuning(self):
        """Weights of several sizes in any order, with other memory between them; the tuning has more beside them, in which each step changes
        everything, in more pieces than may hold nothing before pieces are looked at less. That memory stays, and nearly all that leaves is
        found, in each turn. A sanitizer's build passes most on too late, so there only the bytes count, and that some are found."""
        copied_most, found_least = (340, 1) if sanitized(self.build) else (24, 180)
        dice = random.Random(OPTIONS.first)
        weights = [8, 8, 4, 4] * 10
        dice.shuffle(weights)
        with Pair(self.build, sizes=(), memory="340MiB") as pair:
            own = []
            for told, count in zip(pair.both, (4, 18)):
                gaps = [dice.randrange(len(weights)) for _ in range(3)]
                words = [word for at, mib in enumerate(weights) for word in ["zero 4"] * gaps.count(at) + [f"alloc {mib}"]] + ["alloc 4"] * count
                for word in words:
                    pair.ok(told, word)
                own.append(range(len(words) - count, len(words)))

            end, seen = time.monotonic() + PATIENCE, []
            while len(seen) < 6 or any(copied > copied_most or equal < found_least for copied, equal in seen[-6:]):
                check(time.monotonic() < end, f"MiB copied and found: {seen}")
                told, last = (pair.both[(len(seen) + more) % 2] for more in (0, 1))
                before = told.until(lambda entry: entry["resident"] < entry["demand"]) if seen else told.entry()
                pair.ok(told, "touch")
                after = told.until(lambda entry: entry["resident"] == entry["demand"])
                seen.append(tuple((after[key] - before[key]) // MIB for key in ("moved_in", "saved_equal")))
                for at in own[len(seen) % 2 == 0]:
                    for mib in (0, 2):
                        pair.ok(told, f"change {at} {mib}")
            for told in pair.both:
                pair.ok(told, "check")
            print(f"server and fine-tuning: MiB copied and found {seen[-6:]}, in turn {len(seen)}", flush=True)

    def test_nothing_in_common(self):
        """What is handed over is looked at less and less, and used all the same."""
        with Pair(self.build) as pair:
            for number in range(5):
                for at in range(0, 20, 2):
                    pair.ok(pair.both[1], f"change {number} {at}")
            pair.until("nothing", lambda copied, equal: copied >= 60 and equal == 0)

    def test_own_memory(self):
        """Memory of cuMemCreate goes from program to program as well, also to memory of cuMemAlloc and back; and what has come may be
        exported by its new owner. Memory that network cards can reach (PyTorch's expandable segments) serves any other, and only such
        memory serves it; no driver says of imported memory that they can."""
        for how in (("export", "export"), ("export", "alloc"), ("network", "network")):
            with Pair(self.build, how) as pair:
                pair.until(f"memory of {how}", lambda copied, equal: equal >= 60)
                for told, made in zip(pair.both, how):
                    for at in range(5 if made == "network" else 0):
                        pair.ok(told, f"reaches {at}")  # wherever it came from
                pair.ok(pair.both[0], "touch")
                pair.ok(pair.both[0], "bare 1")
                pair.ok(pair.both[0], "check")

    def test_memory_for_network_beside_plain_memory(self):
        """One direction is served, the other is not: what cannot be reached is released instead."""
        with Pair(self.build, ("network", "alloc")) as pair:
            pair.until("memory for network to plain memory", lambda copied, equal: equal >= 60)
            for at in range(5):
                pair.ok(pair.both[0], f"reaches {at}")

    def test_one_host_copy(self):
        """Four programs with the same 100 MiB have one copy of it on the host; each can leave it, change its own, and be killed."""
        with Pair(self.build, ("alloc", "alloc", "export", "alloc")) as four:
            four.until_common(STAGES + 100)
            four.ok(four.both[1], "change 2 9")
            for told in four.both:
                four.ok(told, "check")
            four.replace(four.both[0], "alloc")
            four.until_common(STAGES + 100 + 20)  # what has changed is its own
            for _ in range(3):
                told = four.both.pop()
                told.child.kill()
                told.child.wait()
                for left in four.both:
                    four.ok(left, "check")

    def test_any_sharer_killed(self):
        """Whoever of three is killed, the others have the memory as before, and it stays one memory: also for the program that comes next."""
        with Pair(self.build, ("alloc",) * 3) as three:
            for number in range(3):
                three.until_common(3 * 32 + 100, 100)
                shared = three.shared()
                check(shared >= 40, f"{shared} MiB of common memory")
                three.replace(three.both[number], "alloc")
                left = three.both[:number] + three.both[number + 1:]
                for told in left:
                    three.ok(told, "check")
            three.until_common(3 * 32 + 100, 100)

    def test_hostile(self):
        """Nothing that another program of the user offers, or says that it has taken, changes a byte."""
        with Pair(self.build, ("alloc",) * 3) as pair:
            hostile, end = Hostile(pair.socket), time.monotonic() + PATIENCE
            while hostile.lies < 30 and time.monotonic() < end:
                for told in pair.both:
                    pair.ok(told, "check")
                pair.ok(random.choice(pair.both), f"change {random.randrange(5)} 3")  # new offers will follow
            check(hostile.lies >= 30, f"{hostile.lies} lies")
            for told in pair.both:
                pair.ok(told, "check")

    def test_rounds(self):
        """Whatever a program finds in memory of another, and whoever is killed meanwhile: its own bytes stay right."""
        dice, found = random.Random(OPTIONS.first), 0
        with Pair(self.build, ("alloc", "export", "alloc")) as pair:
            Hostile(pair.socket)
            for _ in range(OPTIONS.rounds):
                for told in dice.sample(pair.both, 2):
                    what = dice.random()
                    if what < 0.4:
                        pair.ok(told, f"change {dice.randrange(5)} {dice.randrange(20)}")
                    elif what < 0.5:
                        pair.ok(told, f"clear {dice.randrange(5)} {dice.randrange(4) * 4} 4")
                    elif what < 0.6:  # killed while its memory comes or goes, or that of the other
                        told.tell("check")
                        time.sleep(dice.random() * 0.05)
                        found += pair.replace(told, dice.choice(["alloc", "export"]))
                    elif what < 0.65:
                        told.tell("check")
                        time.sleep(dice.random() * 0.05)
                        pair.stop_daemon(signal.SIGKILL)
                        for pid in pair.daemon_pids():  # a program was quicker than we were
                            with contextlib.suppress(ProcessLookupError):  # or a second daemon, which has just given up
                                os.kill(pid, signal.SIGKILL)
                        pair.start_daemon()
                        Hostile(pair.socket)
                        check(told.answer() == "ok", "every byte, with the daemon killed meanwhile")
                    else:
                        pair.ok(told, "check")
            found += sum((told.entry() or {"saved_equal": 0})["saved_equal"] for told in pair.both)
            for told in pair.both:
                pair.ok(told, "check")
        print(f"{OPTIONS.rounds} rounds, {found // MIB} MiB found in memory of others", flush=True)
        check(found > 0, "some of it was in memory of others")

    def test_without_hashes(self):
        with Pair(self.build, SIMCUDA_BUILTIN="0") as pair:
            pair.until("no hashes", lambda copied, equal: copied >= 60 and equal == 0)


if __name__ == "__main__":
    main(rounds=12, first=1)
