# SPDX-License-Identifier: Apache-2.0
"""enable, disable and status of the Python environment that this package is installed in."""
import os
import subprocess
import sys

from gpushare_patch import place

NOTHING = 4  # exit status of gpushare-patch: nothing to do
NO_DAEMON = 3  # exit status of gpusharectl


class Refused(Exception):
    """The request cannot be carried out; the text gives the reason."""


def is_environment():
    return os.path.exists(os.path.join(sys.prefix, "pyvenv.cfg"))


def _patch(folder, *words, **more):
    sys.stdout.flush()
    return subprocess.run([os.path.join(folder, "bin", "gpushare-patch"), *words], stdin=subprocess.DEVNULL, check=False, **more)


def _check_environment():
    if not is_environment():
        raise Refused(f"{sys.prefix} is no virtual environment, and its interpreter belongs to the system; make one "
                      "(python3 -m venv DIR), or patch a program by itself: gpushare-patch FILE")


def enable():
    """Patches this environment. 0, or gpushare-patch's exit status."""
    _check_environment()
    try:
        done = _patch(place.keep(), "--venv", sys.prefix)
    except OSError:
        _drop_unneeded()
        raise
    if done.returncode != 0:
        _drop_unneeded()
    else:
        print(f"{sys.prefix}: its programs share the GPU from now on (those that run already do not)")
    return done.returncode


def _is_needed(folder):
    """Whether any file that uses the kept library is still patched."""
    library = os.path.join(folder, "lib", "libgpushare.so.1")
    listed = _patch(place.PACKAGE, "--list", "--runtime", library, stdout=subprocess.PIPE, universal_newlines=True)
    return listed.returncode not in (0, NOTHING) or any(
        line.split(None, 1)[0] in ("patched", "changed", "hidden") for line in listed.stdout.splitlines() if "/" in line)


def _drop_unneeded():
    folder = place.folder()
    if place.has_links(folder):
        print(f"{folder} stays for programs that were linked with its library (gpushare-cc); remove it when none of them is left")
    elif not _is_needed(folder):
        place.drop()


def disable():
    """Restores this environment. 0, or gpushare-patch's exit status."""
    _check_environment()
    folder = place.folder() if os.path.exists(os.path.join(place.folder(), "bin", "gpushare-patch")) else place.PACKAGE
    done = _patch(folder, "--venv", sys.prefix, "--restore")
    if done.returncode not in (0, NOTHING):
        return done.returncode
    if folder != place.PACKAGE:
        _drop_unneeded()
    return 0


def status():
    """Shows what is patched and whether the daemon runs. 0 if this environment is enabled, 1 if not."""
    _check_environment()
    folder = place.folder() if os.path.exists(os.path.join(place.folder(), "bin", "gpushare-patch")) else place.PACKAGE
    enabled = _patch(folder, "--venv", sys.prefix, "--check", "-q", stdout=subprocess.DEVNULL).returncode == 0
    print(f"environment: {sys.prefix}: {'enabled' if enabled else 'not enabled'}")
    print(f"library: {os.path.join(place.folder(), 'lib', 'libgpushare.so.1')}"
          f"{'' if folder != place.PACKAGE else ' (not there: enable puts it there)'}")
    sys.stdout.flush()
    daemon = subprocess.run([os.path.join(place.PACKAGE, "bin", "gpusharectl"), "status"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    if daemon.returncode == NO_DAEMON:
        print("daemon: not running (the first program that needs it starts it)")
    else:
        print(daemon.stdout, end="")
    return 0 if enabled else 1
