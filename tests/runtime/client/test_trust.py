# SPDX-License-Identifier: Apache-2.0
"""A false daemon of another user, wherever it can put its socket: no program and no gpusharectl says a word to it, and each says why.
And the daemons of another user that are right: a service's. Needs root, to be two users; the victim is root itself, or a copy of what
it runs. test_trust.py --build DIR"""
import argparse
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import Card, check, failures  # noqa: E402

ATTACKER, VICTIM = 64997, 64996
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
PATIENCE = 60
words = None


class FalseDaemon:
    """Listens as ATTACKER, and reports on a pipe what callers said: a number of bytes for each."""

    def __init__(self, path, before=lambda: None):
        self.said, theirs = os.pipe()
        ready, go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setgroups([])
            os.setresgid(ATTACKER, ATTACKER, ATTACKER)
            os.setresuid(ATTACKER, ATTACKER, ATTACKER)
            before()
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(path)
            os.chmod(path, 0o777)
            listener.listen(50)
            os.write(go, b"!")
            while True:
                caller, _ = listener.accept()
                os.write(theirs, b"c")
                if caller.recv(4096):
                    os.write(theirs, b"S")
        os.close(theirs)
        os.close(go)
        if os.read(ready, 1) != b"!":
            raise RuntimeError("the false daemon did not come up")
        os.close(ready)

    def end(self):
        """What it was told: "c" for each caller, "S" for each that said something."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        heard = b""
        while part := os.read(self.said, 4096):
            heard += part
        os.close(self.said)
        return heard.decode()


def run_both(card, title, path, reason):
    """A program and gpusharectl with GPUSHARE_SOCKET=path; a daemon must not be started there in the attacker's favour either."""
    command = [os.path.join(words.build, "tests", "runtime", "soak"), "--seconds", "0.1", "--threads", "1", "--memory", "10MiB", "--seed", "1"]
    began = time.monotonic()
    code, _, err = card.run(command, GPUSHARE_SOCKET=path, timeout=PATIENCE)
    check(code == 0 and err.count("\n") == 1 and reason in err and "running without sharing" in err,
          f"{title}: the program goes on without sharing and says why ({time.monotonic() - began:.1f} s): {code} {err!r}")
    code, _, err = card.run([words.ctl, "status"], GPUSHARE_SOCKET=path)
    check(code == 1 and reason in err, f"{title}: gpusharectl says why: {code} {err!r}")


def attack(title, prepare):
    """prepare(common): the path that the victim is told, where the attacker listens, and what it does before."""
    with Card(words.build, daemon=False) as card:
        os.chmod(card.folder, 0o755)
        common = os.path.join(card.folder, "common")
        os.mkdir(common)
        os.chmod(common, 0o1777)  # as /tmp
        told, listens, before = prepare(common)
        false = FalseDaemon(listens, before)
        run_both(card, title, told, "symbolic link" if "link" in title else "not trusted")
        heard = false.end()
        check("S" not in heard, f"{title}: nothing was said to the false daemon: {heard!r}")


def in_sticky_folder(common):
    return f"{common}/lockd.sock", f"{common}/lockd.sock", lambda: None


def in_own_folder(common):
    return f"{common}/own/lockd.sock", f"{common}/own/lockd.sock", lambda: os.mkdir(f"{common}/own")


def behind_folder_link(common):
    return f"{common}/link/lockd.sock", f"{common}/lockd.sock", lambda: os.symlink(common, f"{common}/link")


def behind_socket_link(common):
    return f"{common}/lockd.sock", f"{common}/other.sock", lambda: os.symlink("other.sock", f"{common}/lockd.sock")


def in_private_mounts(scene):
    """Runs scene() where /run is a folder of its own; its failures are counted."""
    pid = os.fork()
    if pid != 0:
        _, status = os.waitpid(pid, 0)
        if status == 77 << 8:
            print("skipped: no mount namespaces here", flush=True)
        elif status != 0:
            failures.append(scene.__name__)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0 or \
            libc.mount(b"none", b"/run", b"tmpfs", 0, b"mode=755") != 0:
        os._exit(77)
    try:
        scene()
        os._exit(1 if failures else 0)
    except BaseException as error:
        print(f"FAILED: {scene.__name__}: {error!r}", flush=True)
        os._exit(1)


def as_user(uid):
    return {"user": uid, "group": uid, "extra_groups": []}


def status(folder, *before, **who):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUSHARE_")}
    done = subprocess.run([*before, f"{folder}/gpusharectl", "--socket", "/run/gpushare/lockd.sock", "status"], env=environment,
                          capture_output=True, text=True, timeout=PATIENCE, check=False, **who)
    return done.returncode, done.stdout + done.stderr


def service(owner, who):
    """A daemon of `who` at /run/gpushare, a folder of `owner`, with copies that everybody can run; (folder, daemon)."""
    folder = subprocess.run(["mktemp", "-d", "/tmp/gs-trust-XXXXXX"], capture_output=True, text=True, check=True).stdout.strip()
    os.chmod(folder, 0o755)
    for program in (words.lockd, words.ctl):
        shutil.copy(program, folder)
    shutil.rmtree("/run/gpushare", ignore_errors=True)
    os.mkdir("/run/gpushare")
    os.chown("/run/gpushare", owner, VICTIM)
    os.chmod("/run/gpushare", 0o755)
    daemon = subprocess.Popen([f"{folder}/gpushare-lockd", "--socket", "/run/gpushare/lockd.sock", "--log-level", "error"], user=who, group=who,
                              extra_groups=[VICTIM])
    end = time.monotonic() + PATIENCE
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            if caller.connect_ex("/run/gpushare/lockd.sock") == 0:
                return folder, daemon
        if daemon.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"no daemon at /run/gpushare: {daemon.poll()}")
        time.sleep(0.01)


def service_of_the_folders_owner():
    folder, daemon = service(ATTACKER, ATTACKER)  # root has given it the folder: it is no attacker here
    try:
        code, text = status(folder, **as_user(VICTIM))
        check(code == 0, f"the owner of /run/gpushare serves others: {code} {text!r}")
        os.chmod("/run/gpushare", 0o777)
        code, text = status(folder, **as_user(VICTIM))
        check(code == 1 and "not trusted" in text, f"not when others may write there: {code} {text!r}")
        os.chmod("/run/gpushare", 0o755)
        os.chmod("/run", 0o1777)
        code, text = status(folder, **as_user(VICTIM))
        check(code == 1 and "not trusted" in text, f"not when anybody could have made that folder: {code} {text!r}")
        os.chmod("/run", 0o755)
        os.chown("/run/gpushare", 0, VICTIM)
        code, text = status(folder, **as_user(VICTIM))
        check(code == 1 and "not trusted" in text, f"not when the folder is another's: {code} {text!r}")
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(folder)


def service_of_root_from_a_user_namespace():
    inside = ["unshare", "-U", "-r"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False, **as_user(VICTIM)).returncode != 0:
        print("skipped: no user namespaces here", flush=True)
        return
    folder, daemon = service(0, 0)
    try:
        code, text = status(folder, *inside, **as_user(VICTIM))
        check(code == 0, f"root's service, seen as the overflow user's: {code} {text!r}")
        os.chmod("/run", 0o1777)
        code, text = status(folder, *inside, **as_user(VICTIM))
        check(code == 1 and "not trusted" in text, f"not when anybody could have made that folder: {code} {text!r}")
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(folder)


def main():
    global words
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    words = parser.parse_args()
    words.lockd = os.path.join(words.build, "lockd", "gpushare-lockd")
    words.ctl = os.path.join(words.build, "lockd", "gpusharectl")
    if os.geteuid() != 0:
        print("skipped: only root can be two users")
        sys.exit(77)
    for title, prepare in (("a socket in a sticky folder", in_sticky_folder), ("a folder of the attacker's", in_own_folder),
                           ("a link to a folder", behind_folder_link), ("a link to a socket", behind_socket_link)):
        attack(title, prepare)
    in_private_mounts(service_of_the_folders_owner)
    in_private_mounts(service_of_root_from_a_user_namespace)
    sys.exit(1 if failures else 0)


main()
