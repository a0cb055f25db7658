# SPDX-License-Identifier: Apache-2.0
"""Programs, gpusharectl and the daemon of different releases: they work together, or each side says what is wrong and the program
goes on without sharing. test_releases.py --build DIR [--previous PREFIX]

Without --previous, a relay between this build's two sides changes the protocol's version in each message to an older or a newer one
and back: each side sees what a daemon or a program of that release would say. With it, the tools, library and daemon that are
installed in PREFIX run with those of this build (scripts/check_releases.sh makes such a folder)."""
import os
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "..", "..", "lockd")]
from card import OPTIONS, PATIENCE, BuildTest, Card, main, sanitized  # noqa: E402
from fake import VERSION  # noqa: E402


class Relay:
    """Listens at `path` as a daemon that speaks `version`; what callers say is passed to the daemon at `behind`."""

    def __init__(self, path, behind, version):
        self.behind, self.version = behind, version
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self.take_callers, daemon=True).start()

    def take_callers(self):
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.pass_on, args=(caller,), daemon=True).start()

    def pass_on(self, caller):
        with caller, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon, selectors.DefaultSelector() as selector:
            daemon.connect(self.behind)
            selector.register(caller, selectors.EVENT_READ, daemon)
            selector.register(daemon, selectors.EVENT_READ, caller)
            while True:
                for key, _ in selector.select():
                    try:
                        data = bytearray(self.receive(key.fileobj))
                        if not data:
                            return
                        struct.pack_into("<H", data, 4, self.version)
                        key.data.send(data)
                    except OSError:
                        return

    @staticmethod
    def receive(end):
        try:
            return end.recv(4096)
        except ConnectionResetError:  # comes before what was said last
            return end.recv(4096)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class OtherProtocol(BuildTest):
    def test_older_and_newer_releases_are_told(self):
        with Card(self.build) as card:
            self.meet(card, (VERSION - 1, VERSION + 1))

    def meet(self, card, versions):
        """A program of each version at once: each waits for some seconds before it goes on alone."""
        soak = [os.path.join(self.build, "tests", "runtime", "soak"), "--seconds", "0.1", "--threads", "1", "--memory", "10MiB", "--seed", "1"]
        programs, relays = [], []
        for version in versions:
            other = os.path.join(card.folder, f"{version}.sock")
            relays.append(Relay(other, card.socket, version))
            programs.append(card.start(soak, GPUSHARE_SOCKET=other))
            code, _, err = card.run([os.path.join(self.build, "lockd", "gpusharectl"), "--socket", other, "status"])
            self.assertEqual(code, 1, err)
            self.assertIn("use the same gpushare release on both sides", err)
        for version, program in zip(versions, programs):
            text = f"protocol version {version}, this side speaks {VERSION}: use the same gpushare release on both sides"
            _, err = program.communicate(timeout=PATIENCE)
            self.assertEqual(program.returncode, 0, err)
            self.assertEqual(err.count(f"gpushare-lockd refuses this program: {text}"), 1, err)
            self.assertIn(text, [note["text"] for note in card.status()["notes"]])
        for relay in relays:
            relay.close()


class Release:
    """Tools, library and daemon of one release."""

    def __init__(self, name, patch, library, lockd, ctl):
        self.name, self.patch, self.library, self.lockd, self.ctl = name, patch, library, lockd, ctl


class PreviousRelease(BuildTest):
    def setUp(self):
        if not OPTIONS.previous:
            self.skipTest("no previous release: --previous")
        self.program = os.path.join(self.build, "samples", "dlopen_driver")
        if sanitized(self.build) or not os.path.exists(self.program):
            self.skipTest("needs a build with samples and without sanitizers")
        prefix = os.path.abspath(OPTIONS.previous)
        self.previous = Release("the previous release", *(os.path.join(prefix, name) for name in (
            "bin/gpushare-patch", "lib/libgpushare.so.1", "bin/gpushare-lockd", "bin/gpusharectl")))
        self.this = Release("this build", *(os.path.join(self.build, name) for name in (
            "rewriter/gpushare-patch", "runtime/libgpushare.so.1", "lockd/gpushare-lockd", "lockd/gpusharectl")))

    def card(self, daemon):
        card = Card(self.build, memory="256MiB", daemon=False, SIMCUDA_KERNELS=os.path.join(self.build, "samples", "driver_standin.so"))
        card.lockd = card.environment["GPUSHARE_LOCKD"] = daemon.lockd
        self.addCleanup(card.__exit__)
        card.start_daemon()
        return card

    @staticmethod
    def ask(card, release):
        return subprocess.run([release.ctl, "--socket", card.socket, "status", "--json"], env=card.environment, capture_output=True,
                              text=True, timeout=PATIENCE, check=False)

    def patch(self, card, by, library):
        path = os.path.join(card.folder, "program")
        shutil.copy(self.program, path)
        subprocess.run([by.patch, "-q", "--runtime", library, path], check=True, env=card.environment)
        return path

    def share_or_say_so(self, card, program, daemon):
        """True if the program gets its turn from the daemon, False if it is refused and both sides say why; all else fails."""
        log = os.path.join(card.folder, "log")
        code, _, err = card.run([program, "--bytes", "16MiB"], GPUSHARE_LOG=log)
        self.assertEqual(code, 0, err)
        with open(log, encoding="utf-8") as lines:
            if ": run" in lines.read():
                self.assertEqual(err, "")
                return True
        self.assertIn("gpushare-lockd refuses this program: protocol version", err)
        self.assertIn("protocol version", self.ask(card, daemon).stdout)
        return False

    def test_old_library_with_new_daemon(self):
        card = self.card(self.this)
        self.share_or_say_so(card, self.patch(card, self.previous, self.previous.library), self.this)

    def test_new_library_with_old_daemon(self):
        card = self.card(self.previous)
        self.share_or_say_so(card, self.patch(card, self.this, self.this.library), self.previous)

    def test_program_that_the_previous_release_patched_shares_after_the_upgrade(self):
        card = self.card(self.this)
        library = os.path.join(card.folder, "libgpushare.so.1")
        shutil.copy(self.previous.library, library)
        program = self.patch(card, self.previous, library)
        shutil.copy(self.this.library, library + ".new")
        os.rename(library + ".new", library)
        self.assertTrue(self.share_or_say_so(card, program, self.this))
        subprocess.run([self.this.patch, "-q", "--restore", program], check=True, env=card.environment)
        with open(program, "rb") as restored, open(self.program, "rb") as original:
            self.assertEqual(restored.read(), original.read())

    def test_gpusharectl_works_or_says_so(self):
        for ctl, daemon in ((self.previous, self.this), (self.this, self.previous)):
            with self.subTest(ctl=ctl.name, daemon=daemon.name):
                answer = self.ask(self.card(daemon), ctl)
                self.assertTrue(answer.returncode == 0 or "same gpushare release" in answer.stderr, answer.stderr)


if __name__ == "__main__":
    main(previous="")
