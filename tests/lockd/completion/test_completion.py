#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completion in bash, zsh and fish: each offers every option of each tool's --help, and words that only the tool can know.

usage: test_completion.py FOLDER-OF-THE-SCRIPTS GPUSHARE_LOCKD GPUSHARECTL GPUSHARE_PATCH GPUSHARE_DOOR GPUSHARE_CC [unittest options]"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import GIB, PATIENCE, RUNNING, WANT, Daemon, Program

SCRIPTS, LOCKD, CTL, PATCH, DOOR, CC = (os.path.abspath(sys.argv.pop(1)) for _ in range(6))
TOOLS = (LOCKD, CTL, PATCH, DOOR, CC)
BASH = """. "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _gpushare "$1"; printf '%s\\n' "${COMPREPLY[@]}" """
ZSH = """file=$1; shift; words=("$@"); CURRENT=$#
_files() { if [[ $1 == -/ ]]; then print -l -- *(/); else print -l -- *; fi }
_describe() { for word in ${(P)2}; do word=${word//\\\\:/$'\\1'}; word=${word%%:*}; print -r -- ${word//$'\\1'/:}; done }
source $file"""


def shells():
    return [name for name in ("bash", "zsh", "fish") if shutil.which(name)]


def run(command, folder, environment):
    result = subprocess.run(command, cwd=folder, env={**os.environ, "LC_ALL": "C.UTF-8", **environment}, capture_output=True, text=True,
                            timeout=PATIENCE, check=False)
    assert result.stderr == "", (command, result.stderr)
    return [line for line in result.stdout.split("\n") if line]


class CompletionTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.mkdir(os.path.join(self.folder, "afolder"))
        with open(os.path.join(self.folder, "afile"), "w", encoding="ascii"):
            pass
        home = tempfile.mkdtemp()  # fish makes folders there
        self.addCleanup(shutil.rmtree, home)
        self.environment = {"GPUSHARE_SOCKET": self.folder + "/none.sock", "HOME": home}

    def offers(self, shell, *line):
        """The words that this shell would offer for the last one."""
        if shell == "bash":
            command = ["bash", "-c", BASH, "-", SCRIPTS + "/gpushare.bash", *line]
        elif shell == "zsh":
            command = ["zsh", "-fc", ZSH, "-", SCRIPTS + "/_gpushare", *line]
        else:
            command = ["fish", "--no-config", "-c", f"source {SCRIPTS}/gpushare.fish; complete -C '{' '.join(line)}'"]
        return [word.split("\t")[0].rstrip("/") for word in run(command, self.folder, self.environment)]

    def help_of(self, *command):
        option = "--gpushare-help" if command[0] == CC else "--help"
        return subprocess.run([*command, option], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    def options_of(self, *command):
        return re.findall(r"^ +(?:-[a-zA-Z], )?(--[a-z][a-z:-]+=?)", self.help_of(*command), re.M)

    def test_syntax(self):
        for shell, file in (("bash", "gpushare.bash"), ("zsh", "_gpushare"), ("fish", "gpushare.fish")):
            with open(f"{SCRIPTS}/{file}", encoding="utf-8") as text:
                self.assertNotIn("@GS", text.read())
            if shell in shells():
                run([shell, "--no-execute" if shell == "fish" else "-n", f"{SCRIPTS}/{file}"], self.folder, {})

    def test_every_option_of_every_tool(self):
        for tool in TOOLS:
            options = self.options_of(tool)
            self.assertGreater(len(options), 2, tool)
            for shell in shells():
                self.assertLessEqual(set(options), set(self.offers(shell, tool, "--")), (shell, tool))

    def test_every_command_and_its_options(self):
        commands = re.findall(r"^  ([a-z]+) ", self.help_of(CTL).split("\noptions")[0], re.M)
        self.assertGreater(len(commands), 11)
        for shell in shells():
            self.assertEqual(sorted(self.offers(shell, CTL, "")), sorted(commands), shell)
        for command in commands:
            options = [o for o in self.options_of(CTL, command)]
            self.assertLessEqual(set(options), set(self.offers("bash", CTL, command, "--")), command)
            self.assertIn("--help", self.offers("bash", CTL, command, "--"))

    def test_settings_and_their_values(self):
        names = re.findall(r"^  ([a-z][a-z-]*) ", self.help_of(CTL, "set"), re.M)
        self.assertGreater(len(names), 11)
        for shell in shells():
            self.assertEqual(sorted(self.offers(shell, CTL, "set", "")), sorted(names), shell)
            self.assertEqual(sorted(self.offers(shell, CTL, "set", "policy", "")), ["fair", "fifo", "priority", "rr"], shell)
        self.assertEqual(self.offers("bash", CTL, "--socket", "/x", "set", "--json", "exclusive", "n"), ["no"])
        self.assertEqual(self.offers("bash", CTL, "set", "class", "1", "in"), ["interactive"])
        self.assertIn("hand-over", self.offers("bash", CTL, "get", ""))
        self.assertNotIn("hand-over", self.offers("bash", CTL, "set", ""))
        self.assertEqual(self.offers("bash", CTL, "get", "policy", ""), [])  # it takes no process id

    def test_programs_of_the_daemon(self):
        daemon = Daemon(LOCKD)
        program = Program(daemon.path, "train")
        program.say(flags=WANT, demand=GIB)
        program.settle(lambda p: p.flags & RUNNING)
        self.environment["GPUSHARE_SOCKET"] = daemon.path
        for shell in shells():
            self.assertEqual(sorted(self.offers(shell, CTL, "pause", "")), sorted([str(os.getpid()), "all"]), shell)
        self.assertEqual(self.offers("bash", CTL, "get", "class", ""), [str(os.getpid())])
        self.environment["GPUSHARE_SOCKET"] = "/nowhere/lockd.sock"
        self.assertEqual(self.offers("bash", CTL, "--socket", daemon.path, "suspend", ""), [str(os.getpid())])
        program.close()
        daemon.end()
        shutil.rmtree(daemon.folder)

    def test_files_and_folders(self):
        for shell in shells():
            self.assertEqual(self.offers(shell, PATCH, "afi"), ["afile"] if shell != "zsh" else ["afile", "afolder"], shell)
            self.assertIn("afile", self.offers(shell, CTL, "doctor", ""), shell)
            self.assertEqual(self.offers(shell, PATCH, "--tree", ""), ["afolder"], shell)
            self.assertIn("afile", self.offers(shell, CTL, "trace", "-o", ""), shell)
        self.assertEqual(self.offers("bash", PATCH, "--scope", "p"), ["process"])
        self.assertEqual(self.offers("bash", LOCKD, "--policy", "r"), ["rr"])
        self.assertEqual(self.offers("bash", CTL, "cdi", ""), ["generate"])
        self.assertEqual(self.offers("bash", CTL, "cdi", "generate", "--door", "a"), ["afolder"])
        self.assertEqual(self.offers("bash", PATCH, "--", "--t"), [])  # behind -- are no options
        self.assertEqual(self.offers("bash", CC, "--gpushare-runtime", "=", "afi"), ["afile"])  # as bash takes it apart
        self.assertEqual(self.offers("bash", DOOR, "--stage", ""), ["afolder"])


if __name__ == "__main__":
    unittest.main(warnings="ignore")
