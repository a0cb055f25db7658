#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing to build and test gpushare, and prints the folder of the CUDA toolkit on standard output
# (everything else goes to standard error). Used by demo.sh, test.sh and .ci/run: CUDA_HOME=$(scripts/setup.sh).
#
#   scripts/setup.sh [--headers] [GROUP...]    groups of scripts/packages.txt; default: build test
#                                  --headers: CUDA's headers are enough, which are some megabytes instead of 200
#   GS_FORCE_WHEELS=1              take NVIDIA's wheels even where a toolkit is installed
#   GS_NO_INSTALL=1                install and fetch nothing: say what is missing and fail
set -euo pipefail
cd "$(dirname "$0")/.."
LIST=scripts/packages.txt
WHEELS=build/cuda
HEADERS=build/cuda-headers
# the newest of this series; the headers decide which driver functions the table must have
CUDA_SERIES=13.0
CUDA_MINIMUM=13000

exec 3>&2 # where a command's own words are discarded, ours are not
say() { echo "setup: $*" >&3; }
die() { say "$*"; exit 1; }

packages_of() { # GROUP...: the packages of these groups
    local group
    for group; do
        awk -v group="$group" '$1 == group || ($1 == "demo" && group == "build") { print $2 }' $LIST
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Runs a command, and says each 4 s that it still runs.
with_progress() { # WHAT COMMAND...
    local what=$1 since=$SECONDS ticker status=0
    shift
    while sleep 4; do say "$what: $((SECONDS - since)) s"; done >/dev/null &
    ticker=$!
    "$@" || status=$?
    kill $ticker
    wait $ticker 2>/dev/null || true
    return $status
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
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        die "missing packages, and neither root nor sudo is there to install them; run as root:" \
            "apt-get install --no-install-recommends ${missing[*]}"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    if ! with_progress "installing packages" as_root apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
        # the lists may be old or not there yet
        with_progress "reading package lists" as_root apt-get update -qq >&2 ||
            die "cannot read the package lists; may you use sudo? Run as root: apt-get update, then" \
                "apt-get install --no-install-recommends ${missing[*]}"
        with_progress "installing packages" as_root apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null ||
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

has_headers() { # FOLDER: they are new enough
    local version
    [ -r "$1/include/cudaTypedefs.h" ] && [ -r "$1/include/cudaProfiler.h" ] && [ -r "$1/include/crt/host_defines.h" ] || return 1
    version=$(header_version "$1")
    [ "${version:-0}" -ge $CUDA_MINIMUM ]
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

fetch_wheels() { # FOLDER NAME...: NVIDIA's wheels, unpacked into it
    local new=$1 names=() name
    shift
    for name; do names+=("nvidia-$name==$CUDA_SERIES.*"); done
    rm -rf "$new"
    mkdir -p "$new/wheels"
    with_progress "fetching from PyPI" python3 -m pip download -q --no-deps --only-binary=:all: -d "$new/wheels" "${names[@]}" >&2 ||
        die "pip could not fetch NVIDIA's wheels; install a CUDA toolkit 13.0 or newer, or set CUDA_HOME to one"
    unpack_wheels "$new/wheels" "$new"
    rm -rf "$new/wheels"
}

fetch_headers() { # into $HEADERS
    say "no CUDA toolkit found: fetching NVIDIA's headers $CUDA_SERIES from PyPI"
    fetch_wheels $HEADERS.new cuda-runtime cuda-crt cuda-profiler-api
    rm -rf $HEADERS
    mv $HEADERS.new $HEADERS
}

fetch_toolkit() { # into $WHEELS
    local new=$WHEELS.new name
    say "no CUDA toolkit found: fetching NVIDIA's compiler, headers and runtime $CUDA_SERIES from PyPI"
    fetch_wheels "$new" cuda-nvcc cuda-crt cuda-runtime nvvm cuda-cccl cuda-profiler-api
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

need=toolkit
if [ "${1:-}" = --headers ]; then
    need=headers
    shift
fi
[ $# != 0 ] || set -- build test

# what is there already; says where
find_any() {
    if [ -z "${GS_FORCE_WHEELS:-}" ] && find_toolkit; then return 0; fi
    if is_toolkit "$PWD/$WHEELS"; then echo "$PWD/$WHEELS"; return 0; fi
    [ $need = headers ] && has_headers "$PWD/$HEADERS" && echo "$PWD/$HEADERS"
}

if found=$(find_any); then
    install_packages "$@"
    echo "$found"
    exit 0
fi
[ -z "${GS_NO_INSTALL:-}" ] || die "no CUDA toolkit with $CUDA_MINIMUM or newer headers in CUDA_HOME," \
    "/usr/local/cuda or PATH; install one, or unset GS_NO_INSTALL to fetch NVIDIA's wheels"
[ "$(uname -m)" = x86_64 ] || die "no CUDA toolkit found; install one ($(uname -m): nothing is fetched)"
install_packages "$@" wheels
fetch_$need
find_any || die "what was fetched into build/ is no working toolkit; remove $WHEELS and try again"
