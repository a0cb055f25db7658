#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The image and the manifests of cluster/deploy: what is in them, what the containers run, and with kubectl and
kubernetes-validate, where they are, that Kubernetes would take them. test_deploy.py --build DIR [--schemas VERSION,...]"""
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DEPLOY = os.path.join(ROOT, "cluster", "deploy")
sys.path[:0] = [os.path.dirname(HERE), HERE]
import kit  # noqa: E402
from kubelet import PATIENCE, wait_for  # noqa: E402


class Deploy(kit.BuildTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gs-deploy-")
        self.addCleanup(shutil.rmtree, self.folder)

    def stage(self):
        stage = os.path.join(self.folder, "stage")
        subprocess.run(["cmake", "--install", self.build], env={**os.environ, "DESTDIR": stage}, check=True, stdout=subprocess.DEVNULL)
        return stage

    def image(self, stage, name, *words):
        path = os.path.join(self.folder, name)
        done = subprocess.run([sys.executable, os.path.join(ROOT, "packaging", "image.py"), "--stage", stage, "--output", path, *words],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def test_image_is_whole_small_and_the_same_twice(self):
        stage = self.stage()
        root = os.path.join(self.folder, "root")
        first, second = self.image(stage, "one.tar", "--root", root), self.image(stage, "two.tar")
        with open(first, "rb") as one, open(second, "rb") as two:
            self.assertEqual(hashlib.sha256(one.read()).digest(), hashlib.sha256(two.read()).digest())
        self.assertLess(os.path.getsize(first), 40 << 20)
        with tarfile.open(first) as tar:
            files = {name: tar.extractfile(name).read() for name in tar.getnames()}

        def blob(entry):
            data = files["blobs/sha256/" + entry["digest"].split(":")[1]]
            self.assertEqual((len(data), "sha256:" + hashlib.sha256(data).hexdigest()), (entry["size"], entry["digest"]))
            return data

        manifest = json.loads(blob(json.loads(files["index.json"])["manifests"][0]))
        self.assertEqual(json.loads(blob(manifest["config"]))["os"], "linux")
        blob(manifest["layers"][0])
        self.check_licences(root)
        self.check_commands(root)

    def test_podman_loads_and_runs_it(self):
        if shutil.which("podman") is None or os.geteuid() != 0:
            self.skipTest("needs podman, and root")
        podman = ["podman", "--root", self.folder + "/storage", "--runroot", self.folder + "/run", "--storage-driver", "vfs", "--runtime",
                  "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        self.addCleanup(subprocess.run, ["umount", self.folder + "/storage/vfs"], stderr=subprocess.DEVNULL, check=False)
        done = subprocess.run([*podman, "load", "-q", "-i", self.image(self.stage(), "image.tar")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        name = done.stdout.split()[-1]
        for program in ("gpushare-lockd", "gpusharectl", "gpushare-device-plugin"):
            done = subprocess.run([*podman, "run", "--rm", "--read-only", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit",
                                   "nproc=1000:1000", "--pids-limit", "-1", name, program, "--version"], capture_output=True, text=True, check=False)
            if done.returncode in (125, 126):
                self.skipTest("podman runs no container here: " + done.stderr.strip())
            self.assertEqual((done.returncode, done.stdout.split()[0]), (0, program), done.stderr)

    def check_licences(self, root):
        with open(root + "/usr/share/doc/gpushare/third-party.txt", encoding="utf-8") as file:
            named = re.findall(r"^== (\S+)$", file.read(), re.M)
        for name in ("libc6", "libjansson4", "libelf-dev", "coreutils", "/usr/share/common-licenses/GPL-3"):
            self.assertIn(name, named)

    def check_commands(self, root):
        if os.geteuid() != 0:
            return  # only root may chroot
        try:
            os.mknod(root + "/dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except OSError:
            return
        for name in ("gpushare-lockd", "gpusharectl", "gpushare-device-plugin"):
            done = subprocess.run(["chroot", root, name, "--version"], capture_output=True, text=True, check=False)
            if done.returncode == 125:
                return
            self.assertIn(name, done.stdout, done.stderr)
        node = ["unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" /usr/libexec/gpushare/node.sh "$@"', root]
        done = subprocess.run([*node, "install"], capture_output=True, text=True, check=False)
        if "unshare:" in done.stderr or "mount:" in done.stderr:
            return  # no namespaces here
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(os.path.exists(root + "/host/usr/local/lib/gpushare/door/libcuda.so.1"))
        status = os.stat(root + "/run/gpushare")
        self.assertEqual((oct(status.st_mode & 0o777), status.st_gid), ("0o750", 64573))
        # a node with one GPU, and kubelet's folder
        libraries = root + "/host/usr/lib64"
        for folder in (libraries, root + "/host/dev", root + "/var/lib/kubelet/device-plugins"):
            os.makedirs(folder)
        shutil.copy(os.path.join(self.build, "tests", "simcuda", "libcuda.so.1"), libraries + "/libcuda.so.580.1")
        os.symlink("libcuda.so.580.1", libraries + "/libcuda.so.1")
        with open(root + "/host/dev/nvidia0", "w", encoding="ascii"):
            pass
        with open(os.path.join(self.folder, "log"), "wb") as log:
            plugin = subprocess.Popen([*node, "plugin"], stderr=log, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "GPUSHARE_PER_GPU": "2"})
        try:
            wait_for(lambda: os.path.exists(root + "/var/lib/kubelet/device-plugins/gpushare.sock"),
                     lambda: open(log.name, encoding="utf-8").read())
        finally:
            plugin.send_signal(signal.SIGTERM)
            code = plugin.wait(PATIENCE)
        self.assertEqual(code, 0)
        with open(root + "/var/run/cdi/gpushare.json", encoding="utf-8") as file:
            spec = json.load(file)
        self.assertEqual(spec["containerEdits"]["additionalGids"], [64573])  # what a pod gets: the programs' socket, by this group
        self.assertIn({"hostPath": "/run/gpushare", "containerPath": "/run/gpushare", "options": ["ro", "nosuid", "nodev", "bind"]},
                      spec["containerEdits"]["mounts"])
        with open(log.name, encoding="utf-8") as file:
            self.assertIn("GPU 0: 2 devices", file.read())

    def manifests(self):
        """Name and text of each set of manifests as they would be applied."""
        kubectl = shutil.which("kubectl")
        if kubectl is not None:
            for name in ("cdi", "mounts"):
                done = subprocess.run([kubectl, "kustomize", os.path.join(DEPLOY, "overlays", name)], capture_output=True, text=True,
                                      check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                yield name, done.stdout
        for name in ("base/namespace.yaml", "base/daemonset.yaml", *("examples/" + each for each in sorted(os.listdir(DEPLOY + "/examples")))):
            with open(os.path.join(DEPLOY, name), encoding="utf-8") as file:
                yield name, file.read()

    def test_containers_have_what_they_need_and_no_more(self):
        with open(os.path.join(DEPLOY, "base", "daemonset.yaml"), encoding="utf-8") as file:
            text = file.read()
        containers = re.split(r"\n +- name: (?=(?:install|lockd|plugin|exporter)\n)", text.split("\n      volumes:")[0])[1:]
        self.assertEqual(len(containers), 4)
        for each in containers:
            self.assertIn("readOnlyRootFilesystem: true", each)
            self.assertTrue(re.search(r'drop: \["ALL"\]', each) or each.startswith("plugin"), each)
        self.assertEqual(text.count("privileged: true"), 1)
        volumes = dict(re.findall(r"- name: (\S+)(?: #.*)?\n +hostPath:\n +path: (\S+)", text))
        self.assertEqual(volumes, {
            "sockets": "/run/gpushare", "door": "/usr/local/lib/gpushare", "cdi": "/var/run/cdi", "plugins": "/var/lib/kubelet/device-plugins",
            "pod-resources": "/var/lib/kubelet/pod-resources", "programs": "/usr", "dev": "/dev", "pods": "/var/log/pods",
            "containers": "/var/log/containers"})
        mounts = re.findall(r"- name: (\S+)\n +mountPath: (\S+)(?:\n +(readOnly: true))?", text)
        self.assertEqual({name for name, _, _ in mounts}, {*volumes, "token"})
        self.assertEqual({name for name, _, only in mounts if not only}, {"door", "sockets", "plugins", "cdi"})
        with open(os.path.join(ROOT, "docs", "kubernetes.md"), encoding="utf-8") as file:
            page = file.read()
        for path in volumes.values():
            self.assertIn(f"`{path}`", page, "the page names each folder of the node")

    def test_kubernetes_takes_them(self):
        try:
            import kubernetes_validate
            import yaml
        except ImportError:
            self.skipTest("kubernetes-validate is not installed (PyPI; .ci/release installs it)")
        versions = kit.OPTIONS.schemas.split(",") if kit.OPTIONS.schemas else [kubernetes_validate.latest_version()]
        count = 0
        for name, text in self.manifests():
            for document in yaml.safe_load_all(text):
                for version in versions:
                    with self.subTest(name=name, kind=document["kind"], version=version):
                        kubernetes_validate.validate(document, version, strict=True)
                        count += 1
        print(f"{count} documents are as the schemas of Kubernetes {', '.join(versions)} say")
        with self.assertRaises(kubernetes_validate.ValidationError):  # it can fail
            kubernetes_validate.validate({**document, "spec": {"template": 1}}, versions[0], strict=True)

    def test_kustomize_makes_both(self):
        made = dict(each for each in self.manifests() if "/" not in each[0])
        if not made:
            self.skipTest("kubectl is not installed")
        for name, text in made.items():
            self.assertIn("- name: GPUSHARE_ANSWER\n          value: " + name, text)
            self.assertEqual(re.findall(r"image: (\S+)", text), ["gpushare:0.1.0"] * 4)


if __name__ == "__main__":
    kit.main(schemas="")
