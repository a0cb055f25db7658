#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The SPANK plugin in a real Slurm of one node on this machine (fetch.sh): srun of patched and unpatched programs that share a
simulated card. test_slurm.py --build DIR --slurm FOLDER [--short 1]"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "runtime"))
from card import OPTIONS, BuildTest, Card, main, sanitized, wait_for  # noqa: E402  (tests/runtime)
from slurm import PATIENCE, Slurm  # noqa: E402

MIB = 1 << 20
SLURM = CARD = None
HOST = socket.gethostname().split(".")[0]
SHORT = ("test_class_weight_group_and_name_reach_the_program", "test_a_killed_step_leaves_nothing", "test_shards_without_the_option",
         "test_tasks_of_a_step_are_a_gang", "test_a_cancelled_job_leaves_nothing")


def setUpModule():  # pylint: disable=invalid-name
    global SLURM, CARD  # pylint: disable=global-statement
    build = OPTIONS.build
    if not os.path.exists(os.path.join(OPTIONS.slurm, "complete")):
        raise unittest.SkipTest(f"{OPTIONS.slurm} has no Slurm: tests/cluster/slurm/fetch.sh puts it there")
    if sanitized(build):
        raise unittest.SkipTest("slurmstepd cannot load a plugin that has a sanitizer")
    if os.geteuid() != 0:
        raise unittest.SkipTest("slurmd needs root: run this test with sudo")
    if not os.path.exists(os.path.join(build, "cluster", "slurm", "spank_gpushare.so")):
        raise unittest.SkipTest("the plugin is not built: libslurm-dev is missing")
    CARD = Card(build, memory="256MiB", options=("--quantum", "100"), SIMCUDA_CONTEXT_MEMORY="64KiB")
    plugin, door, ctl = (os.path.join(build, *path) for path in
                         (("cluster", "slurm", "spank_gpushare.so"), ("wrap", "gpushare-door"), ("lockd", "gpusharectl")))
    SLURM = Slurm(OPTIONS.slurm, f"required {plugin} door={door} ctl={ctl} shards\n",
                  LD_LIBRARY_PATH=os.path.join(build, "tests", "simcuda"))
    SLURM.__enter__()


def tearDownModule():  # pylint: disable=invalid-name
    if SLURM is not None:
        SLURM.__exit__()
    if CARD is not None:
        CARD.__exit__()


def mount_spaces():
    """The mount namespaces in which processes are."""
    found = set()
    for entry in os.listdir("/proc"):
        try:
            found.add(os.readlink(f"/proc/{entry}/ns/mnt"))
        except OSError:
            continue
    return found


class SlurmTest(BuildTest):
    def setUp(self):
        if OPTIONS.short and self._testMethodName not in SHORT:
            self.skipTest("only in the long form (.ci/release)")

    def built(self, *path):
        return os.path.join(self.build, *path)

    def hog(self, patched=False):
        hog = self.built("samples", "hog")
        if patched:
            hog = os.path.join(CARD.folder, "hog-patched")
            if not os.path.exists(hog):
                subprocess.run([self.built("rewriter", "gpushare-patch"), "-q", "-o", hog, self.built("samples", "hog")], check=True)
        return hog

    def words(self, *command, options=(), **more):
        """srun's arguments: the job has the simulated card's environment."""
        environment = {key: CARD.environment[key] for key in ("SIMCUDA_CARD", "SIMCUDA_MEMORY", "SIMCUDA_CONTEXT_MEMORY", "GPUSHARE_SOCKET",
                                                              "GPUSHARE_LOCKD")}
        environment["SIMCUDA_KERNELS"] = self.built("samples", "hog_standin.so")
        environment.update(more)
        export = ",".join(f"{key}={value}" for key, value in environment.items())
        # srun itself runs with Slurm's libraries, which --export does not replace
        return ["-v" if "-v" in options else "-Q", "--export=ALL," + export, *options,
                "env", "LD_LIBRARY_PATH=" + CARD.environment["LD_LIBRARY_PATH"], *command]

    def srun(self, *command, options=(), **more):
        return SLURM.run("srun", *self.words(*command, options=options, **more))

    def programs(self):
        status = CARD.status()
        return [program for device in status["devices"] for program in device["programs"]] if status else []

    def good(self, done):
        self.assertEqual((done.returncode, done.stderr), (0, ""), SLURM.log()[-3000:])
        return done.stdout

    # --- sharing

    def test_two_patched_and_two_unpatched_share_the_card(self):
        """Each alone needs 0.6 of the card; each job asks for two of its eight shards."""
        jobs = [SLURM.start("srun", *self.words(self.hog(patched), "--share", "0.6", "--rounds", "3", "--cpu-ms", "30",
                                                options=("--gpushare=batch", "--gres=shard:2", "-v")))
                for patched in (True, False, True, False)]
        moved = waited = 0
        for job in jobs:
            out, err = job.communicate(timeout=4 * PATIENCE)  # a processor for each of the four would take seconds
            self.assertEqual(job.returncode, 0, out + err + SLURM.log()[-3000:])
            number = int(re.search(r"jobid (\d+)", err).group(1))
            self.assertTrue(wait_for(lambda number=number: SLURM.records(number)), "nothing in the job's record")
            node, figures = SLURM.records(number)[0]
            self.assertEqual((node, figures["group"], figures["programs"], figures["connected"]), (HOST, f"slurm-{number}.0", 1, 0))
            self.assertGreater(figures["gpu_ns"], 0)
            moved += figures["moved_out"]
            waited += figures["wait_ns"]
        self.assertGreater(moved, 100 * MIB)
        self.assertGreater(waited, 0)

    def test_class_weight_group_and_name_reach_the_program(self):
        script = f'exec {self.hog()} --share 0.2 --seconds 60 --cpu-ms 20'
        job = SLURM.start("srun", *self.words("sh", "-c", script, options=("--gpushare=background:40", "-J", "nightly", "-v")))
        self.assertTrue(wait_for(self.programs))
        program = self.programs()[0]
        self.assertEqual([program[key] for key in ("class", "weight", "name")], [3, 40, "nightly"])
        self.assertRegex(program["group"], r"^slurm-\d+\.0$")
        SLURM.run("scancel", "--name=nightly")
        job.communicate(timeout=PATIENCE)

    def test_tasks_of_a_step_are_a_gang(self):
        job = SLURM.start("srun", *self.words(self.hog(), "--share", "0.2", "--seconds", "60", "--cpu-ms", "20",
                                              options=("-n", "3", "--gpushare", "-J", "ranks")))
        self.assertTrue(wait_for(lambda: [each["gang_programs"] for each in self.programs()] == [3, 3, 3]), CARD.status())
        self.assertEqual(len({each["gang"] for each in self.programs()}), 1)
        SLURM.run("scancel", "--name=ranks")
        job.communicate(timeout=PATIENCE)

    def test_the_users_own_group_stays(self):
        seen = self.good(self.srun("sh", "-c", "echo $GPUSHARE_GROUP $GPUSHARE_CLASS", options=("--gpushare",), GPUSHARE_GROUP="none",
                                   GPUSHARE_CLASS="batch"))
        self.assertEqual(seen, "none batch\n")

    def test_shards_without_the_option(self):
        """`shards` in plugstack.conf."""
        shown = 'echo "${GPUSHARE_GROUP:-no group}"; grep -c libcuda /proc/self/mounts'
        self.assertRegex(self.good(self.srun("sh", "-c", shown, options=("--gres=shard:1",))), r"^slurm-\d+\.0\n[1-9]")
        done = self.srun("sh", "-c", shown)
        self.assertEqual(done.stdout, "no group\n0\n")

    # --- the job's record

    def test_steps_that_end_at_once_are_all_in_the_record(self):
        step = " ".join(SLURM.command("srun", "--exact", "-n1", "--gpushare", *self.words(self.hog(), "--share", "0.1", "--rounds", "1")))
        script = os.path.join(CARD.folder, "batch.sh")
        with open(script, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\nexport LD_LIBRARY_PATH={SLURM.libraries}\n" + f"{step} &\n" * 4 + "wait\n")
        done = SLURM.run("sbatch", "-n4", "--wait", "-o", os.path.join(CARD.folder, "batch.out"), script)
        number = int(done.stdout.split()[-1])
        with open(os.path.join(CARD.folder, "batch.out"), encoding="utf-8") as file:
            said = file.read()
        self.assertEqual(done.returncode, 0, said)
        self.assertEqual(sorted(figures["group"] for _, figures in SLURM.records(number)), [f"slurm-{number}.{step}" for step in range(4)],
                         said + SLURM.log()[-3000:])

    # --- ends

    def test_a_killed_step_leaves_nothing(self):
        job = SLURM.start("srun", *self.words(self.hog(), "--share", "0.5", "--seconds", "100", options=("--gpushare", "-J", "killed", "-v")))
        self.assertTrue(wait_for(self.programs))
        pid = self.programs()[0]["pid"]
        self.assertTrue(wait_for(lambda: self.programs()[0]["moved_out"] == 0 and self.programs()[0]["resident"] > 0))
        number = int(self.programs()[0]["group"][len("slurm-"):-len(".0")])
        SLURM.run("scancel", "-s", "KILL", f"{number}.0")
        job.communicate(timeout=PATIENCE)
        self.assertNotEqual(job.returncode, 0)
        self.assertTrue(wait_for(lambda: not self.programs()))
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            self.assertNotIn("libcuda", mounts.read())
        self.assertTrue(wait_for(lambda: SLURM.records(number)), "nothing in the job's record")
        figures = SLURM.records(number)[0][1]
        self.assertEqual((figures["programs"], figures["connected"]), (1, 0))
        self.assertGreater(figures["gpu_ns"], 0)

    def test_a_cancelled_job_leaves_nothing(self):
        """The whole job, two tasks on the card: its figures are in slurmd's log, since Slurm takes no comment any more."""
        job = SLURM.start("srun", *self.words(self.hog(), "--share", "0.3", "--seconds", "100", "--cpu-ms", "20",
                                              options=("-n", "2", "--gpushare", "-J", "cancelled", "-v")))
        self.assertTrue(wait_for(lambda: [each["gpu_ns"] > 0 for each in self.programs()] == [True, True]), CARD.status())
        pids = [each["pid"] for each in self.programs()]
        group = self.programs()[0]["group"]
        spaces = {os.readlink(f"/proc/{pid}/ns/mnt") for pid in pids}
        self.assertNotIn(os.readlink("/proc/self/ns/mnt"), spaces)  # each task has mounts of its own
        self.assertEqual(len(spaces), 2)
        SLURM.run("scancel", group[len("slurm-"):-len(".0")])
        job.communicate(timeout=PATIENCE)
        self.assertNotEqual(job.returncode, 0)
        self.assertTrue(wait_for(lambda: not self.programs()))
        self.assertEqual([pid for pid in pids if os.path.exists(f"/proc/{pid}")], [])
        self.assertTrue(wait_for(lambda: not spaces & mount_spaces()), "a process is still in the mount namespace of a task")
        self.assertTrue(wait_for(lambda: f'"group":"{group}"' in SLURM.log()), SLURM.log()[-3000:])
        figures = json.loads(re.search(r"(\{\"group\":\"" + re.escape(group) + r"\".*?\})", SLURM.log()).group(1))
        self.assertEqual((figures["programs"], figures["connected"]), (2, 0))
        self.assertGreater(figures["gpu_ns"], 0)

    def test_a_step_without_a_daemon_ends_as_ever(self):
        """Nothing was shared, so there are no figures; the job does not notice."""
        place = os.path.join(CARD.folder, "nobody.sock")
        self.assertEqual(self.good(self.srun("echo", "done", options=("--gpushare",), GPUSHARE_SOCKET=place)), "done\n")
        self.assertTrue(wait_for(lambda: "no figures" in SLURM.log()), SLURM.log()[-3000:])

    def test_the_daemon_is_killed_during_a_step(self):
        """The programs find the next one and are a gang there; the step's end finds both."""
        job = SLURM.start("srun", *self.words(self.hog(), "--share", "0.3", "--seconds", "100", "--cpu-ms", "20",
                                              options=("-n", "2", "--gpushare", "-J", "survivors", "-v")))
        self.assertTrue(wait_for(lambda: [each["gpu_ns"] > 0 for each in self.programs()] == [True, True]), CARD.status())
        group, pids = self.programs()[0]["group"], sorted(each["pid"] for each in self.programs())
        CARD.stop_daemon(signal.SIGKILL)
        CARD.start_daemon()
        self.assertTrue(wait_for(lambda: sorted(each["pid"] for each in self.programs()) == pids), CARD.status())
        self.assertTrue(wait_for(lambda: [each["gang_programs"] for each in self.programs()] == [2, 2]), CARD.status())
        self.assertTrue(wait_for(lambda: all(each["gpu_ns"] > 0 for each in self.programs())), CARD.status())
        SLURM.run("scancel", "-s", "KILL", group[len("slurm-"):])
        job.communicate(timeout=PATIENCE)
        number = int(group[len("slurm-"):-len(".0")])
        self.assertTrue(wait_for(lambda: SLURM.records(number)), SLURM.log()[-3000:])
        figures = SLURM.records(number)[0][1]
        self.assertEqual((figures["group"], figures["programs"], figures["connected"]), (group, 2, 0))
        self.assertGreater(figures["gpu_ns"], 0)

    def test_the_daemon_is_gone_when_the_step_ends(self):
        """No figures, in words; the step is not held up and does not fail for it."""
        job = SLURM.start("srun", *self.words("sh", "-c", "sleep 3; exit 7", options=("--gpushare", "-J", "orphan", "-v")))
        CARD.stop_daemon(signal.SIGKILL)
        try:
            out, err = job.communicate(timeout=PATIENCE)
        finally:
            CARD.start_daemon()
        self.assertEqual(job.returncode, 7, out + err)
        number = int(re.search(r"jobid (\d+)", err).group(1))
        self.assertTrue(wait_for(lambda: f"step slurm-{number}.0: no figures" in SLURM.log()), SLURM.log()[-3000:])
        self.assertEqual(SLURM.records(number), [])

    def test_killed_steps_leave_no_files_mounts_or_groups(self):
        """Ten steps, each killed somewhere between its start and its work."""
        def left():
            found = {os.path.join(top, name) for top in ("/tmp", "/dev/shm", "/run", "/var/tmp", SLURM.path("spool")) for name in os.listdir(top)
                     if name.startswith(("slurm", "job", "step"))}
            for top, folders, _ in os.walk("/sys/fs/cgroup"):
                found.update(os.path.join(top, name) for name in folders if "slurm" in name)
            with open("/proc/self/mounts", encoding="utf-8") as mounts:
                return found | {line for line in mounts if self.build in line or "slurm" in line}

        before, card = left(), set(os.listdir(CARD.folder))
        spaces = mount_spaces()
        for i in range(10):
            job = SLURM.start("srun", *self.words(self.hog(), "--share", "0.3", "--seconds", "100", options=("--gpushare", "-J", f"short{i}")))
            time.sleep(0.15 * i)
            SLURM.run("scancel", "-s", "KILL", f"--name=short{i}")
            SLURM.run("scancel", f"--name=short{i}")
            try:
                job.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:  # it was not known yet when it was cancelled
                SLURM.run("scancel", f"--name=short{i}")
                job.communicate(timeout=PATIENCE)
        self.assertTrue(wait_for(lambda: not self.programs()), CARD.status())
        self.assertTrue(wait_for(lambda: not mount_spaces() - spaces), "a process is still in the mount namespace of a task")
        self.assertTrue(wait_for(lambda: left() <= before), left() - before)
        self.assertEqual(set(os.listdir(CARD.folder)) - card, set())

    # --- rights

    def test_the_daemon_is_asked_as_the_jobs_user(self):
        """What the job's environment says is followed with that user's rights, never with root's."""
        SLURM.write("who", '#!/bin/sh\nprintf \'{"user":"%s","groups":"%s","words":"%s"}\' $(/usr/bin/id -u) $(/usr/bin/id -G) "$1,$2"\n')
        os.chmod(SLURM.path("who"), 0o755)
        SLURM.write("plugstack.conf", SLURM.plugstack.replace(f"ctl={self.built('lockd', 'gpusharectl')}", "ctl=" + SLURM.path("who")))
        try:
            done = SLURM.run("sbatch", "--wait", "--uid=65534", "--gid=65534", "--chdir=/", "-o", "/dev/null", "--gpushare", "--wrap=/bin/true")
        finally:
            SLURM.write("plugstack.conf", SLURM.plugstack)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        records = SLURM.records(int(done.stdout.split()[-1]))
        self.assertEqual([figures for _, figures in records], [{"user": "65534", "groups": "65534", "words": "account,--json"}],
                         SLURM.log()[-3000:])

    # --- refusals

    def test_wrong_options_are_refused_by_srun(self):
        for text, reason in (("fast", "the class must be auto"), ("batch:0", "must be a number from 1 to 10000"),
                             ("batch:", "must be a number"), (":1x", "must be a number"), ("foo:bar:baz", "the class must be auto"),
                             ("batch:10:20", "must be a number"), ("batch:-1", "must be a number"), ("batch: 5", "must be a number"),
                             ("batch:10001", "must be a number"), ("batch:" + "9" * 400, "must be a number"),
                             ("x" * 5000, "the class must be auto"), ("batch\n:5", "the class must be auto")):
            done = self.srun("true", options=(f"--gpushare={text}",))
            self.assertNotEqual(done.returncode, 0, text)
            self.assertIn(reason, done.stderr)

    def test_without_the_driver_the_step_says_so(self):
        """What gpushare-door says is in slurmd's log and at the user's terminal."""
        broken = os.path.join(CARD.folder, "no-door")
        SLURM.write("plugstack.conf", f"required {self.built('cluster', 'slurm', 'spank_gpushare.so')} door={broken}\n")
        try:
            done = self.srun("true", options=("--gpushare",))
        finally:
            SLURM.write("plugstack.conf", SLURM.plugstack)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is gpushare installed on this node?", done.stderr + SLURM.log())


if __name__ == "__main__":
    main(slurm="/", short=0)
