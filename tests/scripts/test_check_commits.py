#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_commits.py sees each fault that it is there for, and lets good messages pass."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "check_commits.py"))
spec = importlib.util.spec_from_file_location("check_commits", SCRIPT)
check_commits = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_commits)


class Commits(unittest.TestCase):
    def faults(self, message, lines=0):
        return list(check_commits.faults_of(message, lines))

    def test_good_messages_pass(self):
        for message in ("demo: Run without nvcc", "lockd/sched, bench: Keep the turn of a stopped program\n\nWhy.", ".ci/run: Check commits"):
            self.assertEqual(self.faults(message, 10), [], message)
        self.assertEqual(self.faults("demo: Run without nvcc\n\nIt took minutes.", 500), [])

    def test_bad_subjects_are_seen(self):
        for subject in ("demo: wip", "Last read: a bound", "docs: Counts", "demo run without nvcc", "demo: run without nvcc",
                        "lockd: One that is interrupted keeps its turn", "demo: Run " + "x" * 70, ""):
            self.assertNotEqual(self.faults(subject), [], subject)

    def test_code_needs_a_reason(self):
        self.assertEqual(len(self.faults("demo: Run without nvcc", 11)), 1)

    def test_lines_of_code_are_counted(self):
        self.assertEqual(check_commits.changed_lines("3\t4\ta/b.c\n9\t9\tdocs/x.md\n-\t-\tx.png\n1\t0\ttests/CMakeLists.txt\n"), 8)

    def test_commits_of_a_repository(self):
        with tempfile.TemporaryDirectory() as folder:
            def git(*words):
                subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True, capture_output=True)

            git("init", "-q")
            for subject, code in (("docs: Add a page", 0), ("demo: Add a file", 0)):
                git("commit", "-q", "--allow-empty", "-m", subject)
            self.assertEqual(subprocess.run([sys.executable, SCRIPT], cwd=folder, stdout=subprocess.DEVNULL).returncode, 0)
            git("commit", "-q", "--allow-empty", "-m", "wip")
            done = subprocess.run([sys.executable, SCRIPT, "HEAD~2.."], cwd=folder, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout.count("wip\n")), (1, 2), done.stdout)


if __name__ == "__main__":
    unittest.main()
