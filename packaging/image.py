#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the container image of the DaemonSet (cluster/deploy) without a builder: an OCI layout in a tar file, which podman, docker,
skopeo and ctr load.

    packaging/image.py --stage FOLDER... --output FILE [--root FOLDER]

FOLDER is what `DESTDIR=FOLDER cmake --install BUILD` wrote, or a stage of packaging/portable.sh; with several, the first that has a
file counts (the door runs in the images of pods, so take it from the portable stage, which asks for an old C library only). The image has the programs, the door, a shell with five commands for
cluster/deploy/node.sh, and the libraries of this machine that they need: nothing else. --root: leave its files there as well
(Containerfile). The same files give the same image, byte for byte."""
import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile

import licenses

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = ["gpushare-lockd", "gpusharectl", "gpushare-device-plugin"]
COMMANDS = ["sh", "cp", "mv", "mkdir", "chgrp", "chmod"]
DOOR = "/usr/local/lib/gpushare/door"  # here, on the node and in pods
GROUP = 64573  # of the programs' socket: a number that no distribution gives out; pods get it by the specification
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
MOST = 40 << 20


def version():
    with open(os.path.join(HERE, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(gpushare VERSION ([0-9.]+)", file.read()).group(1)


def libraries(program):
    """The files that the loader would map, with the loader itself."""
    out = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", out)


def package_of(path):
    """The Debian package with that file, which may know it by another name where /lib is /usr/lib."""
    path = os.path.realpath(path)
    out = subprocess.run(["dpkg-query", "-S", path, path.removeprefix("/usr"), "/usr" + path], capture_output=True, text=True,
                         env={**os.environ, "LC_ALL": "C"}, check=False).stdout
    found = re.findall(r"^(?!diversion by)([a-z0-9.+-]+)", out, re.M)
    if not found:
        raise SystemExit(f"image.py: {path} is of no package, so its licence is not known")
    return found[0]


class Root:
    def __init__(self, folder):
        self.folder = folder
        self.packages = set()  # whose files are in it

    def put(self, source, path, mode):
        target = self.folder + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.realpath(source), target)
        os.chmod(target, mode)

    def put_program(self, source, path):
        """With its libraries, at the places where the loader looks first."""
        self.put(source, path, 0o755)
        for library in libraries(source):
            name = library if "ld-linux" in library else f"/usr/lib/{os.path.basename(library)}"
            if not os.path.exists(self.folder + name):
                self.put(library, name, 0o755)
                self.packages.add(package_of(library))

    def text(self, path, text):
        os.makedirs(os.path.dirname(self.folder + path), exist_ok=True)
        with open(self.folder + path, "w", encoding="utf-8") as file:
            file.write(text)


def find(stages, folder, name):
    for stage in stages:
        for here, _, files in os.walk(stage):
            if name in files and here.endswith(folder):
                return os.path.join(here, name)
    raise SystemExit(f"image.py: no {folder}/{name} in {' or '.join(stages)}: install a build there (DESTDIR=... cmake --install)")


def fill(root, stages):
    for name in PROGRAMS:
        root.put_program(find(stages, "/bin", name), "/usr/bin/" + name)
    door = find(stages, "/gpushare/door", "libcuda.so.1")
    with open(door, "rb") as file:
        if DOOR.encode() not in file.read():
            raise SystemExit(f"image.py: {door} was built for another prefix than /usr/local")
    root.put(door, DOOR + "/libcuda.so.1", 0o755)
    for name in COMMANDS:
        path = shutil.which(name)
        root.put_program(path, "/usr/bin/" + name)
        root.packages.add(package_of(path))
    os.makedirs(root.folder + "/bin", exist_ok=True)
    os.symlink("../usr/bin/sh", root.folder + "/bin/sh")
    root.put(os.path.join(HERE, "cluster/deploy/node.sh"), "/usr/libexec/gpushare/node.sh", 0o755)
    root.put(os.path.join(HERE, "LICENSE"), "/usr/share/doc/gpushare/LICENSE", 0o644)
    root.text("/usr/share/doc/gpushare/third-party.txt", licenses.texts({*root.packages, *licenses.LINKED}))
    root.text("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
    root.text("/etc/group", f"root:x:0:\ngpushare:x:{GROUP}:\n")
    for name in ("dev", "etc/cdi", "host", "proc", "run/gpushare", "sys", "tmp", "var/lib/kubelet", "var/log/containers", "var/log/pods",
                 "var/run/cdi"):
        os.makedirs(os.path.join(root.folder, name), exist_ok=True)
    strip = shutil.which("strip")
    for folder, _, files in os.walk(root.folder):
        for name in files if strip else ():
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                elf = file.read(4) == b"\x7fELF"
            if elf and not os.path.islink(path):
                subprocess.run([strip, "--strip-unneeded", path], check=True, stderr=subprocess.DEVNULL)


def pack(folder):
    """The bytes of a tar file with all of it: names in order, no times, root's."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for here, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(folders + files):
                path = os.path.join(here, name)
                if name in folders and os.path.islink(path):
                    folders.remove(name)
                info = tar.gettarinfo(path, os.path.relpath(path, folder))
                info.uid = info.gid = info.mtime = 0
                info.uname = info.gname = ""
                if info.isreg():
                    with open(path, "rb") as file:
                        tar.addfile(info, file)
                else:
                    tar.addfile(info)
    return out.getvalue()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def write_image(layer, output):
    name = f"gpushare:{version()}"
    packed = gzip.compress(layer, 9, mtime=0)
    config = json.dumps({
        "architecture": ARCHITECTURE, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "config": {"Env": ["PATH=/usr/bin"], "Labels": {"org.opencontainers.image.title": "gpushare",
                                                        "org.opencontainers.image.version": version(),
                                                        "org.opencontainers.image.licenses": "Apache-2.0"}}}, sort_keys=True).encode()

    def entry(data, kind):
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(data), "size": len(data)}

    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                           "config": entry(config, "config.v1+json"), "layers": [entry(packed, "layer.v1.tar+gzip")]}, sort_keys=True).encode()
    index = json.dumps({"schemaVersion": 2, "manifests": [dict(
        entry(manifest, "manifest.v1+json"), annotations={"org.opencontainers.image.ref.name": name, "io.containerd.image.name":
                                                          "docker.io/library/" + name})]}, sort_keys=True).encode()
    blobs = {f"blobs/sha256/{digest(data)[7:]}": data for data in (config, packed, manifest)}
    old = [{"Config": f"blobs/sha256/{digest(config)[7:]}", "RepoTags": [name], "Layers": [f"blobs/sha256/{digest(packed)[7:]}"]}]
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": index, "manifest.json": json.dumps(old).encode(), **blobs}
    with tarfile.open(output, "w", format=tarfile.GNU_FORMAT) as tar:
        for path, data in sorted(files.items()):
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return len(layer), len(packed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", required=True, action="append")
    parser.add_argument("--output", required=True)
    parser.add_argument("--root")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        root = Root(os.path.join(work, "root"))
        fill(root, [os.path.abspath(stage) for stage in args.stage])
        whole, packed = write_image(pack(root.folder), args.output)
        if args.root:
            shutil.copytree(root.folder, args.root, symlinks=True)
    print(f"{args.output}: gpushare:{version()} for {ARCHITECTURE}, {whole / 1e6:.1f} MB, {packed / 1e6:.1f} MB compressed")
    if whole > MOST:
        raise SystemExit(f"image.py: more than {MOST >> 20} MiB")


if __name__ == "__main__":
    main()
