# SPDX-License-Identifier: Apache-2.0
"""Where the library of patched programs lies: not in the environment, which may be removed while its programs are patched,
but in /var/lib/gpushare (root) or gpushare below XDG_DATA_HOME, with the daemon and the tools beside it. GPUSHARE_STATE names
another folder."""
import filecmp
import os
import shutil
import tempfile

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prefix")
VERSION_FILE = "version"
LINKED = "linked"  # is there if programs may have been linked with the library: nobody knows where they are
FILES = ["lib/libgpushare.so.1", "lib/gpushare/libgpushare-stub.so.1", "lib/gpushare/wrap.rsp", "bin/gpushare-lockd",
         "bin/gpushare-patch", "bin/gpusharectl", "bin/gpushare-cc", VERSION_FILE]


def folder():
    if os.environ.get("GPUSHARE_STATE", "").startswith("/"):
        return os.environ["GPUSHARE_STATE"]
    if os.geteuid() == 0:
        return "/var/lib/gpushare"
    data = os.environ.get("XDG_DATA_HOME", "")
    return os.path.join(data if data.startswith("/") else os.path.expanduser("~/.local/share"), "gpushare")


def _version(path):
    """As a list of numbers; of nothing, an empty one."""
    try:
        with open(os.path.join(path, VERSION_FILE), encoding="ascii") as file:
            return [int(part) for part in file.read().strip().split(".")]
    except (OSError, ValueError):
        return []


def _make_folder(path):
    """Root's may be entered by all, whatever its umask: programs of all users load the library in there."""
    if os.path.isdir(path):
        return
    _make_folder(os.path.dirname(path))
    os.mkdir(path)
    if os.geteuid() == 0:
        os.chmod(path, 0o755)


def keep():
    """Copies what patched programs need to its place, unless something newer is there. Each file is replaced at once:
    programs that run keep the old one. Returns the folder."""
    place = folder()
    if _version(place) > _version(PACKAGE):
        return place
    for name in FILES:
        source, target = os.path.join(PACKAGE, name), os.path.join(place, name)
        if os.path.exists(target) and filecmp.cmp(source, target, shallow=False):
            continue
        _make_folder(os.path.dirname(target))
        fd, temporary = tempfile.mkstemp(dir=os.path.dirname(target))
        os.close(fd)
        try:
            shutil.copyfile(source, temporary)
            os.chmod(temporary, 0o644 if name == VERSION_FILE or name.endswith(".rsp") else 0o755)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    return place


def note_link(place):
    """The copies stay from now on, whatever is restored."""
    with open(os.path.join(place, LINKED), "w", encoding="ascii"):
        pass


def has_links(place):
    return os.path.exists(os.path.join(place, LINKED))


def drop():
    """Removes the copies, and the folders that are empty then."""
    place = folder()
    for name in FILES:
        try:
            os.unlink(os.path.join(place, name))
        except FileNotFoundError:
            pass
    for name in ("lib/gpushare", "lib", "bin", "patched", ""):
        try:
            os.rmdir(os.path.join(place, name))
        except OSError:
            pass
