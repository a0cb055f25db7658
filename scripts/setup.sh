#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing to build and test gpushare, and prints the folder of the CUDA toolkit on standard output
# (everything else goes to standard error). Used by demo.sh, test.sh and .ci/run: CUDA_HOME=$(scripts/setup.sh).
#
#   scripts/setup.sh [GROUP...]    groups of scripts/packages.txt; default: build test
#   GS_FORCE_WHEELS=1              take NVIDIA's wheels even where a toolkit is installed
#   GS_NO_INSTALL=1                install and fetch nothing: say what is missing and fail
set -euo pipefail
cd "$(dirname "$0")/.."
LIST=scripts/packages.txt
WHEELS=build/cuda
# the newest of this series; the headers decide which driver functions the table must have
CUDA_SERIES=13.0
CUDA_MINIMUM=13000

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

packages_of() { # GROUP...: the packages of these groups
    local group
    for group; do
        awk -v group="$group" '$1 == group { print $2 }' $LIST
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else die "not root and no sudo; run as root: $*"
    fi
}

install_packages() { # GROUP...
    local missing=() package
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        for package in cmake ninja pkg-config cc c++; do
            command -v $package >/dev/null || missing+=("$package")
        done
        [ ${#missing[@]} = 0 ] || die "this is not Debian; install ${missing[*]} (the whole list: $LIST)"
        return 0
    fi
    for package in $(packages_of "$@"); do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing+=("$package")
    done
    [ ${#missing[@]} != 0 ] || return 0
    [ -z "${GS_NO_INSTALL:-}" ] || die "missing packages: ${missing[*]}; apt-get install them, or unset GS_NO_INSTALL"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    if ! as_root apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
        as_root apt-get update -qq >&2 # the lists may be old or not there yet
        as_root apt-get install -qq -y --no-install-recommends "${missing[@]}" >&2 ||
            die "apt-get could not install: ${missing[*]}"
    fi
}

header_version() { # FOLDER: CUDA_VERSION of its cuda.h, or nothing
    local file
    for file in "$1/include/cuda.h" "$1/targets/x86_64-linux/include/cuda.h"; do
        if [ -r "$file" ]; then
            awk '$1 == "#define" && $2 == "CUDA_VERSION" { print $3; exit }' "$file"
            return 0
        fi
    done
}

is_toolkit() { # FOLDER: nvcc runs, and cuda.h is new enough
    local version
    [ -x "$1/bin/nvcc" ] && [ -r "$1/include/cudaTypedefs.h" ] && [ -r "$1/include/cudaProfiler.h" ] || return 1
    version=$(header_version "$1")
    if [ "${version:-0}" -lt $CUDA_MINIMUM ]; then
        say "$1 is CUDA ${version:-unknown}; $CUDA_MINIMUM or newer headers are needed: passed over"
        return 1
    fi
    "$1/bin/nvcc" --version >/dev/null 2>&1
}

find_toolkit() {
    local folder nvcc
    nvcc=$(command -v nvcc || true)
    [ -z "$nvcc" ] || nvcc=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    for folder in "${CUDA_HOME:-}" /usr/local/cuda "$nvcc"; do
        if [ -n "$folder" ] && is_toolkit "$folder"; then
            echo "$folder"
            return 0
        fi
    done
    return 1
}

# A wheel is a zip archive; all of these have their files below nvidia/cu13, as a toolkit has them.
unpack_wheels() { # FROM TO
    python3 - "$1" "$2" <<'PY'
import os, pathlib, sys, zipfile
source, target = map(pathlib.Path, sys.argv[1:])
for wheel in sorted(source.glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.infolist():
            parts = pathlib.PurePosixPath(item.filename).parts
            if parts[:2] != ("nvidia", "cu13") or item.is_dir() or ".." in parts or len(parts) < 4:
                continue
            path = target.joinpath(*parts[2:])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(item))
            path.chmod(0o755 if (item.external_attr >> 16) & 0o111 or parts[2] == "bin" or "bin" in parts[:-1] else 0o644)
PY
}

fetch_toolkit() { # into $WHEELS
    local new=$WHEELS.new name
    [ -z "${GS_NO_INSTALL:-}" ] || die "no CUDA toolkit with $CUDA_MINIMUM or newer headers in CUDA_HOME," \
        "/usr/local/cuda or PATH; install one, or unset GS_NO_INSTALL to fetch NVIDIA's wheels"
    [ "$(uname -m)" = x86_64 ] || die "no CUDA toolkit found; install one ($(uname -m): nothing is fetched)"
    python3 -m pip --version >/dev/null 2>&1 || install_packages wheels
    say "no CUDA toolkit found: fetching NVIDIA's compiler, headers and runtime $CUDA_SERIES from PyPI"
    rm -rf "$new"
    mkdir -p "$new/wheels"
    python3 -m pip download -q --no-deps --only-binary=:all: -d "$new/wheels" \
        "nvidia-cuda-nvcc==$CUDA_SERIES.*" "nvidia-cuda-crt==$CUDA_SERIES.*" "nvidia-cuda-runtime==$CUDA_SERIES.*" \
        "nvidia-nvvm==$CUDA_SERIES.*" "nvidia-cuda-cccl==$CUDA_SERIES.*" \
        "nvidia-cuda-profiler-api==$CUDA_SERIES.*" >&2 ||
        die "pip could not fetch NVIDIA's wheels; install a CUDA toolkit 13.0 or newer, or set CUDA_HOME to one"
    unpack_wheels "$new/wheels" "$new"
    rm -rf "$new/wheels"
    # what nvcc.profile and CMake expect beside it
    mkdir -p "$new/targets/x86_64-linux"
    ln -sfn lib "$new/lib64"
    ln -sfn ../../include "$new/targets/x86_64-linux/include"
    ln -sfn ../../lib "$new/targets/x86_64-linux/lib"
    for name in "$new"/lib/lib*.so.[0-9]*; do
        [ ! -e "$name" ] || ln -sfn "$(basename "$name")" "${name%.so.*}.so"
    done
    rm -rf $WHEELS
    mv "$new" $WHEELS
}

[ $# != 0 ] || set -- build test
install_packages "$@"
if [ -z "${GS_FORCE_WHEELS:-}" ] && find_toolkit; then
    exit 0
fi
is_toolkit "$PWD/$WHEELS" || fetch_toolkit
is_toolkit "$PWD/$WHEELS" || die "$WHEELS is no working toolkit; remove that folder and try again"
echo "$PWD/$WHEELS"
