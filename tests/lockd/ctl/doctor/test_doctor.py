#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl doctor: each cause for not sharing is named, at its level, with what to do.

usage: test_doctor.py GPUSHARE_LOCKD GPUSHARECTL GPUSHARE_PATCH [unittest options]"""
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
from fake import END, MAGIC, PATIENCE, Daemon, Program, wait_for

LOCKD, CTL, PATCH = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
MAPS = "import mmap, sys; files = [open(f, 'rb') for f in sys.argv[1:]]; " \
       "kept = [mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) for f in files]; print('!', flush=True); sys.stdin.read()"


class DoctorTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD)
        self.addCleanup(self.daemon.process.kill)
        self.folder = self.daemon.folder

    def tearDown(self):
        self.assertEqual(self.daemon.end(), 0)
        shutil.rmtree(self.folder)

    def file(self, name, content=b"x" * 4096, mode=0o644):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
        return path

    def doctor(self, *arguments, socket_path=None, **environment):
        result = subprocess.run([CTL, "doctor", "--json", *arguments], capture_output=True, text=True, timeout=PATIENCE,
                                env={**os.environ, "GPUSHARE_SOCKET": socket_path or self.daemon.path, **environment})
        self.assertNotIn("Sanitizer", result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual(result.returncode, 1 if answer["verdict"] == "fail" else 0)
        for finding in answer["findings"]:  # whatever is wrong comes with a line for the shell, which the shell can read
            if finding["level"] in ("warn", "fail"):
                self.assertTrue(finding["command"], finding)
                parsed = subprocess.run(["bash", "-n", "-c", finding["command"]], capture_output=True, check=False)
                self.assertEqual((parsed.returncode, parsed.stderr), (0, b""), finding)
        return {f["check"]: f for f in answer["findings"]}

    def assert_found(self, found, check, level, *words):
        self.assertEqual(found[check]["level"], level, found[check])
        for word in words:
            self.assertIn(word, found[check]["text"] + " -> " + (found[check]["advice"] or "") + " $ " + (found[check]["command"] or ""))

    def running(self, *command, **options):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), b"!\n")
        return str(process.pid)

    def test_driver_that_a_program_has_loaded(self):
        one, other = self.file("a/libcuda.so.1"), self.file("b/libcuda.so.580.65")
        stub = self.file("stubs/libcuda.so")
        for files, level, words in (((one,), "ok", (one,)), ((one, other), "warn", (one, other, "two driver libraries")),
                                    ((stub,), "fail", ("stub for linking", "stubs folder")),
                                    ((self.file("libcudart.so.13"),), "fail", ("but libcudart",))):
            found = self.doctor(self.running(sys.executable, "-c", MAPS, *files))
            self.assert_found(found, "process.cuda", level, *words)

    def test_container_that_sees_no_socket_or_another_one(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        script = f"mount --bind {empty} {self.folder} || exit 1; echo !; exec cat"
        if subprocess.run(["unshare", "-m", "mount", "--bind", empty, self.folder], capture_output=True).returncode != 0:
            self.skipTest("no mount namespaces here")
        pid = self.running("unshare", "-m", "sh", "-c", script)
        wait_for(lambda: os.readlink(f"/proc/{pid}/exe").endswith("cat"), PATIENCE, "exec")
        found = self.doctor(pid)
        self.assert_found(found, "process.container", "fail", "does not see", f"docker run -v {self.folder}:{self.folder} ")
        self.assert_found(found, "process.library", "fail", "neither the door", "gpusharectl cdi generate")
        other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        other.bind(os.path.join(empty, "lockd.sock"))
        self.assert_found(self.doctor(pid), "process.container", "fail", "another daemon's socket", "folder")
        other.close()

    def test_files(self):
        code = self.file("t.c", b"int main(void) { return 0; }\n")
        static, setuid = os.path.join(self.folder, "static"), os.path.join(self.folder, "setuid")
        shutil.copy("/bin/true", setuid)
        os.chmod(setuid, 0o4755)
        self.assert_found(self.doctor(setuid), "file.privileged", "warn", "setuid")
        for line, command in ((b"#!/bin/sh\n", "gpusharectl doctor /bin/sh"), (b"#! /bin/bash -eu\nexit\n", "gpusharectl doctor /bin/bash"),
                              (b"#!/usr/bin/env python3\n", 'gpusharectl doctor "$(command -v python3)"'),
                              (b"#!/usr/bin/env -S X=1 python3 -u\n", 'gpusharectl doctor "$(command -v python3)"'),
                              (b"#!/opt/my tools/x", "gpusharectl doctor /opt/my"), (b"#!\n", "file "), (b"#!" + b"/x" * 400, "gpusharectl doctor /x"),
                              (b"print(1)\n", "file ")):
            found = self.doctor(self.file("script", line, 0o755))
            self.assert_found(found, "file.kind", "fail", "script" if line[:2] == b"#!" else "no program", command)
        if subprocess.run(["cc", "-static", "-o", static, code], capture_output=True).returncode == 0:
            self.assert_found(self.doctor(static), "file.prepared", "fail", "statically linked", "gpushare-patch --print")

    def test_library_that_nothing_routes(self):
        work, program = self.folder + "/libwork.so", self.folder + "/program"
        calls = self.file("w.c", b'#include <dlfcn.h>\nint work(void) { void *h = dlopen("libcuda.so.1", 1); return h && !dlsym(h, "cuInit"); }')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", work, calls], check=True)
        subprocess.run(["cc", "-o", program, self.file("p.c", b"int work(void);\nint main(void) { return work(); }"), work], check=True)
        found = self.doctor(program)
        self.assert_found(found, "file.prepared", "fail", "is a CUDA program", "gpushare-patch " + program)
        self.assert_found(found, "file.unrouted", "warn", os.path.realpath(work), "looks up cuInit", "once the program is prepared")

    def test_link_out_of_a_python_environment(self):
        self.file("env/pyvenv.cfg", b"")
        os.makedirs(self.folder + "/env/bin")
        env, python = os.path.realpath(self.folder + "/env"), self.folder + "/env/bin/python3"
        os.symlink("/bin/sh", python)
        wanted = ("file.prepared", "fail", os.path.realpath("/bin/sh"), f"gpushare-patch --venv {env}")
        self.assert_found(self.doctor(python), *wanted)
        command = ("-c", "echo !; read line")
        active = {**os.environ, "VIRTUAL_ENV": self.folder + "/env"}
        for pid in (self.running(python, *command), self.running("env/bin/python3", *command, cwd=self.folder),
                    self.running("python3", *command, executable=python, env=active)):
            self.assert_found(self.doctor(pid), *wanted)
        self.assertNotIn("--venv", self.doctor(self.running("/bin/sh", *command, env=active))["file.prepared"]["command"])

    def test_environment(self):
        self.file("mps/control")
        for variable, value, check, level, words in (
                ("GPUSHARE_DISABLE", "1", "environment.disable", "fail", ("unset",)),
                ("CUDA_VISIBLE_DEVICES", "", "environment.devices", "fail", ("hides every device",)),
                ("CUDA_VISIBLE_DEVICES", "-1", "environment.devices", "fail", ("hides every device",)),
                ("CUDA_VISIBLE_DEVICES", "1", "environment.devices", "info", ("same device",)),
                ("CUDA_VISIBLE_DEVICES", "MIG-1/2/3", "environment.devices", "info", ("MIG instance is shared separately",)),
                ("CUDA_MPS_PIPE_DIRECTORY", self.folder + "/mps", "environment.mps", "warn", ("MPS daemon is running",)),
                ("GPUSHARE_MEMORY", "native", "environment.memory", "warn", ("never moved",)),
                ("GPUSHARE_CLASS", "batch", "environment.class", "info", ("batch",)),
                ("GPUSHARE_CLASS", "quick", "environment.class", "warn", ("is ignored", "auto|interactive|batch", "unset GPUSHARE_CLASS")),
                ("GPUSHARE_LOCKD", "/nowhere", "environment.lockd", "fail", ("not a program",))):
            self.assert_found(self.doctor(**{variable: value}), check, level, *words)

    def test_class_of_a_process_that_does_not_exist(self):
        process = self.running("sh", "-c", "echo !; read line", env={**os.environ, "GPUSHARE_CLASS": "quick"})
        self.assert_found(self.doctor(process), "environment.class", "warn", f"gpusharectl set class {process} interactive")

    def test_command_quotes_what_a_shell_would_take_apart(self):
        odd = self.file("it's odd; touch x", b"no program")
        self.assertEqual(subprocess.run(["bash", "-c", "file() { printf %s \"$1\"; }; " + self.doctor(odd)["file.kind"]["command"]],
                                        capture_output=True, text=True, check=True).stdout, odd)

    def test_command_has_the_whole_path(self):
        """A path that is cut names another file."""
        long = self.file("/".join(["a" * 200] * 10) + "/it's a script", b"#!/bin/sh\n")
        found = self.doctor(long)["file.kind"]
        self.assertIn("is a script: the program that runs it must be prepared", found["text"])
        with open(long, "wb"):  # no script
            pass
        command = self.doctor(long)["file.kind"]["command"]
        self.assertEqual(subprocess.run(["bash", "-c", "file() { printf %s \"$1\"; }; " + command], capture_output=True, text=True,
                                        check=True).stdout, long)

    def test_configuration_that_the_daemon_refuses(self):
        self.assert_found(self.doctor(), "config.check", "ok")
        config = self.file("etc/lockd.conf", b"[scheduling]\npolicy = best\n")
        mount = f"mount -t tmpfs none /etc && mkdir /etc/gpushare && cp {config} /etc/gpushare/ && exec {CTL} doctor --json"
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/etc"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespaces here")
        found = {f["check"]: f for f in json.loads(self.shell(mount))["findings"]}
        self.assert_found(found, "config.check", "fail", "policy", "'best' is not one of", "/etc/gpushare/lockd.conf")

    def shell(self, script):
        return subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=PATIENCE,
                              env={**os.environ, "GPUSHARE_SOCKET": self.daemon.path}).stdout

    def test_specification_for_containers(self):
        there = self.file("libcuda.so.580")
        spec = {"cdiVersion": "0.5.0", "kind": "gpushare.dev/gpu", "containerEdits": {"mounts": [{"hostPath": there}]},
                "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}]}
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/run"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespaces here")
        for gone, level, words in ((None, "ok", ("gpushare.dev/gpu",)),
                                   (there + ".old", "fail", (there + ".old", "cdi generate --output /var/run/cdi/gpushare.json"))):
            if gone:
                spec["devices"][0]["containerEdits"]["mounts"] = [{"hostPath": gone}]
            path = self.file("gpushare.json", json.dumps(spec).encode())
            answer = self.shell(f"mount -t tmpfs none /run && mkdir /run/cdi && cp {path} /run/cdi/ && exec {CTL} doctor --json")
            self.assert_found({f["check"]: f for f in json.loads(answer)["findings"]}, "container.specification", level, *words)

    def test_process_behind_the_door(self):
        found = self.doctor(self.running(sys.executable, "-c", MAPS, self.file("d/libcuda.so.1"), self.file("d/libcuda-real.so.1")))
        self.assert_found(found, "process.door", "ok", "driver's place")
        self.assert_found(found, "process.cuda", "ok")
        self.assertNotIn("process.library", found)

    def test_library_that_is_missing(self):
        code = self.file("needs.c", b"int one(void); int main(void) { return one(); }\n")
        part = self.file("part.c", b"int one(void) { return 1; }\n")
        program, library = os.path.join(self.folder, "needs"), os.path.join(self.folder, "libcudart_of_test.so.13")
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcudart_of_test.so.13", "-o", library, part], check=True)
        subprocess.run(["cc", "-o", program, code, library], check=True)
        self.assert_found(self.doctor(program), "file.libraries", "fail", "libcudart_of_test.so.13", "is not found", "find / -name")
        self.assertNotIn("file.libraries", self.doctor(program, LD_LIBRARY_PATH=self.folder))

    def test_wheel_that_is_not_enabled(self):
        self.file("env/pyvenv.cfg", b"")
        os.makedirs(self.folder + "/env/bin")
        env = self.folder + "/env"
        shutil.copy("/bin/true", env + "/bin/python3")
        self.assertNotIn("wheel.enabled", self.doctor(VIRTUAL_ENV=env))
        self.file("env/lib/python3.11/site-packages/gpushare_patch/__init__.py", b"")
        self.assert_found(self.doctor(VIRTUAL_ENV=env), "wheel.enabled", "warn", "not enabled",
                          f"{env}/bin/python3 -m gpushare_patch enable")
        library = self.file("place/libgpushare.so.1")
        subprocess.run([PATCH, "--any", "--force", "--runtime", library, env + "/bin/python3"], check=True, capture_output=True,
                       env={**os.environ, "GPUSHARE_STATE": self.folder + "/state"})
        self.assert_found(self.doctor(VIRTUAL_ENV=env), "wheel.enabled", "ok", "is prepared")
        os.unlink(library)
        self.assert_found(self.doctor(VIRTUAL_ENV=env), "wheel.enabled", "fail", f"gpushare-patch --restore {env}/bin/python3")

    def test_daemon_that_is_not_there_or_speaks_another_version(self):
        self.assert_found(self.doctor(socket_path=self.folder + "/none.sock"), "daemon.reachable", "info", "no gpushare-lockd")
        self.assert_found(self.doctor(str(os.getpid()), socket_path=self.folder + "/none.sock"), "daemon.reachable", "fail")
        path = os.path.join(self.folder, "newer.sock")
        newer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        newer.bind(path)
        newer.listen()

        def answer():
            caller, _ = newer.accept()
            caller.recv(4096)
            caller.send(struct.pack("<IHHIIiI192s", MAGIC, 77, END, 216, 0, -93, 0, b"too old"))
            caller.close()
        thread = threading.Thread(target=answer)
        thread.start()
        self.assert_found(self.doctor(socket_path=path), "daemon.reachable", "fail", "protocol version 77", "same gpushare release")
        thread.join()
        newer.close()

    def test_program_of_another_release(self):
        program = Program(self.daemon.path, "older")  # which says it is release "test"
        program.say()
        program.hear()
        self.assert_found(self.doctor(), "program.version", "info", "older", "test")
        program.close()


if __name__ == "__main__":
    unittest.main(warnings="ignore")
