#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the licences of the packages whose libraries are in the portable binaries: those of sysroot.py's LINKED.

packaging/licenses.py [SYSROOT]     or --list: only the names of the packages

Their texts are Debian's /usr/share/doc/PACKAGE/copyright, of the sysroot or, where it has none, of this machine; behind them stand
the common licences that they name. Also for other programs that put files of packages into what they make (image.py)."""
import os
import re
import sys

from sysroot import LINKED

COMMON = "/usr/share/common-licenses"


def read(roots, path):
    for root in roots:
        if os.path.exists(root + path):
            with open(root + path, encoding="utf-8", errors="replace") as file:
                return file.read().strip()
    raise SystemExit(f"licenses.py: no {path} here: install that package")


def texts(packages, roots=("",)):
    """One text with the licences of all of them, each below a line `== PACKAGE`."""
    parts = {package: read(roots, f"/usr/share/doc/{package}/copyright") for package in sorted(packages)}
    named = set(re.findall(COMMON + r"/([A-Za-z]+-[0-9.]*[0-9])", " ".join(parts.values())))
    parts.update({f"{COMMON}/{name}": read(("",), f"{COMMON}/{name}") for name in sorted(named)})
    return "".join(f"== {name}\n\n{text}\n\n" for name, text in parts.items())


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(LINKED))
        return
    if len(sys.argv) > 2 or sys.argv[1:2] == ["--help"]:
        raise SystemExit(__doc__)
    print("gpushare is under the Apache License, version 2.0. Its programs have parts of these packages in them.\n")
    print(texts(LINKED, (*sys.argv[1:], "")), end="")


if __name__ == "__main__":
    main()
