#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a folder with the headers and static libraries of an old Debian, against which the portable binaries are linked.

packaging/sysroot.py ARCHITECTURE FOLDER     ARCHITECTURE: amd64, arm64

Debian 11 has glibc 2.31; nothing that gpushare calls came after 2.28, which scripts/check_portable.sh proves of each binary.
Packages are compared with the checksums of Debian's index. A folder that is complete is left as it is.

  GS_DEBIAN_MIRROR=URL    default http://deb.debian.org/debian
"""
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import urllib.request

RELEASE = "bullseye"
LINKED = ["libelf-dev", "zlib1g-dev", "libjansson-dev", "libyaml-dev", "libinih-dev", "libncurses-dev", "libxxhash-dev"]
PACKAGES = ["libc6", "libc6-dev", "linux-libc-dev", "libcrypt-dev", *LINKED]
MIRROR = os.environ.get("GS_DEBIAN_MIRROR", "http://deb.debian.org/debian")


def fetch(path):
    with urllib.request.urlopen(f"{MIRROR}/{path}", timeout=120) as answer:
        return answer.read()


def find_packages(architecture):
    """{name: fields} of the packages that are wanted."""
    text = lzma.decompress(fetch(f"dists/{RELEASE}/main/binary-{architecture}/Packages.xz")).decode()
    found = {}
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Package") in PACKAGES:
            found[fields["Package"]] = fields
    missing = [name for name in PACKAGES if name not in found]
    if missing:
        sys.exit(f"sysroot.py: {MIRROR} has no {', '.join(missing)} of {RELEASE} for {architecture}")
    return [found[name] for name in PACKAGES]


def make_links_relative(folder):
    """A link to /lib/... would lead to this machine's library."""
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(place, name)
            target = os.readlink(path) if os.path.islink(path) else ""
            if target.startswith("/"):
                os.unlink(path)
                os.symlink(os.path.relpath(folder + target, place), path)


def leave_static_libraries(folder):
    """Of everything but glibc itself."""
    for place, _, files in os.walk(folder):
        for name in files:
            base = name.split(".so")[0]
            if ".so" in name and os.path.exists(os.path.join(place, base + ".a")) and base.split("lib")[-1] in (
                    "elf", "z", "jansson", "yaml", "inih", "INIReader", "ncurses", "ncursesw", "tinfo", "form", "formw", "menu", "menuw",
                    "panel", "panelw", "curses", "termcap", "tic", "xxhash"):
                os.unlink(os.path.join(place, name))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    architecture, folder = sys.argv[1], os.path.abspath(sys.argv[2])
    done = os.path.join(folder, ".complete")
    if os.path.exists(done):
        return
    os.makedirs(folder, exist_ok=True)
    for fields in find_packages(architecture):
        content = fetch(fields["Filename"])
        if hashlib.sha256(content).hexdigest() != fields["SHA256"]:
            sys.exit(f"sysroot.py: {fields['Filename']} is damaged; try again")
        file = os.path.join(folder, ".package.deb")
        with open(file, "wb") as out:
            out.write(content)
        subprocess.run(["dpkg-deb", "-x", file, folder], check=True)
        os.unlink(file)
    make_links_relative(folder)
    leave_static_libraries(folder)
    shutil.copy("/usr/include/elf.h", folder + "/usr/include/elf.h")  # the newer one: nothing but constants of file formats
    with open(done, "w", encoding="ascii") as out:
        out.write(f"{RELEASE} {architecture}\n")


if __name__ == "__main__":
    main()
