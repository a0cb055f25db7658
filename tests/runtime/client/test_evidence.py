#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of one job are one gang without any setting; programs that only have a parent in common are none.

usage: test_evidence.py BUILD-FOLDER [unittest options]"""
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import Card, Told, wait_for  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))
RANKS = os.path.join(BUILD, "tests", "runtime", "ranks")
LONG = 180  # seconds: until jobs have ended, on a machine that is busy with other things
JOB = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}


def programs(card):
    return [each for device in (card.status() or {"devices": []})["devices"] for each in device["programs"]]


class EvidenceTest(unittest.TestCase):
    def setUp(self):
        self.card = Card(BUILD, memory="64MiB", options=["--quantum", "200"], SIMCUDA_DEVICES="2", SIMCUDA_TIMESLICE="0",
                         **Told.SMALL_CONTEXTS)
        self.addCleanup(self.card.__exit__)
        self.shared = []
        self.addCleanup(lambda: [os.unlink(path) for path in self.shared if os.path.exists(path)])

    # --- jobs whose ranks spin in their kernels

    def job(self, name, way, rounds=150, **more):
        path = f"/dev/shm/{'nccl' if way in ('nccl', 'register') else 'gs'}-test-{os.getpid()}-{name}"
        self.shared.append(path)
        return [self.card.start([RANKS, path, str(rank), "2", str(rounds), "40", way], CUDA_VISIBLE_DEVICES=str(rank), **more)
                for rank in range(2)]

    def end(self, ranks, lines=("all", "ok")):
        until = time.monotonic() + LONG
        for rank in ranks:
            out, err = rank.communicate(timeout=max(1, until - time.monotonic()))
            self.assertEqual((rank.returncode, out.split(), err), (0, list(lines), ""))

    def gangs(self, jobs):
        """The gang of each rank, once all ranks are in one."""
        pids = [[rank.pid for rank in job] for job in jobs]
        found = {}

        def all_found():
            found.update({each["pid"]: each for each in programs(self.card) if each["gang"] != 0})
            return all(pid in found for job in pids for pid in job)
        self.assertTrue(wait_for(all_found), f"{pids}: {programs(self.card)}")
        return [[found[pid] for pid in job] for job in pids]

    def two_jobs(self, way, why, between=None):
        jobs = [self.job("a", way), self.job("b", way)]
        gangs = self.gangs(jobs)
        for gang in gangs:
            self.assertEqual([(each["gang_why"], each["gang_programs"]) for each in gang], [(why, 2)] * 2)
            self.assertEqual(gang[0]["gang"], gang[1]["gang"])
        self.assertNotEqual(gangs[0][0]["gang"], gangs[1][0]["gang"])
        if between is not None:
            between()
        self.end(jobs[0] + jobs[1])

    def test_environment_set_after_the_start_two_jobs_end(self):
        self.two_jobs("env", "rendezvous")

    def test_nccl_memory_two_jobs_end(self):
        self.two_jobs("nccl", "NCCL")

    def test_ranks_that_register_two_jobs_end(self):
        self.two_jobs("register", "NCCL")

    def test_connected_ranks_that_export_two_jobs_end(self):
        self.two_jobs("export", "NCCL")

    def test_connected_programs_no_gang(self):
        job = self.job("a", "connect", rounds=100000)
        self.assertTrue(wait_for(lambda: len([each for each in programs(self.card) if each["demand"] != 0]) == 2))
        time.sleep(3)  # looks are a second apart
        self.assertEqual({each["gang"] for each in programs(self.card)}, {0})
        for rank in job:
            rank.kill()

    def test_registered_memory_is_seen_at_once(self):
        """Nobody waits for a device, so nothing else makes the library look."""
        job = self.job("a", "register", rounds=100000)
        gang = self.gangs([job])[0]
        self.assertEqual([(each["gang_why"], each["gang_programs"]) for each in gang], [("NCCL", 2)] * 2)

    def test_jobs_known_when_their_kernels_wait_for_each_other_end(self):
        """A rank of each has a card, where the other job's other rank waits for it."""
        jobs, files = {}, {name: f"/dev/shm/nccl-test-{os.getpid()}-{name}" for name in "ab"}
        self.shared += files.values()
        for name, rank in (("a", 0), ("b", 1), ("a", 1), ("b", 0)):
            started = self.card.start([RANKS, os.path.join(self.card.folder, name), str(rank), "2", "150", "40", "late", files[name]],
                                      CUDA_VISIBLE_DEVICES=str(rank))
            jobs[name + str(rank)] = started
            if len(jobs) == 2:
                for first in jobs.values():
                    self.assertEqual([first.stdout.readline().strip() for _ in range(2)], ["all", "launched"])
        waiting = [jobs["a1"].pid, jobs["b0"].pid]
        self.assertTrue(wait_for(lambda: sorted(each["pid"] for each in programs(self.card) if each["state"] == "waits") == sorted(waiting)),
                        f"{waiting} {programs(self.card)}")
        for path in files.values():
            with open(path, "wb"):
                pass
        self.end([jobs["a0"], jobs["b1"]], ("ok",))
        self.end([jobs["a1"], jobs["b0"]], ("all", "launched", "ok"))

    def test_daemon_restarted_in_the_middle_two_jobs_end(self):
        def restart():
            self.card.stop_daemon(signal.SIGKILL)
            self.card.start_daemon()
        self.two_jobs("env", "rendezvous", restart)

    def test_third_program_beside_all_end(self):
        jobs = [self.job("a", "env"), self.job("b", "env")]
        third = Told(self.card, CUDA_VISIBLE_DEVICES="0")
        self.assertEqual(third.say("zero 40", LONG), "ok")
        third.end()
        self.end(jobs[0] + jobs[1])

    # --- who is in a gang

    def kin(self, *environments):
        """The gang of each program: (number, why)."""
        told = [Told(self.card, **each) for each in environments]
        for each in told:
            self.assertEqual(each.say("zero 1"), "ok")
        known = [each.until(lambda entry: entry["demand"] != 0) for each in told]
        for each in told:
            each.end()
        return [(each["gang"], each["gang_why"]) for each in known]

    def test_four_programs_of_one_shell_no_gang(self):
        self.assertEqual(self.kin(*[{"CUDA_VISIBLE_DEVICES": str(i % 2)} for i in range(4)]), [(0, None)] * 4)

    def test_exported_address_without_world_no_gang(self):
        self.assertEqual(self.kin(JOB, JOB), [(0, None)] * 2)
        self.assertEqual(self.kin(*[{**JOB, "WORLD_SIZE": "1"}] * 2), [(0, None)] * 2)

    def test_ranks_of_launchers_are_a_gang(self):
        for why, environment in (("rendezvous", {**JOB, "WORLD_SIZE": "2"}),
                                 ("torchrun", {"TORCHELASTIC_RUN_ID": "run7", "WORLD_SIZE": "2"}),
                                 ("MPI", {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-1"}),
                                 ("MPI", {"PMI_SIZE": "2"}),
                                 ("Slurm", {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"})):
            with self.subTest(environment=environment):
                (first, first_why), (second, second_why) = self.kin(environment, environment)[:2]
                self.assertNotEqual(first, 0)
                self.assertEqual((first, first_why, second_why), (second, why, why))

    def test_other_jobs_of_launchers_no_gang(self):
        for one, other in (({**JOB, "WORLD_SIZE": "2"}, {**JOB, "WORLD_SIZE": "2", "MASTER_PORT": "29401"}),
                           ({"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"},) * 2,
                           ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"},
                            {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "SLURM_NTASKS": "2"}),
                           ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"},) * 2):
            with self.subTest(one=one, other=other):
                self.assertEqual(self.kin(one, other), [(0, None)] * 2)

    def test_group_none_opts_out(self):
        environment = {**JOB, "WORLD_SIZE": "2"}
        self.assertEqual(self.kin(environment, {**environment, "GPUSHARE_GROUP": "none"}), [(0, None)] * 2)
        named = {**environment, "GPUSHARE_GROUP": "mine"}
        found = self.kin(environment, named, named)
        self.assertEqual([why for _, why in found], [None, "group", "group"])


if __name__ == "__main__":
    unittest.main()
