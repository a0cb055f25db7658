#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel gpushare-patch of one machine's portable binaries (packaging/portable.sh).

packaging/wheel.py MACHINE STAGE FOLDER     MACHINE: x86_64, aarch64; the wheel goes to FOLDER, its path to stdout

The same input gives the same bytes: SOURCE_DATE_EPOCH, or the year 2026, is the time of every file.
"""
import base64
import hashlib
import os
import re
import sys
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PREFIX = "gpushare_patch/prefix"
STAGED = ["bin/gpushare-lockd", "bin/gpushare-patch", "bin/gpusharectl", "bin/gpushare-cc", "bin/gpushare-door",
          "lib/gpushare/wrap.rsp", "lib/gpushare/libgpushare-stub.so.1", "lib/gpushare/door/libcuda.so.1", "lib/libgpushare.so.1", "share/gpushare/gpushare-patch.schema.json",
          "share/gpushare/grafana/gpushare.json", "share/gpushare/lockd.conf"]
SCRIPTS = {"gpushare-patch": "gpushare_patch", "gpusharectl": "gpusharectl", "gpushare-lockd": "gpushare_lockd",
           "gpushare-door": "gpushare_door",
           "gpushare-cc": "gpushare_cc", "gpushare-c++": "gpushare_cxx", "gpushare-nvcc": "gpushare_nvcc"}


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def find_version():
    return re.search(r"^project\(gpushare VERSION ([0-9.]+)", read(ROOT, "CMakeLists.txt").decode(), re.M).group(1)


def list_files(stage, version, tag):
    """[(name in the wheel, content, executable)] but for RECORD."""
    info = f"gpushare_patch-{version}.dist-info"
    files = []
    package = os.path.join(ROOT, "python", "gpushare_patch")
    for name in sorted(os.listdir(package)):
        if name.endswith(".py"):
            files.append((f"gpushare_patch/{name}", read(package, name), False))
    for name in STAGED:
        files.append((f"{PREFIX}/{name}", read(stage, name), name.startswith("bin/") or ".so" in name))
    files.append((f"{PREFIX}/version", version.encode() + b"\n", False))
    metadata = (f"Metadata-Version: 2.1\nName: gpushare-patch\nVersion: {version}\n"
                "Summary: Several CUDA programs share one GPU, each with the whole GPU memory\n"
                "License: Apache-2.0\nClassifier: License :: OSI Approved :: Apache Software License\n"
                "Classifier: Operating System :: POSIX :: Linux\n"
                "Classifier: Environment :: GPU :: NVIDIA CUDA\nRequires-Python: >=3.7\n"
                "Description-Content-Type: text/markdown\n\n").encode() + read(ROOT, "packaging", "wheel.md")
    files.append((f"{info}/METADATA", metadata, False))
    files.append((f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: packaging/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
                  False))
    files.append((f"{info}/entry_points.txt", ("[console_scripts]\n" + "".join(
        f"{name} = gpushare_patch.tools:{function}\n" for name, function in SCRIPTS.items())).encode(), False))
    files.append((f"{info}/LICENSE", read(ROOT, "LICENSE"), False))
    files.append((f"{info}/third-party.txt", read(stage, "share/doc/gpushare/third-party.txt"), False))
    return info, files


def write_wheel(path, info, files):
    moment = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", 1767225600)))[:6]
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content, executable in files + [(f"{info}/RECORD", None, False)]:
            if content is None:
                content = (record + f"{name},,\n").encode()
            else:
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record += f"{name},sha256={digest},{len(content)}\n"
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, content)


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("x86_64", "aarch64"):
        sys.exit(__doc__)
    machine, stage, folder = sys.argv[1:]
    version, tag = find_version(), f"py3-none-manylinux_2_28_{machine}"
    info, files = list_files(stage, version, tag)
    path = os.path.join(folder, f"gpushare_patch-{version}-{tag}.whl")
    os.makedirs(folder, exist_ok=True)
    write_wheel(path, info, files)
    print(path)


if __name__ == "__main__":
    main()
