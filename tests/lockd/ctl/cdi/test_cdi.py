#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpusharectl cdi generate`: what it makes of the driver's specification, checked by the rules of the Container Device
Interface, and run with podman where that is installed. test_cdi.py --build DIR"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(HERE))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from kit import BuildTest, main  # noqa: E402

# the project's own schema, from its package in Debian (fetch_schema.sh)
SCHEMA = os.path.join(ROOT, "build", "cdi-schema")

# as nvidia-ctk writes it (shortened), with DRIVER for the path of libcuda
YAML = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/null
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-ctk
    - hook
    - create-symlinks
    - --link
    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-ctk
  - args:
    - nvidia-ctk
    - hook
    - enable-cuda-compat
    - --host-driver-version=580.159.04
    hookName: createContainer
    path: /usr/bin/nvidia-ctk
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
    hostPath: DRIVER
    options:
    - ro
    - nosuid
    - nodev
    - bind
  - containerPath: '/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04'
    hostPath: "/etc/hostname"
    options: []
devices:
- containerEdits:
    deviceNodes:
    - major: 1
      path: /dev/zero
      permissions: rw
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/zero
  name: all
kind: nvidia.com/gpu
"""

# field: (type, required, since); the rules of the specification's text and schema
NODE = {"path": (str, True, "0.3.0"), "hostPath": (str, False, "0.5.0"), "type": (str, False, "0.3.0"), "major": (int, False, "0.3.0"),
        "minor": (int, False, "0.3.0"), "fileMode": (int, False, "0.3.0"), "permissions": (str, False, "0.3.0"),
        "uid": (int, False, "0.3.0"), "gid": (int, False, "0.3.0")}
MOUNT = {"hostPath": (str, True, "0.3.0"), "containerPath": (str, True, "0.3.0"), "options": (list, False, "0.3.0"),
         "type": (str, False, "0.4.0")}
HOOK = {"hookName": (str, True, "0.3.0"), "path": (str, True, "0.3.0"), "args": (list, False, "0.3.0"), "env": (list, False, "0.3.0"),
        "timeout": (int, False, "0.3.0")}
EDITS = {"env": (list, False, "0.3.0"), "deviceNodes": (list, False, "0.3.0"), "mounts": (list, False, "0.3.0"),
         "hooks": (list, False, "0.3.0"), "additionalGids": (list, False, "0.7.0"), "intelRdt": (dict, False, "0.7.0")}
DEVICE = {"name": (str, True, "0.3.0"), "containerEdits": (dict, True, "0.3.0"), "annotations": (dict, False, "0.6.0")}
SPEC = {"cdiVersion": (str, True, "0.3.0"), "kind": (str, True, "0.3.0"), "devices": (list, True, "0.3.0"),
        "containerEdits": (dict, False, "0.3.0"), "annotations": (dict, False, "0.6.0")}


def number(version):
    return [int(part) for part in version.split(".")]


def wrong_in(spec):
    """What a container runtime would refuse in a specification."""
    wrong = []

    def fields(value, rules, where):
        for name, (kind, required, since) in rules.items():
            if name not in value:
                wrong.extend([f"{where}: no {name}"] * required)
            elif not isinstance(value[name], kind) or isinstance(value[name], bool):
                wrong.append(f"{where}: {name} is {value[name]!r}")
            elif number(since) > number(spec["cdiVersion"]):
                wrong.append(f"{where}: {name} is of {since}")
        wrong.extend(f"{where}: {name} is unknown" for name in value if name not in rules)

    def edits(value, where):
        fields(value, EDITS, where)
        for name, rules in (("deviceNodes", NODE), ("mounts", MOUNT), ("hooks", HOOK)):
            for entry in value.get(name, []):
                fields(entry, rules, f"{where}.{name}")
        wrong.extend(f"{where}: env {entry!r}" for entry in value.get("env", []) if "=" not in entry)
        wrong.extend(f"{where}: hook {hook['hookName']}" for hook in value.get("hooks", [])
                     if hook["hookName"] not in ("createRuntime", "createContainer", "startContainer", "poststart", "poststop", "prestart"))
        wrong.extend(f"{where}: gid {gid}" for gid in value.get("additionalGids", []) if not 0 < gid < 1 << 32)

    fields(spec, SPEC, "the specification")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]", spec["kind"]):
        wrong.append(f"kind {spec['kind']}")
    edits(spec.get("containerEdits", {}), "all devices")
    for device in spec["devices"]:
        fields(device, DEVICE, "a device")
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device["name"]):
            wrong.append(f"name {device['name']}")
        edits(device["containerEdits"], device["name"])
    names = [device["name"] for device in spec["devices"]]
    wrong.extend(f"two devices {name}" for name in set(names) if names.count(name) > 1)
    return wrong


class Cdi(BuildTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gs-cdi-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.door = os.path.join(self.build, "runtime", "door")
        self.driver = os.path.join(self.build, "tests", "simcuda", "libcuda.so.1")
        self.yaml = self.file("nvidia.yaml", YAML.replace("DRIVER", self.driver))

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def ctl(self, *words):
        done = subprocess.run([os.path.join(self.build, "lockd", "gpusharectl"), *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def generate(self, *words):
        code, out, err = self.ctl("cdi", "generate", "--nvidia", self.yaml, "--door", self.door, *words)
        self.assertEqual((code, err), (0, ""), out)
        spec = json.loads(out) if out else None
        if spec is not None:
            self.assertEqual(wrong_in(spec), [])
        return spec

    def test_the_checker_finds_what_is_wrong(self):
        spec = self.generate()
        for change in ({"kind": "gpu"}, {"extra": 1}, {"devices": spec["devices"] * 2}, {"cdiVersion": "0.5.0", "annotations": {}},
                       {"containerEdits": {"mounts": [{"hostPath": "/a"}]}}, {"containerEdits": {"additionalGids": [1]}}):
            self.assertNotEqual(wrong_in({**spec, **change}), [], change)

    @unittest.skipUnless(jsonschema, "python3-jsonschema is not installed")
    @unittest.skipUnless(os.path.exists(os.path.join(SCHEMA, "schema.json")), "tests/lockd/ctl/cdi/fetch_schema.sh build/cdi-schema was not run")
    def test_the_projects_own_schema_agrees(self):
        parts = {}
        for name in ("schema.json", "defs.json"):
            with open(os.path.join(SCHEMA, name), encoding="utf-8") as file:
                parts[name] = json.load(file)
        # one document: the definitions at their place, for those of all devices as well (the schema has no rule for them)
        whole = json.loads(json.dumps(parts["schema.json"]).replace("defs.json#/", "#/"))
        whole["definitions"] = parts["defs.json"]["definitions"]
        whole["properties"]["containerEdits"] = {"$ref": "#/definitions/containerEdits"}
        validator = jsonschema.Draft7Validator(whole)
        for words in ((), ("--cdi-version", "0.5.0"), ("--cdi-version", "0.7.0")):
            self.assertEqual([error.message for error in validator.iter_errors(self.generate(*words))], [], words)
        for change in ({"kind": 1}, {"devices": [{"name": "0"}]}, {"containerEdits": {"mounts": [{"hostPath": "/x"}]}},
                       {"containerEdits": {"deviceNodes": [{"path": "/dev/null", "major": "1"}]}}):
            self.assertTrue(list(validator.iter_errors({**self.generate(), **change})), change)

    def test_door_stands_in_the_drivers_place(self):
        spec = self.generate()
        door = os.path.realpath(self.door)
        mounts = {mount["containerPath"]: mount["hostPath"] for mount in spec["containerEdits"]["mounts"]}
        self.assertEqual(mounts, {
            "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04": door + "/libcuda.so.1",
            door + "/libcuda-real.so.1": os.path.realpath(self.driver),
            "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04": "/etc/hostname",
            "/run/gpushare": "/run/gpushare"})
        for mount in spec["containerEdits"]["mounts"]:
            if "nvidia" not in mount["containerPath"]:
                self.assertIn("ro", mount["options"])

    def test_devices_nodes_and_hooks_are_the_drivers(self):
        spec = self.generate()
        self.assertEqual(spec["kind"], "gpushare.dev/gpu")
        self.assertEqual([device["name"] for device in spec["devices"]][:2], ["0", "all"])
        self.assertEqual(spec["devices"][0]["containerEdits"]["deviceNodes"], [{"path": "/dev/zero", "major": 1, "permissions": "rw"}])
        self.assertEqual(spec["containerEdits"]["env"], ["NVIDIA_VISIBLE_DEVICES=void"])
        words = [hook["args"][2] for hook in spec["containerEdits"]["hooks"]]
        self.assertEqual(words, ["create-symlinks"])  # an image's compat package would lead past the door

    def test_json_gives_the_same(self):
        spec = self.generate()
        source = {**spec, "kind": "nvidia.com/gpu"}
        source["containerEdits"]["mounts"] = [
            {"containerPath": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", "hostPath": self.driver,
             "options": ["ro", "nosuid", "nodev", "bind"]},
            {"containerPath": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04", "hostPath": "/etc/hostname", "options": []}]
        self.yaml = self.file("nvidia.json", json.dumps(source))
        again, first = self.generate(), None
        self.yaml = os.path.join(self.folder, "nvidia.yaml")
        first = self.generate()
        first["containerEdits"]["mounts"][1]["options"] = []
        self.assertEqual(again, first)

    def test_group_of_the_socket_goes_with_later_versions(self):
        sockets = os.path.join(self.folder, "sockets")
        os.mkdir(sockets)
        if os.geteuid() == 0:
            os.chown(sockets, 0, 4711)
        gid = os.stat(sockets).st_gid
        if gid == 0:
            self.skipTest("the group of new folders here is root's")
        code, out, _ = self.ctl("--socket", sockets + "/lockd.sock", "cdi", "generate", "--nvidia", self.yaml, "--cdi-version", "0.7.0",
                                "--door", self.door)
        spec = json.loads(out)
        self.assertEqual((code, wrong_in(spec), spec["containerEdits"]["additionalGids"]), (0, [], [gid]))
        self.assertEqual(spec["containerEdits"]["mounts"][-1], {"hostPath": sockets, "containerPath": "/run/gpushare",
                                                                "options": ["ro", "nosuid", "nodev", "bind"]})
        self.assertNotIn("additionalGids", self.generate()["containerEdits"])

    def test_library_of_32_bits_stays(self):
        small = os.path.join(self.folder, "libcuda.so.1")
        with open(small, "wb") as file:
            file.write(b"\x7fELF\x01\x01\x01" + bytes(57))
        text = YAML.replace("DRIVER", self.driver).replace("  - containerPath: '/usr", "  - containerPath: /usr/lib/i386-linux-gnu/"
                                                           f"libcuda.so.580.159.04\n    hostPath: {small}\n  - containerPath: '/usr")
        self.yaml = self.file("both.yaml", text)
        mounts = {mount["containerPath"]: mount["hostPath"] for mount in self.generate()["containerEdits"]["mounts"]}
        self.assertEqual(mounts["/usr/lib/i386-linux-gnu/libcuda.so.580.159.04"], small)

    def test_host_at_another_root(self):
        """A container that makes the specification sees the host's files below a folder; links stay inside of it."""
        root = os.path.join(self.folder, "host")
        folder = f"/usr/lib/{os.uname().machine}-linux-gnu"
        for name in (folder, "/usr/bin", "/usr/lib/nvidia", "/dev"):
            os.makedirs(root + name)
        shutil.copy(self.driver, root + "/usr/lib/nvidia/libcuda.so.580.1")
        os.symlink("/usr/lib/nvidia/libcuda.so.580.1", root + folder + "/libcuda.so.1")  # absolute: in the host's tree
        for name in ("/dev/nvidia0", "/dev/nvidia11", "/dev/nvidiactl", "/usr/bin/nvidia-smi"):
            with open(root + name, "w", encoding="ascii"):
                pass
        os.chmod(root + "/usr/bin/nvidia-smi", 0o755)
        code, out, err = self.ctl("cdi", "generate", "--nvidia", "none", "--root", root, "--door", self.door)
        self.assertEqual((code, err), (0, ""), out)
        spec = json.loads(out)
        self.assertEqual(wrong_in(spec), [])
        self.assertEqual([device["name"] for device in spec["devices"]], ["0", "11", "all"])
        self.assertEqual(spec["containerEdits"]["deviceNodes"], [{"path": "/dev/nvidiactl"}])
        door = os.path.realpath(self.door)
        mounts = {mount["containerPath"]: mount["hostPath"] for mount in spec["containerEdits"]["mounts"]}
        self.assertEqual(mounts, {folder + "/libcuda.so.1": door + "/libcuda.so.1", door + "/libcuda-real.so.1":
                                  "/usr/lib/nvidia/libcuda.so.580.1", "/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi",
                                  "/run/gpushare": "/run/gpushare"})

    def test_output_file_appears_whole(self):
        path = os.path.join(self.folder, "gpushare.json")
        self.assertIsNone(self.generate("--output", path))
        with open(path, encoding="utf-8") as file:
            self.assertEqual(wrong_in(json.load(file)), [])
        self.assertEqual(sorted(os.listdir(self.folder)), ["gpushare.json", "nvidia.yaml"])
        # whatever the umask: runtimes of ordinary users read it
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o644)
        before = os.umask(0o077)
        try:
            self.assertIsNone(self.generate("--output", path))
        finally:
            os.umask(before)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o644)

    def test_output_that_is_no_regular_file_stays_what_it_is(self):
        link, pipe = os.path.join(self.folder, "link"), os.path.join(self.folder, "pipe")
        os.symlink("/dev/full", link)
        code, _, err = self.ctl("cdi", "generate", "--nvidia", self.yaml, "--door", self.door, "--output", link)
        self.assertEqual((code, os.path.islink(link)), (1, True))
        self.assertIn("No space left on device", err)
        os.mkfifo(pipe)
        reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
        self.generate("--output", pipe)
        self.assertEqual(wrong_in(json.loads(reader.communicate(timeout=60)[0])), [])
        code, out, _ = self.ctl("cdi", "generate", "--nvidia", self.yaml, "--door", self.door, "--output", "/dev/stdout")
        self.assertEqual((code, wrong_in(json.loads(out))), (0, []))
        self.assertEqual(sorted(os.listdir(self.folder)), ["link", "nvidia.yaml", "pipe"])

    def test_output_that_cannot_be_written_leaves_the_old_one(self):
        path = self.file("gpushare.json", "old")
        done = subprocess.run(["bash", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "bash", os.path.join(self.build, "lockd", "gpusharectl"),
                               "cdi", "generate", "--nvidia", self.yaml, "--door", self.door, "--output", path],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("File too large", done.stderr)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")
        self.assertEqual(sorted(os.listdir(self.folder)), ["gpushare.json", "nvidia.yaml"])

    def test_what_is_wrong_is_said(self):
        for text, words in (("a: [1", "line 2: did not find"), ("kind: x\n", "not a specification of kind nvidia.com/gpu"),
                            ("{", "line 1"), ("kind: nvidia.com/gpu\ndevices: []\n", "no devices or mounts"),
                            ("a: 'b\n", "line 2"), ("a:\n    b: 1\n  c: 2\n", "line 3"), ("- " * 40, "too deep"),
                            ("a: &b [1, 2]\nc: *b\nd: 1\ne: 2\n", "line 2: this form of YAML"), ("? [1]\n: 2\n", "line 1: a key is no word"),
                            ("a: !!str 5\n", "line 1: this form of YAML"), ('a: "b\\0c"\n', "line 1: this form of YAML"),
                            ('"k\\0l": 1\n', "line 1: a key is no word"), ("[1] x\n", "line 2: did not find"),
                            ("kind: nvidia.com/gpu\ndevices: []\ncontainerEdits:\n  mounts: []\n", "mounts no libcuda.so")):
            with self.subTest(text):
                code, out, err = self.ctl("cdi", "generate", "--nvidia", self.file("bad", text), "--door", self.door)
                self.assertEqual((code, out), (1, ""))
                self.assertIn(words, err)
        code, _, err = self.ctl("cdi", "generate", "--nvidia", self.yaml, "--door", self.folder)
        self.assertEqual(code, 1)
        self.assertIn("no door in", err)
        for version in ("", "abc", "99", "0.4.0", "0.5", "0.5.0x", "2.0.0"):
            code, out, err = self.ctl("cdi", "generate", "--nvidia", self.yaml, "--door", self.door, "--cdi-version", version)
            self.assertEqual((code, out), (2, ""), version)
            self.assertIn("--cdi-version", err)
        for binary in (b"\0", b"\x7fELF\2\1\1\0\0", b"\xff\xfe{\0"):
            path = self.file("binary", "")
            with open(path, "wb") as file:
                file.write(binary)
            code, _, err = self.ctl("cdi", "generate", "--nvidia", path, "--door", self.door)
            self.assertEqual(code, 1)
            self.assertRegex(err, r"binary(, line 1: | is not a specification)")
        code, _, err = self.ctl("cdi", "generate", "--nvidia", self.yaml, "--door", self.door, "--output", "")
        self.assertEqual(code, 2)
        self.assertIn("--output", err)
        self.assertEqual(self.ctl("cdi")[0], 2)
        self.assertEqual(self.ctl("cdi", "generate", "more")[0], 2)
        self.assertEqual(self.ctl("cdi", "generate", "--nvidia", "/nonexistent")[0], 1)

    def test_container_by_podman(self):
        """A program in a container finds the door where the driver is, and the daemon at its socket."""
        podman = shutil.which("podman")
        if podman is None or os.geteuid() != 0:
            self.skipTest("podman is not installed" if podman is None else "only root can run it here")
        done = subprocess.run([os.path.join(HERE, "podman.sh"), self.build], capture_output=True, text=True, check=False)
        if done.returncode == 77:
            self.skipTest(done.stdout.strip().splitlines()[-1])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


main()
