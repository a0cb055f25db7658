#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-lockd's configuration: files, drop-ins, reload, what is refused and how; systemd's side of the service.

usage: test_config.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import grp
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import GIB, MIB, PATIENCE, PAUSED, RUN, RUNNING, WANT, Daemon, Program, Refused, hello, state, wait_for, wish
from other_user import AS_OTHER_USER, copy_for_others, make_folder

LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))


class ConfigTest(unittest.TestCase):
    def setUp(self):
        self.folder = make_folder()
        self.path = os.path.join(self.folder, "lockd.conf")
        self.daemon = None
        self.addCleanup(shutil.rmtree, self.folder)

    def tearDown(self):
        if self.daemon:
            self.assertEqual(self.daemon.end(), 0, self.daemon.said())
            self.assertNotIn("Sanitizer", self.daemon.said())
            shutil.rmtree(self.daemon.folder)

    def write(self, text, drop_in=None):
        path = self.path
        if drop_in:
            os.makedirs(path + ".d", exist_ok=True)
            path = os.path.join(path + ".d", drop_in)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def start(self, *options):
        self.daemon = Daemon(LOCKD, "--config", self.path, *options)
        self.addCleanup(self.daemon.process.kill)

    def ctl(self, *arguments, code=0):
        result = subprocess.run([CTL, "--socket", self.daemon.path, *arguments], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def status(self):
        return json.JSONDecoder().raw_decode(self.ctl("status", "--json"))[0]  # a remark may follow

    def settings(self):
        return self.status()["daemon"]

    def check(self):
        result = subprocess.run([LOCKD, "--config", self.path, "--check"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertNotIn("Sanitizer", result.stderr)
        return result.returncode, result.stderr

    def test_file_drop_ins_and_command_line_in_that_order(self):
        self.write("# ours\n[scheduling]\nquantum = 1000\nidle = 30 ; inline\n  policy = rr\n[limits]\nmax-programs=9\n")
        self.write("[scheduling]\nquantum = 2000\nreserve = 1GiB\n", "20-b.conf")
        self.write("[scheduling]\nquantum = 3000\nidle = 40\n", "10-a.conf")
        self.write("rubbish", "30-c.conf.bak")
        self.start("--reserve", "2GiB")
        daemon = self.settings()
        self.assertEqual((daemon["quantum_ns"], daemon["idle_ns"], daemon["reserve"], daemon["policy"]),
                         (2 * 10**9, 40 * 10**6, 2 * GIB, "rr"))

    def test_every_key_is_taken(self):
        self.write("[daemon]\nidle-exit = never\nlog-level = debug\n[scheduling]\nquantum = auto\nquantum-min = 100\n"
                   "quantum-max = 5000\nswitch-share = 7.5\nidle = auto\npolicy = priority\nexclusive = yes\nreserve = auto\n"
                   "host = 8GiB\nhand-over = no\n[limits]\nmax-connections = 10\nmax-programs = 5\nmax-memory = 1GiB\nmax-messages = 500\n"
                   "[access]\ncontrol-group = " + grp.getgrgid(os.getgid()).gr_name + "\n")
        self.start()
        daemon = self.settings()
        self.assertEqual((daemon["quantum_ns"], daemon["quantum_min_ns"], daemon["quantum_max_ns"], daemon["switch_share_ppm"],
                          daemon["policy"], daemon["exclusive"], daemon["host_limit"], daemon["idle_exit_ns"], daemon["hand_over"]),
                         (None, 10**8, 5 * 10**9, 75000, "priority", True, 8 * GIB, None, False))

    def test_maximum_of_the_quantum_below_its_ordinary_minimum_counts(self):
        self.write("[scheduling]\nquantum-max = 100\n")
        self.start()
        self.assertEqual([self.settings()[f"quantum_{bound}_ns"] for bound in ("min", "max")], [10**8, 10**8])

    def test_bad_files_are_refused_with_the_line(self):
        for text, said in (("[scheduling]\nquantum = soon\n", ":2: quantum: 'soon' is not a number"),
                           ("[scheduling]\n\nquantum = 0\n", ":3: quantum: 0 is outside 1 to 3600000 milliseconds"),
                           ("quantum = 5\n", ":1: quantum belongs into section [scheduling]"),
                           ("[limits]\nquantum = 5\n", ":2: quantum belongs into section [scheduling]"),
                           ("[scheduling]\ncolour = red\n", ":2: unknown key 'colour'; [scheduling] knows: policy, exclusive, quantum"),
                           ("[scheduling]\nqauntum = 5\n", "did you mean 'quantum'?"),
                           ("colour = red\n", ":1: 'colour' stands before the first section; the sections are [daemon]"),
                           ("[paint]\ncolour = red\n", ":2: unknown section [paint]; the sections are [daemon], [scheduling], [limits], [access], [classes], [overcommit]"),
                           ("[classes]\nroot = fast\n", ":2: root: 'fast' is not one of: auto, interactive, batch, background"),
                           ("[classes]\nnightly.slice = Batch\n", ":2: nightly.slice: 'Batch' is not one of"),
                           ("[classes]\nno-such-user-here = batch\n", "not a user of this machine; write the name or number of one, or a systemd unit"),
                           ("[classes]\n99999999999999999999 = batch\n", "not the number of a user"),
                           ("[classes]\n" + "u" * 95 + ".service = batch\n", "longer than 95 bytes"),
                           ("[overcommit]\nroot = much\n", ":2: root: 'much' is not a size"),
                           ("[overcommit]\nno-such-user-here = 1GiB\n", "not a user of this machine"),
                           ("[scheduling]\nquantum\n", ":2: expected"), ("[scheduling\n", ":1: expected"),
                           ("[scheduling] quantum = 5\n", ":1: unexpected text after"),
                           ("[scheduling]\npolicy = best\n", "not one of: fair, fifo, rr, priority"),
                           ("[scheduling]\nexclusive = 1\n", "not one of: no, yes"),
                           ("[scheduling]\nreserve = lots\n", "not a size"), ("[scheduling]\nswitch-share = 0\n", "0 is outside 0.1 to 50 percent"),
                           ("[scheduling]\nhand-over = always\n", "not one of: no, yes"),
                           ("[scheduling]\nquantum-min = 9\nquantum-max = 8\n", "quantum-min is above"),
                           ("[limits]\nmax-messages = 1\n", "outside 100"), ("[limits]\nmax-programs = -1\n", "whole number"),
                           ("[limits]\nmax-programs = 99999999999999999999\n", "whole number"),
                           ("[daemon]\nlog-level = loud\n", "debug"), ("[access]\ncontrol-group = " + "x" * 70, "longer"),
                           ("# " + "x" * 300 + "\n", ":1: the line is longer"), (b"[daemon]\n\0\n", ":2: a zero byte"),
                           ("x" * 70000, "larger than"), ("[scheduling]\nquantum = 5\n  6\n", ":3: expected")):
            self.write(text)
            code, error = self.check()
            self.assertEqual(code, 2, text)
            self.assertIn(said, error)
            self.assertEqual(len(error.splitlines()), 1)

    def test_check_is_silent_about_good_files_and_names_missing_ones(self):
        self.assertEqual(self.check()[0], 2)
        self.assertIn("cannot read", self.check()[1])
        self.write("\ufeff[scheduling]  ; ours\nquantum: 5\n\n; nothing\n")
        self.assertEqual(self.check(), (0, ""))
        self.write("[scheduling]\nquantum = never\n", "x.conf")
        self.assertIn("lockd.conf.d/x.conf:2", self.check()[1])
        os.unlink(self.path)
        os.mkdir(self.path)
        self.assertIn("not a file", self.check()[1])

    def test_example_file_shows_every_key_and_its_default(self):
        example = os.path.join(os.path.dirname(LOCKD), "systemd/lockd.conf")
        with open(example, encoding="utf-8") as file:
            text = re.sub(r"^#([a-z-]+ =)", r"\1", file.read(), flags=re.M)
        self.write(text)
        self.assertEqual(self.check(), (0, ""))
        known = subprocess.run([LOCKD, "--help"], capture_output=True, text=True, timeout=PATIENCE).stdout.split("also keys")[1]
        self.assertEqual(set(re.findall(r"^([a-z-]+) =", text, re.M)), set(re.findall(r"^  --([a-z-]+)", known, re.M)))
        self.start()
        shown = self.settings()
        self.daemon.end()
        shutil.rmtree(self.daemon.folder)
        self.write("")
        self.start()
        now = self.settings()
        for measured in ("pid", "start_ns", "uptime_ns", "host_total"):
            shown[measured] = now[measured] = None
        self.assertEqual(now, shown)

    def test_unknown_control_group_is_refused(self):
        self.write("[access]\ncontrol-group = no-such-group-here\n")
        result = subprocess.run([LOCKD, "--config", self.path, "--socket", self.folder + "/s"], capture_output=True, text=True,
                                timeout=PATIENCE)
        self.assertEqual(result.returncode, 2)
        self.assertIn("group 'no-such-group-here' does not exist", result.stderr)
        self.assertEqual(self.check(), (2, result.stderr))

    def test_reload_takes_new_settings_and_keeps_old_ones_when_bad(self):
        self.write("[scheduling]\nquantum = 1000\n")
        self.start("--idle", "50")
        program = Program(self.daemon.path)
        program.say(flags=WANT, demand=GIB)
        program.settle(lambda p: p.resident == GIB)
        self.write("[scheduling]\nquantum = 2000\n")
        self.daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.settings()["quantum_ns"] == 2 * 10**9, PATIENCE, "the reload")
        self.assertEqual(self.settings()["idle_ns"], 50 * 10**6)  # the command line still counts
        self.ctl("set", "quantum", "7000")
        self.write("[scheduling]\nquantum = 3000\npolicy = bes\n")
        self.assertIn("lockd.conf:3", self.ctl("reload", code=1))
        self.assertEqual(self.settings()["quantum_ns"], 7 * 10**9)
        self.write("[scheduling]\nquantum = 3000\n")
        self.ctl("reload")
        self.assertEqual(self.settings()["quantum_ns"], 3 * 10**9)
        self.assertIn("was not changed", self.daemon.said())
        program.say(flags=WANT, demand=12 * GIB)  # and it is still served
        program.settle(lambda p: p.resident == 12 * GIB)

    def test_memory_is_handed_over_unless_that_is_disabled(self):
        for text, on in (("", True), ("hand-over = yes\n", True), ("hand-over = no\n", False)):
            self.write("[scheduling]\n" + text)
            if self.daemon is None:
                self.start()
            self.ctl("reload")
            self.assertEqual(self.settings()["hand_over"], on, text)
            self.assertEqual("hand-over is off" in self.ctl("status"), not on, text)
            self.assertEqual("checkpoint" in self.ctl("doctor", "--json"), on, text)
        said = self.daemon.said()
        self.assertEqual((said.count("memory is no longer handed over"), said.count("memory is handed over from now on")), (1, 0))

    def test_user_has_the_class_of_its_line_or_a_lower_one(self):
        self.write(f"[classes]\n{os.getuid()} = background\n")
        self.start()
        asks = {"nothing": 0, "interactive": 1, "batch": 2}
        programs = {name: Program(self.daemon.path, name, say_hello=False) for name in asks}
        for name, program in programs.items():
            program.socket.send(hello(name, class_number=asks[name]))
            program.say(demand=MIB)

        def classes():
            return {name: program["class"] for name, program in self.programs().items()}
        wait_for(lambda: len(self.programs()) == 3, PATIENCE, "all three")
        self.assertEqual(set(classes().values()), {3})
        self.assertIn("interactive (process", self.daemon.said())
        self.assertIn("has class background by [classes] of the configuration, and asked for interactive", self.daemon.said())
        self.reload_with("[classes]\nroot = background\n%d = batch\n" % os.getuid())
        self.assertEqual(set(classes().values()), {2})
        self.ctl("set", "class", str(os.getpid()), "interactive")  # a person's word counts more, until the line changes
        self.assertEqual(set(classes().values()), {1})
        programs["batch"].socket.send(wish(1, 3))
        wait_for(lambda: classes()["batch"] == 3, PATIENCE, "the wish for less")
        self.reload_with("[classes]\n%d = interactive\n" % os.getuid())
        self.assertEqual(classes(), {"nothing": 1, "interactive": 1, "batch": 3})
        self.write("[classes]\nroot = fast\n")
        self.assertIn("lockd.conf:2: root: 'fast' is not one of", self.ctl("reload", code=1))
        self.assertIn("is not one of: auto, interactive, batch, background", self.ctl("set", "class", str(os.getpid()), "fast", code=2))
        self.assertEqual(classes()["nothing"], 1)

    def test_user_may_have_its_own_bytes_beyond_the_card(self):
        me = os.getuid()
        for text, said in (("[limits]\novercommit = 1GiB\n", GIB),
                           (f"[overcommit]\n{me} = 3GiB\n", 3 * GIB),
                           (f"[limits]\novercommit = 1GiB\n[overcommit]\n{me} = 3GiB\n", 3 * GIB),
                           (f"[limits]\novercommit = 1GiB\n[overcommit]\n{me} = 0\n", 0),
                           (f"[limits]\novercommit = 1GiB\n[overcommit]\n{me} = auto\n", 2**64 - 1),
                           (f"[limits]\novercommit = 1GiB\n[overcommit]\n{me + 1} = 3GiB\n", GIB),
                           ("[daemon]\n", 0)):
            if self.daemon is None:
                self.write(text)
                self.start()
            else:
                self.reload_with(text)
            program = Program(self.daemon.path)
            program.say(demand=MIB)
            self.assertEqual(program.hear().overcommit, said, text)
            program.close()

    def reload_with(self, text):
        self.write(text)
        self.ctl("reload")

    def test_programs_of_a_user_are_bounded(self):
        self.write("[limits]\nmax-programs = 2\nmax-connections = 4\n")
        self.start()
        first, second = Program(self.daemon.path), Program(self.daemon.path)
        first.say(demand=MIB)
        self.assertIsNotNone(first.hear())
        third = Program(self.daemon.path)
        with self.assertRaisesRegex(Refused, "max-programs"):
            third.hear()
        spare = [Program(self.daemon.path, say_hello=False) for _ in range(2)]
        fifth = Program(self.daemon.path, say_hello=False)
        with self.assertRaisesRegex(Refused, "max-connections"):
            fifth.hear()
        self.assertIn("max-connections", self.ctl("status", code=1))  # the reason reaches the user
        for each in spare:
            each.close()
        second.close()
        wait_for(lambda: subprocess.run([CTL, "--socket", self.daemon.path, "status"], capture_output=True).returncode == 0, PATIENCE,
                 "room for another")
        Program(self.daemon.path).say()

    def test_memory_of_a_user_is_bounded(self):
        self.write("[limits]\nmax-memory = 6GiB\n")
        self.start()
        one, two = Program(self.daemon.path, "one"), Program(self.daemon.path, "two")
        one.say(demand=4 * GIB)
        two.say(demand=GIB)
        wait_for(lambda: self.programs()["two"]["limit"] == 2 * GIB, PATIENCE, "2 GiB")  # each has a connection of its own
        one.hear()  # what is left for it changes with what others have, say and are allowed, whatever it does itself
        for limit, change in ((5 * GIB, lambda: None), (6 * GIB, two.close), (9 * GIB, lambda: self.reload("max-memory = 9GiB")),
                              (16 * GIB, lambda: self.reload(""))):
            change()
            wait_for(lambda limit=limit: abs(one.target.capacity - limit) < GIB // 2 or one.hear(0.1) and one.say(), PATIENCE,
                     f"{limit / GIB} GiB")

    def reload(self, limits):
        self.write(f"[limits]\n{limits}\n")
        self.ctl("reload")

    def programs(self):
        return {p["name"]: p for d in self.status()["devices"] for p in d["programs"]}

    def test_memory_of_a_user_is_bounded_on_each_device_by_itself(self):
        self.write("[limits]\nmax-memory = 8GiB\n")
        self.start()
        other = Program(self.daemon.path, "other")
        other.say(demand=6 * GIB)
        both = Program(self.daemon.path, "both")
        cards, heard, limits = (bytes(range(16)), bytes([9] * 16)), 0, {}
        for card in cards:
            both.socket.send(state(uuid=card, demand=1 << 20))
        while both.hear(0.5) is not None:
            heard += 1
            self.assertLess(heard, 20, "endless targets")
            limits[both.target.uuid] = both.target.capacity
            both.socket.send(state(seq=both.target.seq, uuid=both.target.uuid, demand=1 << 20))
        self.assertEqual(limits, {cards[0]: 2 * GIB, cards[1]: 8 * GIB})

    def test_program_with_more_than_its_user_may_have_is_held_back(self):
        self.write("[limits]\nmax-memory = 8GiB\n")
        self.start()
        one, two = Program(self.daemon.path, "one"), Program(self.daemon.path, "two")
        one.say(demand=6 * GIB, flags=WANT)
        one.settle(lambda p: p.flags & RUNNING)
        two.say(demand=4 * GIB, flags=WANT)
        self.assertEqual(two.hear().flags & (RUN | PAUSED), PAUSED)
        self.assertEqual(two.target.budget, 0)
        self.assertIn("max-memory", self.ctl("status", "--json"))
        self.ctl("resume", str(os.getpid()))  # is not what holds it back
        self.assertEqual(self.programs()["two"]["state"], "paused")
        one.say(demand=3 * GIB, resident=3 * GIB)
        two.settle(lambda p: p.flags & RUNNING)
        two.say(demand=15 * GIB, flags=WANT | RUNNING)
        two.settle(lambda p: p.target.flags & (RUN | PAUSED) == PAUSED and not p.flags & RUNNING)
        self.write("[limits]\nmax-memory = auto\n")
        self.ctl("reload")
        one.close()
        two.settle(lambda p: p.flags & RUNNING)
        self.ctl("pause", str(os.getpid()))
        two.settle(lambda p: not p.flags & RUNNING)  # and nobody but who paused it lets it go on
        two.say()
        self.assertEqual(self.programs()["two"]["state"], "paused")

    def test_watchdog_and_reload_are_told_to_systemd(self):
        self.write("")
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(os.path.join(self.folder, "notify"))
        notify.settimeout(PATIENCE)
        path = os.path.join(self.folder, "s")
        process = subprocess.Popen([LOCKD, "--config", self.path, "--socket", path], stderr=subprocess.DEVNULL,
                                   env={**os.environ, "NOTIFY_SOCKET": notify.getsockname(), "WATCHDOG_USEC": "400000"})
        self.addCleanup(process.kill)
        said = [notify.recv(100), notify.recv(100)]
        self.assertEqual(said, [b"READY=1", b"WATCHDOG=1"])
        for _ in range(3):
            self.assertEqual(notify.recv(100), b"WATCHDOG=1")
        process.send_signal(signal.SIGHUP)
        said = []
        while b"READY=1" not in said:
            said.append(notify.recv(100))
        self.assertIn(b"RELOADING=1", said)
        process.terminate()
        while notify.recv(100) != b"STOPPING=1":
            pass
        self.assertEqual(process.wait(PATIENCE), 0)
        notify.close()

    @unittest.skipUnless(os.getuid() == 0, "needs root to become another user")
    def test_control_group_may_set_and_others_may_not(self):
        self.write("[access]\ncontrol-group = nogroup\n")
        self.start()
        os.chmod(self.daemon.folder, 0o755)
        os.chmod(self.daemon.path, 0o666)
        own = os.stat(self.daemon.folder).st_gid
        nogroup = grp.getgrnam("nogroup").gr_gid

        (ctl,) = copy_for_others(self, CTL)

        def as_user(*arguments, gid):
            return subprocess.run([ctl, "--socket", self.daemon.path, *arguments], capture_output=True, text=True,
                                  **{**AS_OTHER_USER, "group": gid})
        self.assertEqual(as_user("set", "quantum", "500", gid=nogroup).returncode, 0)
        self.assertEqual(self.settings()["quantum_ns"], 5 * 10**8)
        stranger = as_user("status", gid=64999)
        self.assertEqual(stranger.returncode, 1)
        self.assertIn("may not use this gpushare-lockd", stranger.stderr)
        program = Program(self.daemon.path)  # root's
        program.say()
        program.hear()
        self.assertEqual(own, os.stat(self.daemon.path).st_gid)

    @unittest.skipUnless(os.getuid() == 0, "needs root to become another user")
    def test_one_user_cannot_keep_others_from_recording(self):
        folder = make_folder()
        os.chmod(folder, 0o710)
        os.chown(folder, 0, 64999)  # whose members may connect
        self.write("")
        self.daemon = Daemon(LOCKD, "--config", self.path, folder=folder)
        self.addCleanup(self.daemon.process.kill)
        (ctl,) = copy_for_others(self, CTL)
        long = [subprocess.Popen([ctl, "--socket", self.daemon.path, "trace", "--seconds", "60"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, **{**AS_OTHER_USER, "group": 64999}) for _ in range(5)]
        for each in long:
            self.addCleanup(each.wait)
            self.addCleanup(each.kill)
            self.addCleanup(each.stderr.close)
        wait_for(lambda: sum(each.poll() is not None for each in long) == 1, PATIENCE, "one of five to be refused")
        refused = next(each for each in long if each.poll() is not None)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("already record four", refused.stderr.read())
        self.ctl("trace", "--seconds", "0.1", "-o", self.folder + "/t.json")

    @unittest.skipUnless(os.getuid() == 0, "needs root to become another user")
    def test_programs_of_others_may_not_ask_for_more_than_the_ordinary(self):
        self.write("[access]\ncontrol-group = nogroup\n")
        folder = make_folder()
        os.chmod(folder, 0o710)
        os.chown(folder, 0, 64999)  # whose members may connect
        self.daemon = Daemon(LOCKD, "--config", self.path, folder=folder)
        self.addCleanup(self.daemon.process.kill)

        def joins(name, weight, priority, groups):
            in_it, done = os.pipe(), os.pipe()
            pid = os.fork()
            if pid == 0:
                os.setgroups(groups)
                os.setgid(64999)
                os.setuid(65533)
                program = Program(self.daemon.path, say_hello=False)
                program.socket.send(hello(name, weight=weight, priority=priority))
                program.say()
                program.hear()
                os.write(in_it[1], b"!")
                os.close(done[1])
                os.read(done[0], 1)
                os._exit(0)
            self.addCleanup(os.waitpid, pid, 0)
            self.addCleanup(os.close, done[1])
            os.close(in_it[1])
            os.close(done[0])
            self.assertEqual(os.read(in_it[0], 1), b"!", name)
            os.close(in_it[0])

        joins("greedy", 10000, 100, [])
        joins("modest", 50, -5, [])
        joins("steward", 300, 7, [grp.getgrnam("nogroup").gr_gid])
        self.assertEqual({n: (p["weight"], p["priority"]) for n, p in self.programs().items()},
                         {"greedy": (100, 0), "modest": (50, -5), "steward": (300, 7)})


if __name__ == "__main__":
    unittest.main(warnings="ignore")
