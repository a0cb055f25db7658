#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests gpushare-sim against what can be worked out by hand, and with input that is wrong.

usage: test_sim.py GPUSHARE_SIM [-v] [NAME...]
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

SIM = os.path.abspath(sys.argv.pop(1))
CARD = """
[card]
memory = 80GB
bus_in = 50GB
bus_out = 40GB
bus_both = 60GB
map = 0s
slicing = 0.2
[run]
latency = 0s
"""
JOB = "[program job]\nmemory = 10GB\ngpu = 60s\ncycles = 1\n"


class Simulation(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, text, name="scenario.ini"):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def call(self, text, *options):
        return subprocess.run([SIM, *options, self.write(text)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=120)

    def run_it(self, text, *options):
        result = self.call(text, "--json", *options)
        self.assertIn(result.returncode, (0, 1), result.stderr)
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def refused(self, text, *words, options=()):
        result = self.call(text, *options)
        self.assertEqual(result.returncode, 2, result.stdout)
        for word in words:
            self.assertIn(word, result.stderr)


class Time(Simulation):
    def test_alone_takes_its_own_time(self):
        result = self.run_it(CARD + JOB + "cpu = 30s\n")
        self.assertAlmostEqual(result["programs"][0]["ended_s"], 90, delta=0.001)
        self.assertAlmostEqual(result["programs"][0]["gpu_s"], 60, places=3)
        self.assertAlmostEqual(result["totals"]["throughput"], 1, places=4)
        self.assertEqual(result["programs"][0]["out_gb"], 0)

    def test_two_that_fit_share_the_card_less_the_slicing(self):
        result = self.run_it(CARD + JOB + "copies = 2\n")
        for program in result["programs"]:
            self.assertAlmostEqual(program["ended_s"], 120 / 0.8, delta=0.01)

    def test_two_that_leave_gaps_do_not_disturb_each_other(self):
        result = self.run_it(CARD + JOB + "copies = 2\nbusy = 0.5\n")
        for program in result["programs"]:
            self.assertAlmostEqual(program["ended_s"], 60, delta=0.01)

    def test_cpu_phases_overlap(self):
        result = self.run_it(CARD + JOB.replace("10GB", "70GB") + "copies = 2\ncpu = 100s\n", "--set", "scheduler.quantum=1h")
        ends = sorted(program["ended_s"] for program in result["programs"])
        self.assertAlmostEqual(ends[0], 160, delta=0.01)
        self.assertAlmostEqual(ends[1], 220 + 1.4, delta=1.5)

    def test_times_come_in_turn(self):
        result = self.run_it(CARD + JOB.replace("gpu = 60s", "gpu = turn 10s 20s 5s") + "cpu = turn 1s 2s\ncycles = 5\n")
        self.assertAlmostEqual(result["programs"][0]["gpu_s"], 10 + 20 + 5 + 10 + 20, places=3)
        self.assertAlmostEqual(result["programs"][0]["cpu_s"], 1 + 2 + 1 + 2 + 1, places=3)

    def test_a_time_in_turn_goes_for_a_whole_request(self):
        result = self.run_it(CARD + "[run]\nfor = 99s\n[program p]\nmemory = 1GB\nkernels = 3\ngpu = turn 1s 5s\nrequest = turn 10s 20s\n")
        self.assertEqual(result["programs"][0]["requests"], 5)  # after 10, 30, 40, 60 and 70 s; the one of 90 s is not done
        self.assertAlmostEqual(result["programs"][0]["gpu_s"], 3 * 3 * 1 + 2 * 3 * 5 + 9, delta=0.01)

    def test_a_time_in_turn_goes_up_to_the_next_pause(self):
        result = self.run_it(CARD + JOB.replace("gpu = 60s", "gpu = turn 1s 3s") + "pause_every = 4\npause = 7s\ncycles = 11\n")
        self.assertAlmostEqual(result["programs"][0]["gpu_s"], 3 * 1 + 4 * 3 + 4 * 1, places=3)

    def test_requests_alone_are_ideal(self):
        result = self.run_it(CARD + "[run]\nfor = 10h\n[program p]\nmemory = 1GB\ngpu = uniform 1s 3s\nrequest = exp 10s\n")
        self.assertGreater(result["totals"]["requests"], 3300)
        self.assertLess(result["totals"]["requests"], 3900)
        self.assertAlmostEqual(result["totals"]["latency_p50"], 1, delta=0.001)
        self.assertAlmostEqual(result["totals"]["latency_p99"], 1, delta=0.001)

    def test_requests_that_come_faster_than_served_queue_up(self):
        result = self.run_it(CARD + "[run]\nfor = 1h\n[program p]\nmemory = 1GB\ngpu = 2s\nrequest = 1s\n")
        self.assertGreater(result["totals"]["latency_p99_ms"], 1000e3)
        self.assertAlmostEqual(result["programs"][0]["gpu_s"], 3599, delta=2)


class Gang(Simulation):
    TWO = ("[card]\ncount = 2\n[scheduler]\nquantum = 10s\n[program a]\nmemory = 60GB\ngroup = g\ngpu = 100s\ncycles = 1\n"
           "[program b]\nmemory = 60GB\ncard = 1\ngroup = g\ngpu = 100s\ncycles = 1\n")

    def test_alone_it_gets_on_like_one_program(self):
        for program in self.run_it(CARD + self.TWO)["programs"]:
            self.assertAlmostEqual(program["ended_s"], 100, delta=0.01)

    def test_one_that_waits_holds_the_others_up(self):
        rival = "[program rival]\nmemory = 60GB\ncard = 1\ngpu = 100s\ncycles = 1\n"
        result = self.run_it(CARD + self.TWO + rival)
        a, b, _ = result["programs"]
        self.assertAlmostEqual(a["ended_s"], b["ended_s"], delta=3)
        self.assertGreater(a["ended_s"], 180)  # though nobody else is on its card
        self.assertAlmostEqual(a["gpu_s"], 100, places=3)


class Moves(Simulation):
    TWO = ("[card]\ncount = 2\ncheckpoint = 3s\nrestore = 2s\n[scheduler]\nquantum = 10s\n[program p]\ncopies = 2\nmemory = 60GB\n"
           "gpu = 1s\ncycles = 100\n")

    def test_of_two_that_do_not_fit_one_moves(self):
        result = self.run_it(CARD + self.TWO, "--set", "scheduler.balance=1")
        ends = [program["ended_s"] for program in result["programs"]]
        self.assertEqual(sorted(program["card"] for program in result["programs"]), [0, 1])
        self.assertEqual(result["totals"]["moves"], 1)
        # one of them loses what a move costs twice, then the 5 s that it takes
        self.assertAlmostEqual(min(ends), 100, delta=25)
        self.assertLess(max(ends), 130)
        self.assertGreater(max(ends), 105)
        for program in result["programs"]:
            self.assertAlmostEqual(program["gpu_s"], 100, places=3)

    def test_without_balance_nobody_moves(self):
        result = self.run_it(CARD + self.TWO)
        self.assertEqual(result["totals"]["moves"], 0)
        self.assertGreater(max(program["ended_s"] for program in result["programs"]), 200)

    def test_hidden_cards_are_no_targets(self):
        result = self.run_it(CARD + self.TWO, "--set", "scheduler.balance=1", "--set", "program.hidden=1")
        self.assertEqual(result["totals"]["moves"], 0)

    def test_moves_that_fail_change_nothing_but_cost_time(self):
        result = self.run_it(CARD + self.TWO, "--set", "scheduler.balance=1", "--set", "card.move_fails=1")
        self.assertEqual([program["card"] for program in result["programs"]], [0, 0])
        attempts = sum(program["move_attempts"] for program in result["programs"])
        self.assertGreater(attempts, 0)
        self.assertLess(max(program["ended_s"] for program in result["programs"]), 230 + 7 * attempts)

    def test_programs_that_run_at_once_spread_too(self):
        result = self.run_it(CARD + self.TWO.replace("60GB", "10GB"), "--set", "scheduler.balance=1")
        self.assertEqual(sorted(program["card"] for program in result["programs"]), [0, 1])
        self.assertLess(max(program["ended_s"] for program in result["programs"]), 135)

    def test_gangs_stay(self):
        for memory in "60GB", "30GB":  # too large for one card together, and not
            result = self.run_it(CARD + self.TWO.replace("60GB", memory) + "group = g\n", "--set", "scheduler.balance=1")
            self.assertEqual(result["totals"]["moves"], 0)

    def test_spread_programs_are_on_several_cards(self):
        result = self.run_it(CARD + self.TWO + "spread = 2\n")
        self.assertEqual([program["card"] for program in result["programs"]], [0, 1])
        for program in result["programs"]:
            self.assertAlmostEqual(program["ended_s"], 100, delta=0.01)


class Memory(Simulation):
    TWO = "[run]\nfor = 1000s\n[scheduler]\nquantum = 10s\n[program p]\ncopies = 2\nmemory = 60GB\ngpu = 1s\n"

    def test_a_switch_moves_the_shortfall_at_the_speed_of_the_bus(self):
        result = self.run_it(CARD + self.TWO)
        # 40 GB out and in, both directions at 30 GB/s, in steps of 256 MiB behind each other
        self.assertAlmostEqual(result["totals"]["switch_s"], 40 / 30, delta=0.06)
        turns = sum(program["turns"] for program in result["programs"])
        self.assertAlmostEqual(turns, 1000 / (10 + 40 / 30), delta=4)
        moved = result["programs"][0]["in_gb"] / (result["programs"][0]["turns"] - 1)
        self.assertAlmostEqual(moved, 40, delta=1.5)
        self.assertAlmostEqual(result["totals"]["throughput"], 10 / (10 + 40 / 30), delta=0.01)

    def test_memory_that_did_not_change_is_not_copied_out_again(self):
        result = self.run_it(CARD + self.TWO + "dirty = 0.25\n")
        program = result["programs"][0]
        self.assertAlmostEqual(program["out_gb"] / program["in_gb"], 0.25, delta=0.05)
        self.assertLess(result["totals"]["switch_s"], 40 / 30)

    def test_zero_blocks_are_not_copied(self):
        result = self.run_it(CARD + self.TWO + "zero = 1\n")
        self.assertEqual(result["programs"][0]["in_gb"] + result["programs"][0]["out_gb"], 0)
        self.assertGreater(result["programs"][0]["turns"], 10)

    def test_bytes_that_the_program_before_has_do_not_come_in(self):
        result = self.run_it(CARD + self.TWO + "dirty = 0\nsaved = 0.9\n")
        program = result["programs"][0]
        self.assertAlmostEqual(program["in_gb"] / (program["turns"] - 1), 4, delta=0.3)
        self.assertLess(result["totals"]["switch_s"], 0.2 * 40 / 30)  # what the scheduler measures follows

    def test_nothing_moves_when_everything_fits(self):
        result = self.run_it(CARD + self.TWO.replace("60GB", "40GB"))
        self.assertEqual(result["programs"][0]["out_gb"], 0)
        self.assertEqual(result["programs"][0]["turns"], 1)

    def test_never_more_than_the_card_and_no_work_is_lost(self):
        dice = random.Random(7)
        for seed in range(25):
            text = CARD + f"[run]\nfor = 2h\nseed = {seed}\n[scheduler]\nquantum = {dice.choice(['auto', '3s'])}\n"
            copies = 0
            for kind in range(dice.randint(1, 4)):
                copies += (some := dice.randint(1, 5))
                text += (f"[program k{kind}]\ncopies = {some}\nmemory = {dice.randint(1, 80)}GB\ncycles = 20\n"
                         f"gpu = uniform 1ms {dice.randint(1, 20)}s\ncpu = exp {dice.randint(0, 5)}s\n"
                         f"stop = uniform 0s 500ms\nspacing = exp 10s\ndirty = {dice.random():.2f}\n")
            with self.subTest(seed=seed):
                result = self.run_it(text)
                self.assertEqual(result["totals"]["finished"], copies)
                self.assertLessEqual(result["totals"]["resident_most"], 80e9)
                solo = self.run_it(text, "--set", "card.memory=900TB", "--set", "card.slicing=0", "--set", "program.busy=0.01")
                for shared, alone in zip(result["programs"], solo["programs"]):
                    self.assertAlmostEqual(shared["gpu_s"], alone["gpu_s"], delta=0.01)


class Ancestor(Simulation):
    TWO = ("[run]\nway = unified\n[card]\nfault = 5GB\nidle_release = 5s\n[program p]\ncopies = 2\nmemory = 60GB\ncpu = 20s\n"
           "gpu = 100s\ncycles = 1\n")

    def test_first_come_first_served_without_an_end(self):
        result = self.run_it(CARD + self.TWO, "--set", "scheduler.quantum=1000s")
        # each faults its 60 GB in at 5 GB/s
        self.assertAlmostEqual(max(program["ended_s"] for program in result["programs"]), 20 + 2 * 112, delta=0.01)

    def test_faults_eat_the_quantum(self):
        result = self.run_it(CARD + self.TWO, "--set", "scheduler.quantum=22s", "--set", "program.gpu=95s")
        # of every 22 s, 12 s go for faults: 9 whole turns of each, and one with 5 s of work
        self.assertAlmostEqual(max(program["ended_s"] for program in result["programs"]), 20 + 18 * 22 + 2 * 17, delta=0.1)

    def test_what_fits_is_faulted_in_once(self):
        result = self.run_it(CARD + self.TWO.replace("60GB", "40GB"), "--set", "scheduler.quantum=10s")
        self.assertAlmostEqual(max(program["ended_s"] for program in result["programs"]), 20 + 2 * 108, delta=0.1)

    def test_without_the_lock_everything_faults_always(self):
        result = self.run_it(CARD + self.TWO + "pass = 1s\n", "--set", "run.way=unlocked", "--set", "card.thrash=0.5", "--set",
                             "run.for=10h")
        # a pass of both: 2 s / 0.8 of work, and 120 GB at 2.5 GB/s
        self.assertAlmostEqual(max(program["ended_s"] for program in result["programs"]), 20 + 100 * (2.5 + 48), delta=1)

    def test_the_lock_is_given_back_after_rest(self):
        text = CARD + self.TWO.replace("cpu = 20s", "cpu = 0s").replace("cycles = 1", "cycles = 2")
        result = self.run_it(text + "start = 0s\n", "--set", "scheduler.quantum=1000s", "--set", "program p.cpu=50s")
        self.assertGreater(result["totals"]["seconds"], 50 + 4 * 112)


class Replay(Simulation):
    @staticmethod
    def span(track, name, start, seconds, **more):
        return {"ph": "X", "pid": 7, "tid": track, "name": name, "ts": start * 1e6, "dur": seconds * 1e6, **more}

    def test_bursts_and_gaps_come_back(self):
        demand = {"args": {"demand": 10 ** 10}}
        events = [self.span(1, "compute", 0, 10, **demand), self.span(1, "wait", 10, 100), self.span(1, "copy_in", 110, 5),
                  self.span(1, "compute", 120, 20), self.span(2, "compute", 3, 5, **demand), {"ph": "M", "name": "thread_name"}]
        trace = self.write(json.dumps({"traceEvents": events}), "trace.json")
        result = self.run_it(CARD, "--replay", trace)
        first, second = result["programs"]
        self.assertEqual(first["memory"], 10 ** 10)
        self.assertAlmostEqual(first["gpu_s"], 30, places=3)
        self.assertAlmostEqual(first["cpu_s"], 5, places=3)  # 115 to 120
        self.assertAlmostEqual(second["gpu_s"], 5, places=3)
        # the second shares from 3 s on: 5 s of work at 0.4, 12.5 s; the first has 5 s less done by then
        self.assertAlmostEqual(second["ended_s"], 15.5, delta=0.02)

    def test_the_timeline_of_gpusharectl_is_understood(self):
        """As lockd/ctl/watch/timeline.c writes it."""
        def counter(track, at, card, host):
            return {"ph": "C", "name": "memory GPU-00000000", "pid": 7, "id": track, "ts": at * 1e6,
                    "args": {"on card": card, "on host": host}}
        events = [{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "train"}}, counter(1, 0, 0, 0),
                  counter(1, 1, 3 * 10 ** 9, 10 ** 9), self.span(1, "compute", 1, 10, args={"resident": 4 * 10 ** 9}),
                  self.span(1, "stop", 11, 2), self.span(1, "copy_out", 13, 1), self.span(1, "wait", 14, 30),
                  self.span(1, "paused", 44, 3), self.span(1, "copy_in", 47, 1), self.span(1, "compute", 49, 4)]
        trace = self.write(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}), "trace.json")
        program, = self.run_it(CARD, "--replay", trace)["programs"]
        self.assertEqual(program["memory"], 4 * 10 ** 9)
        self.assertAlmostEqual(program["gpu_s"], 16, places=3)
        self.assertAlmostEqual(program["cpu_s"], 2, places=3)  # before the first, and 48 to 49

    def test_bad_traces_are_refused(self):
        for text, word in (("{", "line 1"), ("[]", "gpusharectl trace"), ('{"traceEvents": 3}', "gpusharectl trace"),
                           (json.dumps([self.span(1, "compute", 0, 1)]), "--memory"),
                           (json.dumps([self.span(1, "compute", -1e300, 1, args={"demand": 5})]), "event 0: ts"),
                           (json.dumps([self.span(1, "compute", 5, -1, args={"demand": 5})]), "event 0: ts"),
                           (json.dumps([self.span(1, "wait", 0, 1)]), "no [program")):
            with self.subTest(text=text):
                self.refused(CARD, word, options=("--replay", self.write(text, "trace.json")))
        self.refused(CARD, "/nonexistent", options=("--replay", "/nonexistent"))


class Use(Simulation):
    def test_the_same_seed_gives_the_same_figures(self):
        text = CARD + Memory.TWO + "request = exp 20s\nstop = uniform 0s 1s\n"
        self.assertEqual(self.run_it(text), self.run_it(text))
        self.assertNotEqual(self.run_it(text)["totals"], self.run_it(text, "--set", "run.seed=2")["totals"])

    def test_an_expectation_that_is_not_met_is_status_1(self):
        text = CARD + JOB + "[expect]\nthroughput = at least 0.9\nfinished = at most 0\n"
        result = self.call(text)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, "(?m)^met: +throughput 1, ")
        self.assertRegex(result.stdout, "(?m)^NOT MET: +finished 1, ")
        self.assertEqual(self.call(text.replace("at most 0", "at most 1")).returncode, 0)

    def test_a_figure_that_does_not_exist_is_not_met(self):
        self.assertEqual(self.call(CARD + JOB + "[expect]\nlatency_p99 = at most 9\n").returncode, 1)

    def test_wrong_scenarios_are_refused_with_place_and_reason(self):
        self.refused("[run]\n\nfor = 5 parsecs\n", "scenario.ini:3:", "[run] for = 5 parsecs", "20ms")
        self.refused(CARD + "[program p]\ngpus = 3\n", "has no 'gpus'", "--help")
        self.refused(CARD + "[program p]\nmemory = 1GB\n", "does no work", "gpu = TIME")
        self.refused(CARD, "no [program NAME]")
        self.refused(CARD + JOB + "card = 3\n", "[program job] card = 3", "count = 1")
        self.refused(CARD + JOB + "copies = 0\n", "copies = 0", "range")
        self.refused(CARD + JOB + "copies = 1.5\n", "whole number")
        self.refused(CARD + JOB + "memory = lots\n", "not a size")
        self.refused(CARD + JOB + "gpu = uniform 3s 1s\n", "uniform 10ms 90ms")
        self.refused(CARD + JOB + "gpu = turn 3s\n", "turn 50ms 2s 2s")
        self.refused(CARD + JOB + "gpu = turn" + 9 * " 1s" + "\n", "at most 8")
        self.refused(CARD + JOB + "weight = 99999999\n", "range")
        self.refused(CARD + JOB + "[scheduler]\npolicy = nice\n", "fair, fifo, rr or priority")
        self.refused(CARD + JOB + "[run]\nwarmup = 2h\n", "warmup")
        self.refused(CARD + JOB + "[run]\nway = unified\n", "quantum")
        self.refused(CARD + JOB + "spread = 2\n", "[program job] card = 1", "count = 1")
        self.refused(CARD + JOB + "[run]\nway = unlocked\n[scheduler]\nbalance = 1\n", "balance", "way = gpushare")
        self.refused(CARD + JOB + "[expect]\nbeauty = at least 1\n", "no 'beauty'")
        self.refused(CARD + JOB + "[expect]\njain = 1\n", "at least")
        self.refused(CARD + JOB + "nonsense\n", "scenario.ini:1")
        self.refused(CARD + "[program " + "x" * 60 + "]\ngpu = 1s\n", "31 characters")
        self.refused(CARD + JOB + "[program q]\ncopies = 1000000\ngpu = 1s\n", "at most 1000000")
        self.refused(CARD + JOB, "--set", options=("--set", "quantum=3s"))
        self.refused(CARD + JOB, "has no 'quantums'", options=("--set", "scheduler.quantums=3s"))
        self.refused(CARD + JOB, "not a size", options=("--memory", "big"))

    def test_calls_without_a_scenario(self):
        for arguments in ([], ["a", "b"], ["--nonsense", "a"]):
            result = subprocess.run([SIM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertNotEqual(result.stderr, "")
        result = subprocess.run([SIM, "/nonexistent.ini"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("/nonexistent.ini: No such file", result.stderr)
        self.assertIn("[program NAME]", subprocess.run([SIM, "--help"], stdout=subprocess.PIPE, text=True).stdout)

    def test_a_warm_up_with_nothing_behind_it_is_said(self):
        result = self.call(CARD + JOB + "[run]\nfor = 1h\nwarmup = 30min\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("warm-up", result.stderr)


if __name__ == "__main__":
    unittest.main()
