#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes copies of the running interpreter, each as a virtual environment with the same packages:
copy_python.py FOLDER... The interpreter's own ELF file is copied, everything else is linked. Prints the folder of
libpython if the copy would not find it (one line, maybe empty)."""
import os, shutil, subprocess, sys
from pathlib import Path

real = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
in_venv = sys.prefix != sys.base_prefix
for name in sys.argv[1:]:
    folder = Path(name)
    (folder / "bin").mkdir(parents=True)
    shutil.copy2(real, folder / "bin/python3")
    lines = [f"home = {real.parent}", f"include-system-site-packages = {'false' if in_venv else 'true'}",
             f"version = {sys.version.split()[0]}"]
    if in_venv:
        old = (Path(sys.prefix) / "pyvenv.cfg").read_text()
        if "include-system-site-packages = true" in old.lower():
            lines[1] = "include-system-site-packages = true"
        for part in ("lib", "lib64", "share", "include"):
            if (Path(sys.prefix) / part).exists():
                (folder / part).symlink_to(Path(sys.prefix).resolve() / part)
    (folder / "pyvenv.cfg").write_text("\n".join(lines) + "\n")
copy = Path(sys.argv[1]) / "bin/python3"
missing = "not found" in subprocess.run(["ldd", copy], capture_output=True, text=True).stdout
beside = str(Path(sys.base_prefix) / "lib") if missing else ""
environment = dict(os.environ)
if beside:
    environment["LD_LIBRARY_PATH"] = beside + ":" + environment.get("LD_LIBRARY_PATH", "")
subprocess.run([copy, "-c", "import sys, json, ctypes"], check=True, env=environment)
print(beside)
