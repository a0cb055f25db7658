#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_rooms.py sees each fault that it is there for, in a small tree of its own."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
TREE = {
    "scripts/rooms.txt": "low:\nhigh: low\n",
    "low/base.h": "int base_value(void);\n",
    "low/base.c": '#include "low/base.h"\nint base_value(void)\n{\n    return 1;\n}\n',
    "high/user.h": "int user_value(void);\n",
    "high/user.c": '#include "high/user.h"\n#include "low/base.h"\n'
                   "static int double_value(int value)\n{\n    return 2 * value;\n}\n"
                   "int user_value(void)\n{\n    return double_value(base_value());\n}\n",
}


class Rooms(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for name, text in TREE.items():
            self.write(name, text)
        shutil.copy(os.path.join(SCRIPTS, "check_rooms.py"), os.path.join(self.root, "scripts"))
        subprocess.run(["git", "init", "--quiet", self.root], check=True)

    def write(self, name, text, mode="w"):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)

    def check(self, *faults):
        """Runs the check and compares the beginnings of the faults that it finds with these."""
        run = subprocess.run([sys.executable, os.path.join(self.root, "scripts/check_rooms.py")],
                             stdout=subprocess.PIPE, text=True, check=False)
        found = [line[len("error: "):] for line in run.stdout.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(found), len(faults), run.stdout)
        for line, fault in zip(sorted(found), sorted(faults)):
            self.assertTrue(line.startswith(fault), f"{line!r} is not {fault!r}")
        self.assertEqual(run.returncode, 1 if faults else 0, run.stdout)

    def test_a_good_tree_has_no_faults(self):
        self.check()

    def test_an_include_that_runs_up(self):
        self.write("low/base.c", '#include "high/user.h"\n', "a")
        self.check("low/base.c includes high/user.h")

    def test_a_ladder_with_a_circle(self):
        self.write("scripts/rooms.txt", "low: high\nhigh: low\n")
        self.check("scripts/rooms.txt:1: low uses high, which does not stand above it")

    def test_a_file_outside_of_all_rooms(self):
        self.write("high/attic/old.c", "")
        self.check("high/attic/old.c: high/attic is no room")

    def test_a_room_with_too_many_files(self):
        for number in range(25):
            self.write(f"low/part{number}.c", "")
        self.check("low: 26 .c files")

    def test_a_name_that_stands_twice(self):
        self.write("scripts/rooms.txt", "low:\nhigh: low\nhigh/top: high\n")
        self.write("high/top/user.c", "")
        self.check("high: the name user stands in high, high/top")

    def test_a_header_that_declares_another_files_function(self):
        self.write("high/other.c", "int other_value(void)\n{\n    return 0;\n}\n")
        self.write("high/user.h", "int other_value(void); /* base_value() */\n", "a")
        self.check("high/user.h declares other_value(), which high/other.c defines")

    def test_a_header_without_a_file_of_its_own_that_declares_a_function(self):
        self.write("high/parts.h", "struct part { int (*user_value)(void); };\nint user_value(void);\n")
        self.check("high/parts.h declares user_value(), which high/user.c defines")

    def test_a_static_function_with_one_word(self):
        self.write("high/user.c", "static const char *place(void)\n{\n    return 0;\n}\n", "a")
        self.check("high/user.c: place() says one word")


if __name__ == "__main__":
    unittest.main()
