#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds binaries that run on any Linux with glibc 2.28 or newer and need no other library:
#   packaging/portable.sh [x86_64] [aarch64]       default: both
# The result is in build/portable/MACHINE/stage (as below a prefix) with usual folders, stripped; scripts/check_portable.sh
# has looked at it. Needs gcc for each machine, CUDA headers and nvcc as any build, and a network the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { echo "portable.sh: $*" >&2; exit 1; }
[ $# != 0 ] || set -- x86_64 aarch64

for machine; do
    case $machine in
    x86_64) debian=amd64 ;;
    aarch64) debian=arm64 ;;
    *) die "$machine is neither x86_64 nor aarch64" ;;
    esac
    command -v "$machine-linux-gnu-gcc" >/dev/null || die "$machine-linux-gnu-gcc is missing: apt-get install gcc-${machine/_/-}-linux-gnu"
    place=$PWD/build/portable/$machine sysroot=$PWD/build/portable/sysroot-$debian
    # its list of packages may have grown
    [ "$sysroot/.complete" -nt packaging/sysroot.py ] || { rm -rf "$sysroot"; python3 packaging/sysroot.py $debian "$sysroot"; }
    mkdir -p "$place"
    [ -e "$place/build/build.ninja" ] || rm -rf "$place/build"
    if ! cmake -S . -B "$place/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/packaging/portable.cmake" -DGS_MACHINE="$machine" \
        -DGS_SYSROOT="$sysroot" -DCMAKE_BUILD_TYPE=Release -DGS_BUILD_TESTS=OFF -DGS_PORTABLE=ON -DGS_WERROR=ON \
        -DCMAKE_INSTALL_PREFIX=/usr/local -DCMAKE_INSTALL_LIBDIR=lib >"$place/build.log" 2>&1 ||
        ! cmake --build "$place/build" >>"$place/build.log" 2>&1; then
        tail -30 "$place/build.log" >&2
        die "building for $machine failed; the whole log: $place/build.log"
    fi
    rm -rf "$place/stage"
    cmake --install "$place/build" --prefix "$place/stage" --strip >>"$place/build.log"
    scripts/check_portable.sh "$place/stage"
    run=() # the other machine's programs by qemu, with the old glibc
    [ "$machine" = "$(uname -m)" ] || run=("qemu-$machine" -L "$sysroot")
    for program in gpushare-patch gpushare-lockd gpusharectl gpushare-door; do
        "${run[@]}" "$place/stage/bin/$program" --version || die "$program does not run on $machine"
    done
done
