#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Promises of SECURITY.md that are about what a program does not do: the functions that it imports, and the few places of the sources that
call the others. test_promises.py LIBRARY DAEMON PATCHER"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY, DAEMON, PATCHER = sys.argv[-3:]
STARTS = {"execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe", "fexecve", "system", "popen", "posix_spawnp"}
ENDS = {"exit", "_exit", "_Exit", "quick_exit", "abort", "raise", "tgkill", "pthread_kill", "__assert_fail"}
NAMES = {"getaddrinfo", "gethostbyname", "inet_pton", "inet_aton", "res_query"}


def imports(program):
    """The functions that it takes from libraries."""
    lines = subprocess.run(["nm", "-D", "--undefined-only", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1].split("@")[0].removesuffix("64") for line in lines}


def calls(function, *folders):
    """Each call of it in these folders: the file, and the first argument or two."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.c")):
            for match in re.finditer(rf"\b{function}\(([^;]*);", path.read_text()):
                yield str(path.relative_to(ROOT)), match[1]


class Promises(unittest.TestCase):
    def test_the_library_opens_no_network_connection(self):
        self.assertFalse(imports(LIBRARY) & (NAMES | {"bind", "listen", "accept", "accept4", "sendto"}))
        for function in "socket", "socketpair":
            for path, arguments in calls(function, "runtime", "common"):
                self.assertTrue(arguments.startswith("AF_UNIX"), path)

    def test_the_library_does_not_end_the_program(self):
        self.assertFalse(imports(LIBRARY) & (ENDS | STARTS | {"posix_spawn", "fork"}))
        ending = [path for path, _ in calls("kill", "runtime", "common")]
        ending += [path for path, arguments in calls("syscall", "runtime", "common") if re.match("SYS_(exit|execve|kill|tgkill)", arguments)]
        self.assertEqual(set(ending), {"runtime/client/start.c"})  # of its own child, which becomes the daemon

    def test_the_daemon_starts_only_itself(self):
        self.assertFalse(imports(DAEMON) & STARTS)
        self.assertEqual([(path, arguments.split(",")[1].strip()) for path, arguments in calls("posix_spawn", "common", "lockd")],
                         [("lockd/move/move_guard.c", '"/proc/self/exe"')])

    def test_the_daemon_makes_only_sockets_their_folder_and_locks(self):
        self.assertFalse(imports(DAEMON) & {"rename", "renameat", "renameat2", "mkdirat", "link", "symlink", "truncate", "ftruncate", "creat",
                                            "mkstemp", "mkostemp", "tmpfile"})
        makes = [path for path, arguments in calls("open(?:at)?", "common", "lockd") if "O_CREAT" in arguments and not path.startswith("lockd/ctl/")]
        makes += [path for path, _ in calls("mkdir", "common", "lockd")]
        self.assertEqual(set(makes), {"common/place.c", "lockd/start/sockets.c"})
        for path, arguments in calls("fopen", "common", "lockd"):
            self.assertRegex(arguments, r'"re?"', path)

    def test_the_patcher_runs_only_the_loader(self):
        self.assertFalse(imports(PATCHER) & STARTS)
        self.assertEqual([(path, arguments.split(",")[1].strip(), arguments.split(",")[-1].strip(" )"))
                          for path, arguments in calls("posix_spawn", "common", "rewriter")], [("rewriter/verify/verify.c", "LOADER", "empty")])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
