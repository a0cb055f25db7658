# SPDX-License-Identifier: Apache-2.0
"""What the tests of gpushare-patch --tree and --venv share: a folder with programs, its snapshots, lines of RECORD files."""
import base64
import hashlib
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tool  # noqa: E402  (in the folder above)
from other_user import make_folder  # noqa: E402
from tool import OPTIONS  # noqa: E402

LOADS = '#include <dlfcn.h>\nint %s(void) { void *h = dlopen("libcuda.so.1", 1); return h && !dlsym(h, "cuInit"); }'
PLAIN = '#include <dlfcn.h>\nint %s(void) { return dlsym(RTLD_DEFAULT, "puts") == 0; }'


def run(*args):
    return tool.run("--runtime", OPTIONS.runtime, *args)


def record_line(root, path):
    data = open(os.path.join(root, path), "rb").read()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    name = f'"{path}"' if "," in path or "\n" in path else path
    return f"{name},sha256={digest},{len(data)}\n"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = make_folder("gpushare-tree.")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def build(self, name, source, *flags):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["gcc", "-w", "-x", "c", "-", "-o", path, *flags],
                       input=(source % ("f" if "-shared" in flags else "main")).encode(), check=True)
        return path

    def snapshot(self):
        """Every path with what it is."""
        found = {}
        for at, folders, files in os.walk(self.folder):
            for name in folders + files:
                path = os.path.join(at, name)
                found[path] = ("link " + os.readlink(path) if os.path.islink(path) else
                               "folder" if os.path.isdir(path) else open(path, "rb").read())
        return found

    def changed(self, before):
        now = self.snapshot()
        return sorted(os.path.relpath(p, self.folder) for p in set(now) | set(before) if now.get(p) != before.get(p))
