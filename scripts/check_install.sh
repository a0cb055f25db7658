#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs, uses, upgrades and removes gpushare in fresh Debians: scripts/check_install.sh [--short] [RELEASE...]
# Wheel, Debian package and tarball of what is committed are each installed in Debian 11, 12 and 13 (debootstrap); programs
# are patched and share the simulated card, an upgrade is put over, everything is removed, and what is left must be nothing, or
# the stub where files were not restored. --short: without a Debian, the wheel and the tarball in folders of this machine.
# Needs root, debootstrap and a network; --short needs neither.
#
#   GS_CHROOTS=FOLDER      where Debians are kept (default /var/tmp/gpushare-chroots); each run works on a copy
#   GS_DIST=FOLDER         finished packages; default: made here
#   GS_PARTS="deb musl"    some of the parts: tarball, wheel, deb, musl, boot (the services under the release's own systemd)
set -euo pipefail
cd "$(dirname "$0")/.."
die() { echo "check_install.sh: $*" >&2; exit 1; }
short='' releases=()
for word; do
    case $word in
    --short) short=1 ;;
    -*) die "$word is no option" ;;
    *) releases+=("$word") ;;
    esac
done
[ ${#releases[@]} -gt 0 ] || releases=(bullseye bookworm trixie)
dist=${GS_DIST:-$PWD/build/portable/dist}
place=${GS_CHROOTS:-/var/tmp/gpushare-chroots}

make_packages() { # of this machine's kind
    [ -z "${GS_DIST:-}" ] || return 0
    local machine groups=(build)
    machine=$(uname -m)
    [ -n "$short" ] || groups+=(package)
    CUDA_HOME=$(scripts/setup.sh "${groups[@]}")
    export CUDA_HOME
    packaging/portable.sh "$machine"
    rm -rf "$dist"
    packaging/wheel.py "$machine" "build/portable/$machine/stage" "$dist"
    packaging/tarball.sh "$machine" "build/portable/$machine/stage" "$dist"
    [ -n "$short" ] || packaging/deb.sh "$dist"
}

# What the check inside needs: the packages, and the simulated card with a program for it, built for an old glibc as well.
make_kit() { # FOLDER
    local machine sysroot cc cuda=${CUDA_HOME:-/usr/local/cuda} sources
    machine=$(uname -m)
    sysroot=$PWD/build/portable/sysroot-$(dpkg --print-architecture)
    cc=("$machine-linux-gnu-gcc" --sysroot="$sysroot" -isystem "$sysroot/usr/include/$machine-linux-gnu" -isystem "$sysroot/usr/include"
        -L"$sysroot/usr/lib/$machine-linux-gnu" -L"$sysroot/lib/$machine-linux-gnu" -B"$sysroot/usr/lib/$machine-linux-gnu"
        -std=gnu17 -O1 -w -fPIC -D_GNU_SOURCE -DGS_VERSION='"check"' -I. -isystem "$cuda/include")
    mkdir -p "$1"
    cp "$dist"/*"$machine".whl "$dist"/*"-linux-$machine.tar.gz" tests/install/inside.sh "$1/"
    packaging/licenses.py --list >"$1/linked"
    [ -n "$short" ] || cp "$dist"/*_"$(dpkg --print-architecture).deb" "$1/"
    sources=$(sed -n '/^add_library(simcuda SHARED/,/)/p' tests/simcuda/CMakeLists.txt | grep -oE '[a-z_]+\.c\b' | sed 's|^|tests/simcuda/|')
    # shellcheck disable=SC2086
    "${cc[@]}" -D__CUDA_API_VERSION_INTERNAL -shared $sources common/*.c -o "$1/libcuda.so.1" -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic \
        -Wl,-z,nodelete -Wl,--version-script=tests/simcuda/exports.map -ldl -lpthread -lm
    "$cuda/bin/nvcc" -arch=sm_80 -fatbin tests/programs/driver_kernel.cu -o "$1/driver_kernel.fatbin"
    "${cc[@]}" -DDRIVER_FATBIN="\"$1/driver_kernel.fatbin\"" tests/programs/dlopen_driver.c -o "$1/program" -ldl -lm
    "${cc[@]}" -shared tests/programs/driver_standin.c -o "$1/standin.so" -lm
    "${cc[@]}" -DDRIVER_FATBIN="\"$1/driver_kernel.fatbin\"" tests/programs/dlopen_driver.c -o "$1/program-musl" -ldl -lm \
        -Wl,--dynamic-linker="/lib/ld-musl-$machine.so.1"
}

if [ -n "$short" ]; then
    make_packages
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    make_kit "$work/kit"
    HOME=$work/home XDG_STATE_HOME='' XDG_DATA_HOME='' GS_SHORT=1 GPUSHARE_STATE=$work/home/.local/state/gpushare bash "$work/kit/inside.sh" "$work/kit"
    exit
fi

[ "$(id -u)" = 0 ] || die "needs root, to make Debians (--short does not)"
command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
if [ -z "${GS_IN_NAMESPACE:-}" ]; then
    make_packages
    export GS_DIST=$dist
    GS_IN_NAMESPACE=1 exec unshare --mount --pid --fork --kill-child --propagation private "$0" "${releases[@]}"
fi

mirror=${GS_DEBIAN_MIRROR:-http://deb.debian.org/debian}

make_debian() { # RELEASE: a fresh one in $place/run
    if [ ! -e "$place/base-$1/.complete" ]; then
        rm -rf --one-file-system "$place/base-$1"
        mkdir -p "$place/base-$1"
        debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates,systemd "$1" "$place/base-$1" \
            "$mirror" >"$place/$1.log" 2>&1 || { tail -5 "$place/$1.log"; die "debootstrap of $1 failed"; }
        touch "$place/base-$1/.complete"
    fi
    rm -rf --one-file-system "$place/run-$1"
    cp -a "$place/base-$1" "$place/run-$1"
}

# Devices of its own: nothing of this machine's /dev is in there.
mount_into() { # ROOT
    local name
    mount -t proc proc "$1/proc"
    mount -t tmpfs -o mode=755 tmpfs "$1/dev"
    for name in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
        # shellcheck disable=SC2086
        set -- "$1" $name
        mknod -m 666 "$1/dev/$2" c "$3" "$4"
    done
    mkdir "$1/dev/pts" "$1/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$1/dev/pts"
    ln -s pts/ptmx "$1/dev/ptmx"
    ln -s /proc/self/fd "$1/dev/fd"
    mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
}

passed=0 failed=0 skipped=0
for release in "${releases[@]}"; do
    echo "== $release"
    root=$place/run-$release
    make_debian "$release"
    mount_into "$root"
    make_kit "$root/kit"
    for part in ${GS_PARTS:-tarball wheel deb musl}; do
        [ "$part" != boot ] || continue
        if chroot "$root" env -i HOME=/root GS_PARTS="$part" LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash /kit/inside.sh /kit; then
            passed=$((passed + 1))
        else
            echo "FAILED: $part in $release"
            failed=$((failed + 1))
        fi
    done
    if [ -z "${GS_PARTS:-}" ] || [[ " $GS_PARTS " == *" boot "* ]]; then
        status=0
        tests/install/booted.sh "$place/base-$release" "$dist" || status=$?
        case $status in
        0) echo "   services: run under this release's systemd, and stop with the package"; passed=$((passed + 1)) ;;
        77) skipped=$((skipped + 1)) ;;
        *) echo "FAILED: boot in $release"; failed=$((failed + 1)) ;;
        esac
    fi
    umount -R --lazy "$root/proc" "$root/dev" # a daemon may still be leaving
    [ "${GS_KEEP:-}" = 1 ] || rm -rf --one-file-system "$root"
done
[ "$(stat -c %a /dev/null)" = 666 ] || die "/dev/null of this machine has changed"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
