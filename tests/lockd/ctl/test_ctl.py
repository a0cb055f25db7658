#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl against a real daemon: what it prints, its JSON, its exit codes.

usage: test_ctl.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import unittest

from ctl_case import CTL, LOCKD, CtlCase  # first: it leads to the folders above
from fake import CONTROL, GIB, PATIENCE, PAUSED, RUN, RUNNING, WANT, Program, message, note, settle_all, wait_for


class CtlTest(CtlCase):
    def test_status_text_names_everybody(self):
        text = self.ctl("status")
        self.assertIn("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", text)
        self.assertRegex(text, rf"{os.getpid()} [a-z0-9_.-]+ +train +runs +7.0 GiB +7.0 GiB +0 B")
        self.assertRegex(text, r"infer \?\[31m +waits +7.0 GiB +0 B +7.0 GiB")  # no escape sequence reaches a terminal
        self.assertIn("leases: capacity 10.0 GiB, demand 14.0 GiB, resident 7.0 GiB, quantum 60.0 s, 1 waiting", text)
        self.assertNotIn("\x1b", text)

    def test_status_json_has_the_schema(self):
        answer = self.status()
        self.assertEqual(answer["running"], True)
        self.assertEqual(answer["daemon"]["quantum_ns"], 60 * 10**9)
        device = answer["devices"][0]
        self.assertEqual((device["mode"], device["waiting"], device["total"]), ("leases", 1, 10 * GIB))
        one = self.programs()["train"]
        self.assertEqual((one["state"], one["demand"], one["resident"], one["lease"]), ("runs", 7 * GIB, 7 * GIB, True))
        self.assertEqual(answer["notes"], [])

    def test_note_of_an_ended_program_is_kept(self):
        last = Program(self.daemon.path, say_hello=False)
        for _ in range(2):
            last.socket.send(note(1, "nothing was routed", name="prog", pid=4242))
        last.close()
        notes = self.status()["notes"]
        self.assertEqual(len(notes), 1)
        self.assertEqual((notes[0]["text"], notes[0]["kind"], notes[0]["count"]), ("nothing was routed", "unrouted", 2))
        self.assertIn("nothing was routed", self.ctl("status"))

    def test_pause_and_resume_one_program(self):
        # both have this process's id: a pause concerns both
        self.assertIn("paused 2 programs", self.ctl("pause", str(os.getpid())))
        while not self.one.target.flags & PAUSED:
            self.one.hear()
        self.assertFalse(self.one.target.flags & RUN)
        self.one.obey()
        self.assertIn(self.programs()["train"]["state"], ("paused", "stopping"))
        self.assertIn("resumed 2 programs", self.ctl("resume", "all"))
        settle_all([self.one, self.two], lambda: (self.one.flags | self.two.flags) & RUNNING)

    def test_set_quantum_takes_effect_at_once(self):
        self.ctl("set", "quantum", "1")
        self.assertEqual(self.status()["devices"][0]["quantum_ns"], 10**6)
        while self.one.target.flags & RUN:
            self.assertIsNotNone(self.one.hear())
        self.ctl("set", "quantum", "auto")
        self.assertIsNone(self.status()["daemon"]["quantum_ns"])

    def test_set_reserve_lowers_the_capacity(self):
        self.ctl("set", "reserve", "1GiB")
        self.assertEqual(self.status()["devices"][0]["capacity"], 9 * GIB)

    def test_help_is_a_command(self):
        self.assertEqual(self.ctl("help"), self.ctl("--help"))
        self.assertEqual(self.ctl("help", "status"), self.ctl("status", "--help"))

    def test_status_is_printed_again_and_again(self):
        watch = subprocess.Popen([CTL, "--socket", self.daemon.path, "status", "--watch"], stdout=subprocess.PIPE, text=True)
        try:
            heads = 0
            while heads < 3:
                line = watch.stdout.readline()
                self.assertNotEqual(line, "")
                heads += line.startswith("gpushare-lockd ")
        finally:
            watch.terminate()
            watch.stdout.close()
            watch.wait()

    def test_wrong_usage_says_what(self):
        for arguments, code, said in ((["frob"], 2, "unknown command"), ([], 2, "usage: gpusharectl [options] COMMAND"), (["set"], 2, "usage"),
                                      (["set", "quantum", "0"], 2, "outside"), (["set", "quantum", "soon"], 2, "number"),
                                      (["set", "colour", "3"], 2, "no setting 'colour'"), (["pause", "-1"], 2, "'-1' is not a process id"),
                                      (["pause"], 2, "give"), (["pause", "99999999999"], 2, "'99999999999' is not"),
                                      (["resume", "1"], 4, "no program with process id 1"),
                                      (["set", "policy", "best"], 2, "not one of: fair, fifo"), (["set", "weight", "5"], 2, "PID"),
                                      (["set", "weight", "1", "0"], 2, "outside"), (["set", "priority", "1", "101"], 2, "outside"),
                                      (["set", "weight", "1", "5"], 4, "no program with"), (["set", "host", "lots"], 2, "not a size"),
                                      (["set", "exclusive", "maybe"], 2, "no, yes"), (["evict"], 2, "give"),
                                      (["set", "switch-share", "99"], 2, "outside"), (["suspend", "all"], 2, "process id"),
                                      (["trace", "--seconds", "0"], 2, "0.001 to 3600"), (["trace", "x"], 2, "no argument"),
                                      (["trace", "--seconds", "1", "-o", "/nowhere/t"], 1, "/nowhere/t"),
                                      (["serve", "--listen", "localhost:9"], 2, "not an IP address"),
                                      (["serve", "--listen", "0:9"], 2, "not an IP address"),
                                      (["serve", "--listen", "127.0.0.1:99999"], 2, "port"),
                                      (["serve", "--token-file", "/dev/null"], 1, "regular file"),
                                      (["top"], 1, "terminal"), (["top", "--interval", "0"], 2, "0.05"),
                                      (["doctor", "1", "2"], 2, "at most"), (["--socket", "here", "status"], 2, "full path"),
                                      (["--socket", "/" + "x" * 120, "status"], 2, "107 bytes"),
                                      (["--socket", "/etc/passwd", "status"], 1, "is a file, not the socket"),
                                      (["--socket", "/tmp", "status"], 1, "is a folder"),
                                      (["get", "colour"], 2, "no setting 'colour'"), (["get", "weight"], 2, "give a process id"),
                                      (["get", "idle", "1"], 2, "takes no process id"), (["get", "limit", "x"], 2, "not a process id"),
                                      (["set", "hand-over", "no"], 2, "configuration file"),
                                      (["cdi", "--output", "/x", "generate", "y"], 2, "unexpected argument 'y'"), (["cdi"], 2, "'generate'"),
                                      (["stauts"], 2, "did you mean 'status'"), (["xyzzy"], 2, "--help lists them"),
                                      (["status", "--often"], 2, "unknown option"), (["status", "--watch", "--json"], 2, "no JSON"), (["set", "quantun", "3"], 2, "did you mean 'quantum'?"), (["get", "reserv"], 2, "did you mean 'reserve'?"), (["help", "stauts"], 2, "did you mean 'status'"), (["status", "x"], 2, "no argument")):
            self.assertIn(said, self.ctl(*arguments, code=code))

    def test_limit_below_use_is_said(self):
        for limit, said in (("1GiB", f"process {os.getpid()} has 7.0 GiB now, more than the limit of 1.0 GiB"), ("9GiB", ""), ("auto", "")):
            done = subprocess.run([CTL, "--socket", self.daemon.path, "set", "limit", str(os.getpid()), limit], capture_output=True, text=True, check=True)
            self.assertIn(said, done.stderr)
            self.assertEqual(bool(said), bool(done.stderr), done.stderr)

    def test_measured_sizes_are_shown_in_units(self):
        self.assertRegex(self.ctl("get"), r"(?m)^host +auto \(\d+\.\d [GMT]iB\)")

    def test_no_daemon_is_told(self):
        nowhere = {"GPUSHARE_SOCKET": self.daemon.path + ".not"}
        for command in (["status"], ["pause", "all"], ["set", "idle", "10"], ["move", "1", "0"]):
            self.assertIn("no gpushare-lockd is running", self.ctl(*command, code=3, environment=nowhere))
        self.assertEqual(json.loads(self.ctl("status", "--json", environment=nowhere)),
                         {"running": False, "socket": nowhere["GPUSHARE_SOCKET"], "gpus": []})

    def test_help_lists_all_commands(self):
        text = self.ctl("--help")
        for command in ("status", "top", "set", "pause", "resume", "evict", "suspend", "reload", "trace", "metrics", "doctor",
                        "exit codes"):
            self.assertIn(command, text)
        self.assertIn("gpusharectl ", self.ctl("--version"))

    def test_help_and_release_everywhere(self):
        commands = re.findall(r"^  ([a-z]+) ", self.ctl("--help").split("options\n")[0], re.M)
        self.assertGreater(len(commands), 11)
        self.assertEqual(self.ctl("-h"), self.ctl("--help"))
        for command in commands:
            for words in (["-h"], ["--help"], ["x", "-h"], ["--json", "--help"]):
                self.assertIn(f"usage: gpusharectl {command} ", self.ctl(command, *words))
            self.assertEqual(self.ctl(command, "-V"), self.ctl("--version"))
        for option, said in (("-h", "usage: gpushare-lockd"), ("-V", "gpushare-lockd ")):
            self.assertIn(said, subprocess.run([LOCKD, option], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout)

    def test_json_of_a_change_says_how_it_went(self):
        done = json.loads(self.ctl("pause", "--json", str(os.getpid())))
        self.assertEqual((done["ok"], done["programs"], done["errno"]), (True, 2, 0))
        result = subprocess.run([CTL, "--socket", self.daemon.path, "set", "--json", "weight", "1", "7"], capture_output=True,
                                text=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 4)
        failed = json.loads(result.stdout)
        self.assertEqual((failed["ok"], failed["errno"]), (False, 3))
        self.assertIn("no program", failed["error"])

    def test_settings_arrive(self):
        me = str(os.getpid())
        for arguments in (["policy", "fifo"], ["exclusive", "yes"], ["quantum-min", "300"], ["quantum-max", "9000"],
                          ["switch-share", "2.5"], ["host", "3GiB"], ["weight", me, "250"], ["priority", me, "-7"],
                          ["limit", me, "8GiB"]):
            self.ctl("set", *arguments)
        answer = self.status()
        daemon, one = answer["daemon"], self.programs()["train"]
        self.assertEqual((daemon["policy"], daemon["exclusive"], daemon["quantum_min_ns"], daemon["quantum_max_ns"]),
                         ("fifo", True, 300 * 10**6, 9 * 10**9))
        self.assertEqual((daemon["switch_share_ppm"], daemon["host_limit"]), (25000, 3 * GIB))
        self.assertEqual((one["weight"], one["priority"], one["limit"]), (250, -7, 8 * GIB))
        self.assertIn("weight 250", self.ctl("status"))
        self.assertIn("quantum-min is above", self.ctl("set", "quantum-min", "10000", code=1))
        self.ctl("set", "limit", me, "auto")
        self.assertIsNone(self.programs()["train"]["limit"])

    def get(self, *arguments):
        return {s["name"]: s for s in json.loads(self.ctl("get", "--json", *arguments))["settings"]}

    def test_get_answers_what_is_in_force(self):
        self.ctl("set", "quantum-max", "9000")
        self.ctl("set", "policy", "rr")
        shown = self.get()
        self.assertEqual([(shown[name]["value"], shown[name]["in_force"], shown[name]["unit"]) for name in
                          ("quantum", "quantum-min", "quantum-max", "switch-share", "policy", "exclusive", "idle-exit", "max-programs")],
                         [(60 * 10**9, 60 * 10**9, "ns"), (None, 2 * 10**8, "ns"), (9 * 10**9, 9 * 10**9, "ns"),
                          (None, 15000, "ppm"), ("rr", "rr", ""), (False, False, ""), (None, None, "ns"), (1024, 1024, "")])
        self.assertNotIn("weight", shown)
        self.assertEqual(self.ctl("get", "quantum"), "60000\n")
        self.assertEqual(self.ctl("get", "quantum-min"), "auto\n")
        text = self.ctl("get")
        self.assertRegex(text, r"(?m)^quantum-min +auto \(200 ms\) +shortest")
        self.assertRegex(text, r"(?m)^policy +rr +rule")

    def test_get_of_one_program(self):
        me = str(os.getpid())
        self.ctl("set", "priority", me, "-7")
        self.ctl("set", "limit", me, "1536MiB")
        self.assertEqual(self.ctl("get", "priority", me), "-7\n-7\n")  # both have this process id
        self.assertEqual(self.ctl("get", "limit", me), "1536MiB\n1536MiB\n")
        answer = json.loads(self.ctl("get", "weight", me, "--json"))["settings"]
        self.assertEqual([(s["program"], s["pid"], s["value"]) for s in answer],
                         [(name, os.getpid(), 100) for name in ("train", "infer ?[31m")])
        self.assertIn("no program with process id 1", self.ctl("get", "weight", "1", code=4))

    def test_what_get_prints_is_what_set_takes(self):
        settable = re.findall(r"^  ([a-z][a-z-]*) ", self.ctl("set", "--help"), re.M)
        self.assertGreater(len(settable), 11)
        me = str(os.getpid())
        for name in settable:
            pid = [me] if name in ("weight", "priority", "limit", "class") else []
            before = self.ctl("get", name, *pid)
            self.ctl("set", name, *pid, before.split("\n", maxsplit=1)[0])
            self.assertEqual(self.ctl("get", name, *pid), before)

    def control(self, op, value, pid=0):
        """What the daemon answers to a change as some other program might ask for it: code and text."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.settimeout(PATIENCE)
            caller.connect(self.daemon.path)
            caller.send(message(CONTROL, struct.pack("=IiQ", op, pid, value % 2**64)))
            answer = caller.recv(4096)
        if not answer:
            return None, "hung up"
        code, _, text = struct.unpack_from("=iI192s", answer, 16)
        return code, text.split(b"\0")[0].decode()

    def test_log_level_while_it_runs(self):
        self.ctl("set", "log-level", "error")
        self.ctl("set", "idle", "100")
        self.ctl("set", "log-level", "info")
        self.ctl("set", "idle", "200")
        self.assertIn("value 200000000: done", self.daemon.said())
        self.assertNotIn("value 100000000", self.daemon.said())

    def test_daemon_checks_the_bounds_itself(self):
        before, me = self.get(), os.getpid()
        for op, value, said in ((1, 999999, "quantum: the value is out of range (1 to 3600000 ms, or auto)"),
                                (2, 3600 * 10**9 + 1, "idle: "), (13, 999, "switch-share: "), (13, 500001, "switch-share: "),
                                (3, 2**48 + 1, "reserve: "), (6, 4, "policy: the value is out of range (fair|fifo|rr|priority)"),
                                (7, 2, "exclusive: "), (8, 0, "weight: "), (8, 10001, "weight: "), (9, 101, "priority: "),
                                (9, -101, "priority: the value is out of range (-100 to 100)"), (10, 2**48 + 1, "limit: ")):
            code, text = self.control(op, value, me if op in (8, 9, 10) else 0)
            self.assertEqual(code, -34, (op, value, text))
            self.assertTrue(text.startswith(said), text)
        self.assertEqual(self.get(), before)
        for op in (0, 5000):
            self.assertEqual(self.control(op, 1), (None, "hung up"))
        self.assertEqual(self.control(1, 10**6), (0, ""))
        self.assertEqual(self.control(9, -100, me), (0, ""))
        self.assertEqual(self.ctl("get", "quantum") + self.ctl("get", "priority", str(me)), "1\n-100\n-100\n")

    def test_evict_moves_memory_out(self):
        self.assertIn("evicting 2", self.ctl("evict", str(os.getpid())))
        while self.one.resident:
            self.assertIsNotNone(self.one.hear(), "nothing more came, and it still holds memory")
            self.one.obey()

    def test_suspend_moves_out_and_stays_so(self):
        self.ctl("suspend", str(os.getpid()))
        for program in (self.one, self.two):
            while not program.target.flags & PAUSED or program.resident:
                self.assertIsNotNone(program.hear())
                program.obey()
        self.assertEqual({p["state"] for p in self.programs().values()}, {"paused"})
        self.ctl("resume", "all")
        settle_all([self.one, self.two], lambda: (self.one.flags | self.two.flags) & RUNNING)

    def test_nobody_runs_before_a_suspended_program_has_stopped(self):
        self.two.say(flags=0)
        self.ctl("set", "exclusive", "yes")
        other = os.fork()
        if other == 0:
            try:
                program = Program(self.daemon.path, "other", total=10 * GIB)
                program.say(flags=WANT, demand=GIB)
                while program.hear():
                    program.obey()
            finally:
                os._exit(0)
        self.addCleanup(os.waitpid, other, 0)  # it ends with the daemon
        wait_for(lambda: self.programs().get("other", {}).get("state") == "waits", PATIENCE, "the other program to wait")
        while self.one.hear(0.2):
            self.one.obey()
        self.ctl("suspend", str(os.getpid()))
        programs = self.programs()
        self.assertEqual((programs["train"]["state"], programs["other"]["lease"]), ("stopping", False))

    def test_metrics_are_prometheus_text(self):
        text = self.ctl("metrics")
        seen = set()
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                self.assertNotIn(line, seen)  # a family is in one piece
                seen.add(line)
            elif not line.startswith("#"):
                self.assertRegex(line, r'^gpushare_[a-z_]+(\{([a-z]+="(\\.|[^"\\])*",?)+\})? [0-9.]+$')
        self.assertIn("gpushare_up 1\n", text)
        self.assertRegex(text, r'gpushare_program_resident_bytes\{pid="\d+",uid="\d+",user="[^"]+",name="train",[^}]*\} %d\n' % (7 * GIB))
        self.assertIn('state="waits"} 1', text)
        self.assertEqual([line for line in self.ctl("metrics", environment={"GPUSHARE_SOCKET": "/nowhere/x"}).splitlines()
                          if line[0] != "#"], ["gpushare_up 0"])

    def metric(self, name, *labels):
        """The values of the series of a metric that have all these labels."""
        lines = re.findall(rf"(?m)^gpushare_{name}(?:{{(.*)}})? ([0-9.]+)$", self.ctl("metrics"))
        return [float(value) for has, value in lines if all(label in has for label in labels)]

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed (Debian's package prometheus)")
    def test_promtool_finds_nothing(self):
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.ctl("metrics"), capture_output=True, text=True,
                                 check=False, timeout=PATIENCE)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))

    def test_metrics_of_very_many_programs_are_summed(self):
        many = [Program(self.daemon.path, f"many{i}", total=10 * GIB) for i in range(510)]
        for each in many:
            self.addCleanup(each.close)
            each.say(demand=GIB)
        wait_for(lambda: sum(program["demand"] == GIB for program in self.status()["devices"][0]["programs"]) == 510, PATIENCE, "all reports")
        lines = re.findall(r'(?m)^gpushare_program_demand_bytes\{pid="([0-9]+)".*name="([^"]*)".*\} ([0-9]+)$', self.ctl("metrics"))
        self.assertEqual(len(lines), 501)
        self.assertEqual(sum(int(value) for _, _, value in lines), (510 + 2 * 7) * GIB)
        rest, = [value for pid, name, value in lines if (pid, name) == ("0", "(others)")]
        self.assertEqual(int(rest) % GIB, 0)
        self.assertEqual(re.findall(r'(?m)^gpushare_program_\w+_total\{pid="0",name="\(others\)".*$', self.ctl("metrics")), [])  # could fall
        states = re.findall(r'(?m)^gpushare_program_state\{pid="0",name="\(others\)".*\} ([0-9]+)$', self.ctl("metrics"))
        self.assertEqual(sum(map(int, states)), 12)

    def test_list_of_metrics_is_that_of_the_answer_and_of_the_page(self):
        """The families need no daemon; an answer has the same, in the same order."""
        texts = [self.ctl("metrics", environment={"GPUSHARE_SOCKET": "/nowhere/x"}), self.ctl("metrics")]
        listed, answered = [[line for line in text.splitlines() if line[0] == "#"] for text in texts]
        self.assertGreater(len(listed), 100)
        self.assertEqual(answered, listed)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../scripts/metrics_doc.py")
        build = os.path.dirname(os.path.dirname(CTL))
        checked = subprocess.run([sys.executable, script, "--build", build, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_program_is_in_one_state_and_of_one_class(self):
        for metric, count, present in (("state", 12, {"train": "runs", "infer": "waits"}),
                                       ("class", 3, {"train": "batch", "infer": "batch"})):
            for name, value in present.items():
                values = self.metric("program_" + metric, f'name="{name}')
                self.assertEqual((len(values), sum(values)), (count, 1))
                self.assertEqual(self.metric("program_" + metric, f'name="{name}', f'{metric}="{value}"'), [1])
        self.assertEqual((self.metric("policy", 'policy="fair"'), sum(self.metric("policy"))), ([1], 1))
        self.assertEqual(self.metric("build_info", 'version="'), [1])

    def test_start_time_does_not_move(self):
        self.assertEqual(self.metric("start_time_seconds"), self.metric("start_time_seconds"))
        self.assertAlmostEqual(self.metric("start_time_seconds")[0], time.time(), delta=PATIENCE)

    def test_queue_has_its_order(self):
        third = Program(self.daemon.path, name="third", total=10 * GIB)
        self.addCleanup(third.close)
        third.say(flags=WANT, demand=7 * GIB)
        wait_for(lambda: "third" in self.programs(), PATIENCE, "the third program")
        places = {name: program["queue_place"] for name, program in self.programs().items()}
        self.assertEqual(places, {"train": 0, "infer ?[31m": 1, "third": 2})

    def test_why_a_program_waits(self):
        waits = self.programs()["infer ?[31m"]
        self.assertRegex(waits["why"], r"^waits for train \(pid \d+\): its turn ends in .* s at the latest; it has used about \d+ % of the last minute$")
        self.assertEqual(waits["waits_for"], self.programs()["train"]["pid"])
        self.assertLessEqual(waits["waits_most_ns"], 60 * 10**9)
        self.assertIn("waits for train", self.ctl("status"))
        self.assertIsNone(self.programs()["train"]["why"])

    def test_program_that_does_not_answer_waits_for_no_other(self):
        silent = Program(self.daemon.path, name="silent", total=10 * GIB)
        self.addCleanup(silent.close)
        silent.say(flags=WANT, demand=7 * GIB)
        wait_for(lambda: self.programs().get("silent", {}).get("why") == "does not answer, and gets no turn before it does",
                 PATIENCE, "the program to be silent for a second")

    def test_totals_survive_the_programs(self):
        self.one.moved_out, self.one.moved_in = 3 * GIB, 2 * GIB
        self.one.say()
        wait_for(lambda: self.metric("device_moved_in_bytes_total") == [2 * GIB], PATIENCE, "the report")
        before = {name: self.metric(name) for name in ("device_gpu_seconds_total", "device_wait_seconds_total")}
        for program in (self.one, self.two):
            program.close()
        wait_for(lambda: not self.status()["devices"], PATIENCE, "the device to be gone")
        for name, value in before.items():
            self.assertGreaterEqual(self.metric(name), value, name)
        self.assertEqual(self.metric("device_moved_out_bytes_total"), [3 * GIB])
        self.assertEqual(self.metric("device_moved_in_bytes_total", 'model="Test card"'), [2 * GIB])
        self.assertEqual(self.metric("device_programs_started_total"), [2])
        stays = self.metric("device_gpu_seconds_total")
        self.assertEqual(stays, self.metric("device_gpu_seconds_total"))
        totals = self.status()["totals"]
        self.assertEqual([each["moved_out"] for each in totals], [3 * GIB])
        # train's at its first turn, and that of the other one, which never ran
        self.assertEqual(sum(totals[0]["waits"]["counts"]), 2)
        self.assertAlmostEqual(totals[0]["waits"]["sum_ns"], totals[0]["wait_ns"], delta=1e6)

    def test_histograms_add_up(self):
        for histogram in ("wait", "handoff"):
            name = f"device_{histogram}_duration_seconds"
            buckets, count = self.metric(name + "_bucket"), self.metric(name + "_count")
            self.assertEqual(buckets, sorted(buckets))
            self.assertEqual(self.metric(name + "_bucket", 'le="+Inf"'), count)
            self.assertEqual(len(self.metric(name + "_sum")), 1)

    def test_metrics_keep_the_rules_of_prometheus(self):
        text = self.ctl("metrics")
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
        self.assertEqual(set(kinds), set(helps))
        self.assertGreater(len(kinds), 35)
        for name, kind in kinds.items():
            self.assertEqual(kind == "counter", name.endswith("_total"), name)
            self.assertNotRegex(name, r"_(ns|ms|mib|percent|ppm)(_|$)")  # base units: seconds, bytes
            self.assertRegex(helps[name], r"^[A-Z1][^;]{14,}[^.]$")
            self.assertNotIn("..", helps[name])  # it does not go on from the line before
        self.assertEqual(len(set(helps.values())), len(helps))

    def test_figures_agree_wherever_they_are_shown(self):
        self.one.moved_out, self.one.moved_in, self.one.saved = 3 * GIB, 2 * GIB, (4 * GIB, GIB, 2 * GIB)
        self.one.say()
        wait_for(lambda: self.programs()["train"]["moved_in"] == 2 * GIB, PATIENCE, "the report")
        shown, text = self.programs()["train"], self.ctl("metrics")
        for field, metric in (("demand", "demand_bytes"), ("resident", "resident_bytes"), ("on_host", "on_host_bytes"),
                              ("moved_out", "moved_out_bytes_total"), ("moved_in", "moved_in_bytes_total"), ("turns", "turns_total"),
                              ("saved_equal", "saved_equal_bytes_total"), ("saved_zero", "saved_zero_bytes_total"),
                              ("saved_unchanged", "saved_unchanged_bytes_total"), ("weight", "weight")):
            self.assertRegex(text, rf'(?m)^gpushare_program_{metric}{{[^}}]*name="train"[^}}]*}} {shown[field]}$')
        self.assertRegex(self.ctl("status"), r"train +runs +7.0 GiB +7.0 GiB +0 B +3.0 GiB +2.0 GiB +7.0 GiB +\d+ ")

    def test_wait_is_counted_while_a_program_waits_and_not_while_it_runs(self):
        # neither says anything from now on: what counts is what they do, not when they last said so
        ran = self.programs()["train"]["wait_ns"], self.programs()["train"]["wait_longest_ns"]
        wait_for(lambda: self.programs()["infer ?[31m"]["wait_ns"] > 10**8, PATIENCE, "the wait to be counted")
        both = self.programs()
        self.assertEqual((both["train"]["wait_ns"], both["train"]["wait_longest_ns"]), ran)
        self.assertGreater(both["train"]["gpu_ns"], 10**8)
        self.assertEqual(both["infer ?[31m"]["gpu_ns"], 0)
        self.assertGreaterEqual(both["infer ?[31m"]["wait_longest_ns"], 10**8)
        metric = re.search(r'(?m)^gpushare_program_wait_seconds_total{[^}]*name="infer[^}]*} (\S+)$', self.ctl("metrics"))[1]
        self.assertGreaterEqual(float(metric), both["infer ?[31m"]["wait_ns"] / 1e9)
        self.assertLess(float(metric), both["infer ?[31m"]["wait_ns"] / 1e9 + PATIENCE)  # seconds

    def test_time_since_a_program_connected_is_shown(self):
        wait_for(lambda: self.programs()["train"]["connected_ns"] > 10**8, PATIENCE, "0.1 s")
        shown = self.programs()
        self.assertGreaterEqual(shown["train"]["connected_ns"], shown["infer ?[31m"]["connected_ns"])  # it came first
        self.assertLess(shown["train"]["connected_ns"], self.status()["daemon"]["uptime_ns"])
        self.assertRegex(self.ctl("metrics"), r'(?m)^gpushare_program_connected_seconds{[^}]*name="train"')

    def test_protocol_page_names_every_field(self):
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/protocol.md")
        with open(page, encoding="utf-8") as file:
            named = set(re.findall(r'"([a-z_]+)"', file.read().split("## JSON of")[1]))
        answer = self.status()
        for part in (answer, answer["daemon"], answer["devices"][0], answer["devices"][0]["programs"][0]):
            self.assertLessEqual(set(part), named)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
