#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl where things are odd: names that are no text, twins, small and dead terminals, words in another order.

usage: test_ctl_edges.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import collections
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import END, GIB, HELLO, MIB, PATIENCE, RUNNING, WANT, Daemon, Program, message, settle_all, wait_for

LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
STATUS, DAEMON, TRACE = 16, 18, 23
ODD = b"bad\x9b31m\xff\"\\\n\xe3\x83"  # CSI for an 8-bit terminal, no UTF-8, quotes, a line's end, half a character


class EdgesTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD)
        self.addCleanup(self.daemon.process.kill)
        self.programs = [self.program(name) for name in ("twin", "twin", "\u65e5\u672c\u8a9e\u30d7\u30ed\u30b0\u30e9", ODD)]
        settle_all(self.programs, lambda: all(p.flags & RUNNING for p in self.programs))

    def tearDown(self):
        for program in self.programs:
            program.close()
        self.assertEqual(self.daemon.end(), 0)
        self.assertNotIn("Sanitizer", self.daemon.said())
        shutil.rmtree(self.daemon.folder)

    def program(self, name):
        program = Program(self.daemon.path, say_hello=False)
        name = name if isinstance(name, bytes) else name.encode()
        program.socket.send(message(HELLO, struct.pack("<iIiI32s16s32s", 0, 0, 0, 0, name, b"v", b"")))
        program.say(flags=WANT, demand=GIB)
        return program

    def ctl(self, *arguments, code=0):
        result = subprocess.run([CTL, "--socket", self.daemon.path, *arguments], capture_output=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertNotIn(b"Sanitizer", result.stderr)
        return result.stdout.decode()  # UTF-8, whatever programs are called

    def test_names_are_shown_as_far_as_they_are_text(self):
        text = self.ctl("status")
        self.assertIn("\u65e5\u672c\u8a9e\u30d7\u30ed\u30b0\u30e9", text)
        self.assertIn('bad?31m?"\\???', text)
        names = [p["name"] for p in json.loads(self.ctl("status", "--json"))["devices"][0]["programs"]]
        self.assertEqual(sorted(names), sorted(["twin", "twin", "\u65e5\u672c\u8a9e\u30d7\u30ed\u30b0\u30e9", 'bad?31m?"\\???']))

    def test_no_two_metrics_have_the_same_labels(self):
        lines = [line.rsplit(" ", 1)[0] for line in self.ctl("metrics").splitlines() if not line.startswith("#")]
        self.assertEqual([line for line, count in collections.Counter(lines).items() if count > 1], [])
        self.assertEqual(sum('name="twin"' in line and "resident_bytes" in line for line in lines), 2)
        self.assertTrue(any('name="bad?31m?\\"\\\\???"' in line for line in lines))

    def test_rates_of_twins_are_not_mixed_up(self):
        watcher = subprocess.Popen([CTL, "--socket", self.daemon.path, "top", "--json", "--interval", "0.5"],
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(watcher.stdout.close)
        self.addCleanup(watcher.kill)
        watcher.stdout.readline()  # what comes later is compared with that
        for moved, program in ((GIB, self.programs[0]), (3 * GIB, self.programs[1])):
            program.say(moved_out=moved)
        sums, until = collections.Counter(), time.monotonic() + PATIENCE
        while sum(sums.values()) < 4 and time.monotonic() < until:  # both may not come in the same interval
            answer = json.loads(watcher.stdout.readline())
            for index, rate in enumerate(answer["rates"]):
                sums[index] += round(rate["moved_out_per_s"] * answer["interval_ns"] / 1e9 / GIB)
        self.assertEqual(sorted(sums.values()), [0, 0, 1, 3])

    def test_json_and_help_may_come_last(self):
        self.assertEqual(json.loads(self.ctl("pause", str(os.getpid()), "--json"))["programs"], 4)
        self.assertTrue(json.loads(self.ctl("set", "quantum", "500", "--json"))["ok"])
        self.assertTrue(json.loads(self.ctl("metrics", "--json"))["running"])
        for command in ("status", "top", "set", "pause", "resume", "evict", "suspend", "reload", "trace", "metrics", "doctor"):
            self.assertIn(f"usage: gpusharectl {command}", self.ctl(command, "--help"))
            if command != "metrics":
                self.assertIn("--json", self.ctl(command, "--help"))
        self.assertIn("switch-share", self.ctl("set", "--help"))

    def test_json_of_a_failure_is_json_whatever_the_path(self):
        path = b"/tmp/\xff/lockd.sock"
        result = subprocess.run([CTL, b"--socket", path, b"pause", b"--json", b"1"], capture_output=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 3)
        self.assertIn("/tmp/?/lockd.sock", json.loads(result.stdout)["error"])

    def test_trace_without_a_daemon_leaves_an_older_file_alone(self):
        path = os.path.join(self.daemon.folder, "old.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("precious")
        result = subprocess.run([CTL, "--socket", "/nowhere/x", "trace", "-o", path], capture_output=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 3)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")

    def test_trace_looks_at_its_file_first(self):
        for path in (self.daemon.folder, "/nowhere/t.json"):  # a folder, and a file in a folder that is not there
            trace = subprocess.run([CTL, "--socket", self.daemon.path, "trace", "--seconds", "3600", "-o", path],
                                   capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(trace.returncode, 1)
            self.assertIn(f"{path}: cannot write the timeline", trace.stderr)

    def test_trace_that_is_refused_leaves_an_older_file_alone(self):
        path = os.path.join(self.daemon.folder, "old.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("precious")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:  # a daemon that has no place for listeners
            server.bind(os.path.join(self.daemon.folder, "full"))
            server.listen()
            trace = subprocess.Popen([CTL, "--socket", server.getsockname(), "trace", "-o", path], stderr=subprocess.PIPE)
            caller, _ = server.accept()
            caller.send(message(END, struct.pack("<iI192s", -16, 0, b"others listen already")))
            self.assertIn(b"others listen already", trace.communicate(timeout=PATIENCE)[1])
            caller.close()
        self.assertEqual(trace.returncode, 1)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")

    def test_nothing_is_printed_into_a_socket(self):
        for arguments in (["trace", "--seconds", "0.1"], ["status"], ["--help"]):  # its output is closed, or full
            for to in (">&-", ">/dev/full"):
                result = subprocess.run(["bash", "-c", f'"$@" {to}', "-", CTL, "--socket", self.daemon.path, *arguments],
                                        capture_output=True, timeout=PATIENCE)
                self.assertEqual((result.returncode, result.stdout), (1, b""), arguments)
                self.assertIn(b"standard output", result.stderr)
        self.assertNotIn("connection closed", self.daemon.said())

    def test_answer_that_does_not_end_is_given_up(self):
        stop = threading.Event()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.settimeout(PATIENCE)
            caller.connect(self.daemon.path)
            caller.send(message(STATUS, b""))
            first = caller.recv(4096)  # of a real answer
        self.assertEqual(struct.unpack_from("<IHH", first)[2], DAEMON)

        def go_on(server):
            caller, _ = server.accept()
            with caller:
                while not stop.wait(0.01):
                    try:
                        caller.send(first)
                    except OSError:
                        return
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.bind(os.path.join(self.daemon.folder, "endless"))
            server.listen()
            thread = threading.Thread(target=go_on, args=(server,))
            thread.start()
            try:  # doctor waits 3 s, others 10
                doctor = subprocess.run([CTL, "--socket", server.getsockname(), "doctor"], capture_output=True, timeout=PATIENCE)
            finally:
                stop.set()
                thread.join()
        self.assertIn(b"the answer does not end", doctor.stdout)

    def test_figures_of_a_liar_are_no_negative_numbers(self):
        self.programs[0].say(moved_out=2**64 - 2, switch_ns=2**63)
        programs = json.loads(self.ctl("status", "--json"))["devices"][0]["programs"]
        self.assertEqual(max(p["moved_out"] for p in programs), 2**63 - 1)
        self.assertGreaterEqual(min(min(p["moved_out"], p["switch_ns"]) for p in programs), 0)

    def test_listener_that_does_not_read_loses_its_place(self):
        self.listen_and_do_not_read(3600)
        self.ctl("trace", "--seconds", "0.1", code=1)  # there is no place
        for listener in self.listeners:
            listener.close()
        self.listen_and_do_not_read(1)

        def listens():
            return subprocess.run([CTL, "--socket", self.daemon.path, "trace", "--seconds", "0.1"], capture_output=True,
                                  timeout=PATIENCE).returncode == 0
        wait_for(listens, PATIENCE, "a place among those that do not read")

    def listen_and_do_not_read(self, seconds):
        """All places are taken for so long, by connections that do not read."""
        self.listeners = []
        for _ in range(16):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.addCleanup(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            listener.connect(self.daemon.path)
            listener.send(message(TRACE, struct.pack("<Q", seconds * 10**9)))
            self.listeners.append(listener)
        for step in range(600):  # more than their sockets hold
            self.programs[0].say(moved_out=step * MIB)

    def top(self, rows, columns, term="xterm", **options):
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        top = subprocess.Popen([CTL, "--socket", self.daemon.path, "top", "--interval", "0.1"], stdin=other, stdout=other,
                               stderr=other, env={**os.environ, "TERM": term, "LC_ALL": "C.UTF-8"}, **options)
        os.close(other)
        self.addCleanup(top.wait)
        self.addCleanup(top.kill)
        return top, main

    def read(self, main, until, timeout=PATIENCE):
        """What is written, until that is part of it or the terminal is closed."""
        seen, end = b"", time.monotonic() + timeout
        while until not in seen and time.monotonic() < end:
            if select.select([main], [], [], 0.1)[0]:
                try:
                    seen += os.read(main, 65536)
                except OSError:
                    break
        return seen

    def resize(self, top, main, rows, columns):
        fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        top.send_signal(signal.SIGWINCH)

    def test_top_shows_what_fits_in_80_columns_and_outlives_any_size(self):
        top, main = self.top(24, 80)
        seen = self.read(main, b"q quit")
        for wanted in (b"BUSY", b"ALLOWED", b"switches", b" waiting, ", b"[#", "\u65e5".encode()):
            self.assertIn(wanted, seen)
        for rows, columns in ((10, 40), (1, 1), (2, 5), (100, 300)):
            self.resize(top, main, rows, columns)
            os.write(main, b"o\x1b[B")
            seen = self.read(main, b"TURNS" if columns == 300 else b"nothing", 0.3 if columns < 300 else PATIENCE)
            self.assertIsNone(top.poll())
        self.assertRegex(seen, b" OUT +IN .*TURNS")
        os.write(main, b"q")
        self.read(main, b"nothing")
        self.assertEqual(top.wait(PATIENCE), 0)
        os.close(main)

    def test_top_ends_with_its_terminal(self):
        top, main = self.top(24, 80, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.read(main, b"q quit")
        os.close(main)
        top.wait(PATIENCE)

    def test_top_on_a_terminal_without_a_cursor_says_so(self):
        top, main = self.top(24, 80, term="dumb")
        self.assertIn(b"cannot move the cursor", self.read(main, b"top --json"))
        self.assertEqual(top.wait(PATIENCE), 1)
        os.close(main)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
