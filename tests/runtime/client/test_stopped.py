#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that is stopped (Ctrl-Z, a debugger, `docker pause`) keeps what it has and no more: another one gets the rest of the
card, wherever in an allocation the first was stopped, and both have all their bytes when it goes on."""
import os
import signal
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "lockd")]
from card import MIB, PATIENCE, BuildTest, Card, Told, main, wait_for  # noqa: E402  (in the folder above)
from fake import MAGIC, RUN, STATE, TARGET, TARGET_FORMAT, VERSION  # noqa: E402  (in tests/lockd)

HELD, MORE = 4, 8  # MiB, on a card of 64 MiB; the program may have more than both, since the others leave it
BESIDE, INSTEAD = 40, 50  # what another one needs: it fits beside both, or only beside the first


def is_stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


def order_stop(path, function, number):
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(f"{function}:{number}")
    os.rename(path + ".new", path)


class OwnDaemon:
    """A daemon of the test's own, for one program: it says what the test wants."""

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(8)
        self.listener.settimeout(PATIENCE)
        self.seq, self.uuid, self.states = 0, b"", []

    def accept(self):
        self.socket = self.listener.accept()[0]
        self.socket.settimeout(PATIENCE)
        self.hear()

    def hear(self):
        """The next report: echoed number, demand, resident."""
        while True:
            data = self.socket.recv(8192)
            assert data, "the program has hung up"
            if struct.unpack_from("<IHH", data)[2] == STATE:
                _, _, _, _, _, self.uuid, seq, _, _, _, demand, resident = struct.unpack_from("<IHHII16sIIQQQQ", data)
                return seq, demand, resident

    def send(self, budget):
        self.seq += 1
        self.socket.send(struct.pack(TARGET_FORMAT, MAGIC, VERSION, TARGET, struct.calcsize(TARGET_FORMAT), 0, self.uuid, self.seq, RUN,
                                     budget, 60 * MIB, 0, 2**64 - 1, *[0] * 21))

    def close(self):
        self.socket.close()
        self.listener.close()


class Stopped(BuildTest):
    def test_budget_that_fell_meanwhile(self):
        """It takes nothing of the budget that it had before: there is another one to be read."""
        for _ in range(10):
            with Card(self.build, memory="64MiB", daemon=False) as card:
                daemon, order = OwnDaemon(card.socket), os.path.join(card.folder, "stop")
                program = Told(card, **Told.SMALL_CONTEXTS, SIMCUDA_STOP=order)
                program.tell(f"alloc {HELD}")
                daemon.accept()
                daemon.send(32 * MIB)
                self.assertEqual(program.answer(), "ok")
                order_stop(order, "cuMemAddressReserve", 1)
                program.tell(f"alloc {MORE}")
                self.assertTrue(wait_for(lambda program=program: is_stopped(program.child.pid)))
                daemon.send(HELD * MIB)
                program.child.send_signal(signal.SIGCONT)
                said, demand = 0, 0
                while said < daemon.seq or demand < (HELD + MORE) * MIB:
                    said, demand, resident = daemon.hear()
                    self.assertLessEqual(resident, HELD * MIB)
                daemon.send(32 * MIB)
                self.assertEqual(program.answer(), "ok")
                program.child.kill()
                daemon.close()

    def two(self, card, **more):
        small, big = Told(card, **Told.SMALL_CONTEXTS, **more), Told(card, **Told.SMALL_CONTEXTS)
        self.assertEqual(small.say(f"alloc {HELD}"), "ok")
        self.assertEqual(big.say("alloc 2"), "ok")
        small.until(lambda entry: entry["resident"] == HELD * MIB and entry["budget"] >= (HELD + MORE) * MIB)
        return small, big

    def check_both(self, small, big):
        for program in (small, big, small):
            self.assertEqual(program.say("touch"), "ok")
            self.assertEqual(program.say("check"), "ok")
        for program in (small, big):
            program.end()

    def test_idle(self):
        """It may have more than it has."""
        with Card(self.build, memory="64MiB") as card:
            small, big = self.two(card)
            small.child.send_signal(signal.SIGSTOP)
            self.assertEqual(big.say(f"alloc {INSTEAD}"), "ok")
            self.assertEqual(big.say("touch"), "ok")
            small.child.send_signal(signal.SIGCONT)
            self.assertEqual(small.say(f"alloc {MORE}"), "ok")
            self.check_both(small, big)

    def test_memory_of_another_process_goes_meanwhile(self):
        """The program that waits is asked again what is free: the stopped one says nothing."""
        with Card(self.build, memory="64MiB") as card:
            small, big = self.two(card)
            small.child.send_signal(signal.SIGSTOP)
            foreign = Told(card, **Told.SMALL_CONTEXTS, GPUSHARE_DISABLE="1")
            self.assertEqual(foreign.say("alloc 2"), "ok")
            self.assertEqual(big.say("alloc 2"), "ok")
            self.assertTrue(wait_for(lambda: card.status()["devices"][0]["external"] >= 8 * MIB))
            big.tell(f"alloc {INSTEAD - 2}")
            self.assertEqual(big.until(lambda entry: entry["state"] == "waits")["state"], "waits")
            foreign.end()
            self.assertEqual(big.answer(), "ok")
            small.child.send_signal(signal.SIGCONT)
            self.check_both(small, big)

    def stop_in(self, function, number, other):
        """False: the allocation makes fewer such calls."""
        with Card(self.build, memory="64MiB") as card:
            order = os.path.join(card.folder, "stop")
            small, big = self.two(card, SIMCUDA_STOP=order)
            order_stop(order, function, number)
            small.tell(f"alloc {MORE}")
            answered = lambda: small.answer(0.01) != "no answer"  # noqa: E731
            self.assertTrue(wait_for(lambda: is_stopped(small.child.pid) or answered()))
            if not is_stopped(small.child.pid):
                small.child.kill()
                return False
            self.assertEqual(big.say(f"alloc {other}"), "ok")
            self.assertEqual(big.say("touch"), "ok", f"{function} {number}")
            small.child.send_signal(signal.SIGCONT)
            self.assertEqual(small.answer(), "ok")
            self.check_both(small, big)
            return True

    def test_in_an_allocation(self):
        for function, other in (("cuMemAddressReserve", INSTEAD), ("cuMemCreate", BESIDE), ("cuMemMap", BESIDE), ("cuMemSetAccess", BESIDE),
                                ("cuMemcpyHtoD", BESIDE), ("cuMemGetInfo", BESIDE)):
            number = 1
            while number < 8 and self.stop_in(function, number, other):
                number += 1
            print(f"{function}: stopped at {number - 1} calls")


if __name__ == "__main__":
    main()
