#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a daemon that a program starts knows of the program's environment and groups, and that a program with setuid starts none.
test_clean_start.py --build DIR"""
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import BuildTest, Card, daemons_of, main, private_run, wait_for  # noqa: E402
from other_user import is_reachable, make_folder  # noqa: E402

NOBODY, SOME_GROUP = 65534, 54000
KEPT = {"LD_LIBRARY_PATH", "XDG_RUNTIME_DIR"}


class CleanStart(BuildTest):
    def soak(self, path=None):
        return [path or os.path.join(self.build, "tests", "runtime", "soak"), "--seconds", "0.1", "--threads", "1", "--memory", "10MiB", "--seed", "1"]

    def test_daemon_has_a_clean_environment(self):
        with Card(self.build, memory="256MiB", daemon=False) as card:
            code, _, err = card.run(self.soak(), GPUSHARE_GUARD_SOCKET="/tmp/other", XDG_RUNTIME_DIR=card.folder, CUDA_VISIBLE_DEVICES="0")
            self.assertEqual((code, err), (0, ""))
            pid, = card.daemon_pids()
            with open(f"/proc/{pid}/environ", "rb") as file:
                names = {each.split(b"=")[0].decode() for each in file.read().split(b"\0") if each}
            self.assertEqual(names, KEPT)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to have a group of another user")
    def test_roots_daemon_has_roots_groups(self):
        with Card(self.build, memory="256MiB", daemon=False) as card:
            code, _, err = card.run(["setpriv", "--regid", str(SOME_GROUP), "--groups", str(SOME_GROUP), *self.soak()])
            self.assertEqual((code, err), (0, ""))
            pid, = card.daemon_pids()
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                said = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            self.assertEqual((said["Gid"].split(), said["Groups"].split()), (["0"] * 4, []))

    @unittest.skipUnless(os.geteuid() == 0, "needs root to make a program with setuid")
    def test_program_with_setuid_starts_none(self):
        folder = make_folder()
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o755)
        program = shutil.copy(os.path.join(self.build, "tests", "runtime", "soak"), folder)
        os.chown(program, NOBODY, NOBODY)
        os.chmod(program, 0o4755)
        if os.statvfs(folder).f_flag & os.ST_NOSUID or not is_reachable(os.path.join(self.build, "runtime")):
            self.skipTest(f"{folder} is mounted nosuid, or others may not read {self.build}")
        if not private_run():
            self.skipTest("it takes a mount namespace: a daemon at /run/gpushare would serve the program")
        place = f"/tmp/gpushare-{NOBODY}/lockd.sock"
        with Card(self.build, memory="256MiB", daemon=False) as card:
            os.chown(card.folder, NOBODY, NOBODY)
            code, _, err = card.run(self.soak(program))
            started = daemons_of(place)
            for pid in started:
                os.kill(pid, 15)
            wait_for(lambda: not daemons_of(place))
            self.assertEqual((code, started), (0, []), err)
            self.assertIn("setuid", err)


if __name__ == "__main__":
    main()
