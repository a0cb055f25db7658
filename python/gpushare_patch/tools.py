# SPDX-License-Identifier: Apache-2.0
"""The programs on the environment's PATH: each becomes the program of the same name."""
import os
import sys

from gpushare_patch import environment, place


def _become(name, folder):
    program = os.path.join(folder, "bin", "gpushare-cc" if name in ("gpushare-c++", "gpushare-nvcc") else name)
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        print(f"{name}: {program}: {error.strerror}", file=sys.stderr)
        return 1


def gpushare_patch():
    """Runs from where it outlives the environment, so that patched programs find the library there."""
    if environment.is_environment():
        os.environ["VIRTUAL_ENV"] = sys.prefix  # of --venv without a folder
    only_says = {"--help", "-h", "--version", "-V"} & set(sys.argv[1:])
    try:
        return _become("gpushare-patch", place.PACKAGE if only_says else place.keep())
    except OSError as error:
        print(f"gpushare-patch: {error}", file=sys.stderr)
        return 1


def gpusharectl():
    return _become("gpusharectl", place.PACKAGE)


def gpushare_lockd():
    return _become("gpushare-lockd", place.PACKAGE)


def gpushare_door():
    """The door is mounted away from the wheel's folder, so it is told where the daemon is."""
    os.environ.setdefault("GPUSHARE_LOCKD", os.path.join(place.PACKAGE, "bin", "gpushare-lockd"))
    return _become("gpushare-door", place.PACKAGE)


def _compile(name):
    """Links programs to the kept library."""
    try:
        folder = place.keep()
        if not {"-c", "-E", "-S", "--help", "-h", "--version", "-V"} & set(sys.argv[1:]):
            place.note_link(folder)
        return _become(name, folder)
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1


def gpushare_cc():
    return _compile("gpushare-cc")


def gpushare_cxx():
    return _compile("gpushare-c++")


def gpushare_nvcc():
    return _compile("gpushare-nvcc")
