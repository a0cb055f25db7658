# SPDX-License-Identifier: Apache-2.0
"""other_user.py: what tests that become another user need. The build folder, the sources and TMPDIR may lie where others may
not go (root's home, say), so whatever another user runs is copied to a folder that everybody can reach."""
import os
import shutil
import sys
import tempfile

AS_OTHER_USER = {"user": 65534, "group": 65534, "extra_groups": []}  # of subprocess.run()


def is_reachable(path):
    """Whether everybody may pass this folder, or run this file, and pass every folder above it."""
    path = os.path.realpath(path)
    while os.stat(path).st_mode & 0o001:
        if path == "/":
            return True
        path = os.path.dirname(path)
    return False


def make_folder(prefix="gpushare-test-"):
    """A new folder, of mode 0700 like all temporary folders, but in a place that everybody can reach if there is one."""
    places = (tempfile.gettempdir(), "/tmp", "/var/tmp")
    return tempfile.mkdtemp(prefix=prefix, dir=next(filter(is_reachable, filter(os.path.isdir, places)), None))


def copy_for_others(test, *paths):
    """Copies of these files, in one folder, that everybody can read and run until the test is over."""
    folder = make_folder()
    test.addCleanup(shutil.rmtree, folder)
    os.chmod(folder, 0o755)
    if not is_reachable(folder):
        test.skipTest("there is no folder for temporary files that other users can reach")
    copies = [shutil.copy(path, folder) for path in paths]
    for copy in copies:
        os.chmod(copy, 0o755)
    return copies


def find_python_for_others(test):
    """A Python that everybody can run: this one may be somebody's own."""
    found = [path for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(path) and is_reachable(path)]
    if not found:
        test.skipTest(f"other users cannot run {sys.executable}")
    return found[0]
