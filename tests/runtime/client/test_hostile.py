# SPDX-License-Identifier: Apache-2.0
"""A daemon that sends anything: targets with random fields, messages of wrong kinds and lengths, descriptors of everything but
memory, refusals, and hang-ups. The program must end by itself, with every byte right, whatever it was told.

test_hostile.py --build DIR [--messages N] [--seed S]
Messages are counted when the program has taken them. In a sanitizer build the library is inside the program, and what the sanitizer
finds ends it. By hand: --messages 1000000."""
import array
import os
import random
import select
import socket
import struct
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "lockd")]
from card import MIB, OPTIONS, BuildTest, Card, check, main  # noqa: E402  (in the folder above)
from fake import (END, GIVE, MAGIC, PAUSED, RUN, SOLE, STATE, TARGET, TARGET_FORMAT, VERSION, WAITERS, header, message,  # noqa: E402
                  open_message, share_message)

BURSTS = [1, 500, 500, 500, 500]  # messages at a time, on a connection: with pauses, in which memory moves, and without
STATE_HEAD = "<IHHII16sIIQ"  # up to the device's size
STATE_GIVEN = 16 + 16 + 8 + 12 * 8  # where given_bytes is; see fake.state()
NUMBERS = [0, 1, 4095, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 8 * MIB, 40 * MIB, 64 * MIB, 96 * MIB, 1 << 31, 1 << 32, 1 << 40, 1 << 62,
           (1 << 63) - 1, 1 << 63, 2**64 - 4096, 2**64 - 1]


class Device:
    """What the program said of one."""

    def __init__(self, burst):
        self.uuid, self.seq, self.burst = bytes(16), 0, burst


class Hostile:
    def __init__(self, path, seed):
        self.dice = random.Random(seed)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(64)
        self.connections = {}  # socket: Device
        self.pieces = []  # memory that the program has given away: descriptor, bytes
        self.sent = self.taken_back = self.hung_up = self.refused = 0
        self.stop = False

    def number(self):
        return self.dice.choice(NUMBERS) if self.dice.random() < 0.7 else self.dice.getrandbits(self.dice.randrange(1, 65))

    def target(self, device, flags, handed=0, handed_bytes=0):
        """One that the library will take, with anything in it."""
        dice = self.dice
        device.seq += 1
        seq = device.seq if dice.random() < 0.9 else dice.getrandbits(32)
        good = dice.random() < 0.5  # else nothing goes on for long
        budget, capacity = (64 * MIB, 90 * MIB) if good else (self.number(), self.number())
        idle = 5_000_000 if dice.random() < 0.8 else self.number()
        return struct.pack(TARGET_FORMAT, MAGIC, VERSION, TARGET, struct.calcsize(TARGET_FORMAT), 0,
                           device.uuid if dice.random() < 0.97 else dice.randbytes(16), seq, flags, budget, capacity, idle,
                           self.number() if dice.random() < 0.5 else 2**64 - 1, self.number(),
                           *([handed_bytes] * min(handed, 16) + [0] * 16)[:16], handed, 0,
                           0 if dice.random() < 0.5 else self.number(), 0 if dice.random() < 0.5 else self.number())

    def flags(self):
        chosen = RUN if self.dice.random() < 0.8 else 0
        for flag in (WAITERS, PAUSED, SOLE, GIVE):
            chosen |= flag if self.dice.random() < 0.3 else 0
        return chosen if self.dice.random() < 0.95 else self.dice.getrandbits(32)

    def files(self):
        """Descriptors that are no memory; the caller closes them."""
        found = []
        for _ in range(self.dice.choice([1, 1, 2, 16, 60])):
            kind = self.dice.randrange(5)
            if kind == 0:
                found.append(os.memfd_create("none"))
            elif kind == 1:
                pair = os.pipe()
                found.append(pair[0])
                os.close(pair[1])
            elif kind == 2:
                found.append(os.open("/", os.O_RDONLY | os.O_DIRECTORY))
            elif kind == 3:
                found.append(os.open("/dev/null", os.O_RDWR))
            else:
                found.append(socket.socket(socket.AF_UNIX).detach())
        return found

    def compose(self, device):
        """A message, the descriptors with it, and whether the connection survives it."""
        dice, kind = self.dice, self.dice.random()
        if kind < 0.06:
            files = self.files()
            handed = len(files) if dice.random() < 0.5 else dice.getrandbits(8)
            return self.target(device, self.flags(), handed, self.number()), files, True
        if kind < 0.12 and self.pieces:  # each piece once: else two of the program's pages would be one
            files = [self.pieces.pop() for _ in range(min(len(self.pieces), dice.choice([1, 4, 16])))]
            size = files[0][1] if dice.random() < 0.8 else self.number()
            self.taken_back += len(files)
            return self.target(device, self.flags() | RUN, len(files), size), [fd for fd, _ in files], True
        if kind < 0.15:  # opens and shares of anything; nobody here has asked for memory
            number, files = dice.getrandbits(4) if dice.random() < 0.5 else dice.getrandbits(32), []
            if dice.random() < 0.3:
                return open_message(dice.randbytes(16), dice.getrandbits(31), number), files, True
            files = self.files()
            count = len(files) - 1 if dice.random() < 0.7 else dice.getrandbits(8)
            return share_message(number, dice.choice([0, 0, -2, 5]), self.number(), self.number(), self.number(), self.number(),
                                 dice.choice([0, 0, 1, self.dice.getrandbits(32)]), max(count, 0)), files, True
        if kind < 0.996:
            return self.target(device, self.flags()), [], True
        if kind < 0.997:  # a refusal
            self.refused += 1
            return message(END, struct.pack("<iI192s", dice.randrange(-200, 1), 0, dice.randbytes(192))), [], False
        if kind < 0.999:
            whole = bytearray(self.target(device, self.flags()))
            whole[dice.randrange(16)] ^= 1 << dice.randrange(8)
            return bytes(whole), self.files() if dice.random() < 0.3 else [], False
        return (header(dice.randrange(30), dice.getrandbits(32)) + dice.randbytes(dice.choice([0, 1, 80, 95, 97, 4000]))), [], False

    def hear(self, connection, device):
        """Reads what the program says. False: it has hung up."""
        while True:
            try:
                data, files, _, _ = socket.recv_fds(connection, 8192, 64)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            if len(data) > STATE_GIVEN + 16 * 8 and struct.unpack_from("<IHH", data)[2] == STATE:
                device.uuid = struct.unpack_from(STATE_HEAD, data)[5]
                sizes = struct.unpack_from("<16Q", data, STATE_GIVEN)
                self.pieces += list(zip(files, sizes))
            else:
                for fd in files:
                    os.close(fd)

    def say(self, connection, device):
        """Sends until there is no room. False: it has hung up, or is to be."""
        for _ in range(device.burst):
            data, files, survives = self.compose(device)
            try:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
                connection.sendmsg([data], rights, socket.MSG_NOSIGNAL)
                self.sent += 1
            except BlockingIOError:
                return True  # it has not gone
            except OSError:
                survives = False
            finally:
                for fd in files:
                    os.close(fd)
            if not survives or self.dice.random() < 0.0005:
                self.hung_up += 1
                return False
        return True

    def serve(self):
        while not self.stop:
            readable, _, _ = select.select([self.listener, *self.connections], [], [], 0.01)
            if self.listener in readable:
                connection, _ = self.listener.accept()
                connection.setblocking(False)
                self.connections[connection] = Device(self.dice.choice(BURSTS))
            _, writable, _ = select.select([], list(self.connections), [], 0)
            for connection, device in list(self.connections.items()):
                goes_on = connection not in readable or self.hear(connection, device)
                if goes_on and device.uuid != bytes(16) and connection in writable:
                    if device.seq == 0:  # the first is a good one, so that it comes back at once
                        connection.send(self.target(device, RUN))
                    goes_on = self.say(connection, device)
                if not goes_on:
                    connection.close()
                    del self.connections[connection]


class FromADaemon(BuildTest):
    def test_anything(self):
        seed = OPTIONS.seed
        with Card(OPTIONS.build, memory="96MiB", daemon=False) as card, tempfile.TemporaryDirectory(prefix="gs-hostile-") as folder:
            daemon = Hostile(card.socket, seed)
            server = threading.Thread(target=daemon.serve)
            server.start()
            programs = operations = 0
            try:
                while daemon.sent < OPTIONS.messages:
                    command = [os.path.join(OPTIONS.build, "tests", "runtime", "soak"), "--seconds", "4", "--threads", "2", "--memory", "40MiB",
                               "--faulty", "--seed", str(seed)]
                    code, out, err = card.run(command, timeout=300, GPUSHARE_SPILL=folder)
                    programs, seed = programs + 1, seed + 1
                    check(code == 0 and out.startswith("ok") and "Sanitizer" not in err and "runtime error" not in err,
                          f"seed {seed - 1}: exit {code}: {out[-500:]} {err[-3000:]}")
                    operations += int(out.split("operations=")[1].split()[0])
            finally:
                daemon.stop = True
                server.join()
            print(f"{daemon.sent} messages, {daemon.hung_up} hang-ups, {daemon.refused} refusals, "
                  f"{daemon.taken_back} pieces of memory to {programs} programs with {operations} operations")


if __name__ == "__main__":
    main(messages=20000, seed=1)
