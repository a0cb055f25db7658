#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Tries gpushare on a clean Debian: scripts/check_debian.sh RELEASE [--user] [--demo | --docs | --deb]. debootstrap makes a Debian of that
# release (bookworm, trixie); what is committed here is cloned into it, into a folder that only its owner may enter; there
# ./demo.sh --sim and ./test.sh run as root or, with --user, as a user who may use sudo. With --demo only the demo runs, with --docs scripts/check_docs.sh runs instead, with
# --deb packaging/deb.sh --native: with that release's compiler, hardening flags and lintian.
# Exit 0 only if all passed.
# Needs root, debootstrap, git and a network. Nothing of it is seen or left outside of its folder; that is removed at the
# end unless something failed.
#
#   GS_CHROOTS=FOLDER      where the Debians are made, and downloaded packages are kept (default /var/tmp/gpushare-chroots)
#   GS_DEBIAN_MIRROR=URL   default http://deb.debian.org/debian
#   GS_SHOW_CUDA=FOLDER    a CUDA toolkit that is shown inside, read-only (default: none, as on a new machine)
#   GS_TEST_JOBS=N         tests at a time
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: scripts/check_debian.sh RELEASE [--user] [--demo | --docs | --deb]"
release='' who=root
commands=("./demo.sh --sim" "./test.sh --all")
for word; do
    case $word in
    --user) who=tester ;;
    --demo) commands=("./demo.sh --sim") ;;
    --docs) commands=("scripts/check_docs.sh --here") ;;
    --deb) commands=("scripts/setup.sh build package && packaging/deb.sh --native ~/packages") ;;
    -h | --help) echo "$usage"; exit 0 ;;
    -*) echo "check_debian.sh: $word is no option; $usage" >&2; exit 2 ;;
    *) release=$word ;;
    esac
done
[ -n "$release" ] || { echo "$usage" >&2; exit 2; }
die() { echo "check_debian.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "needs root, to make a Debian and to mount /proc in it"
command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"

if [ -z "${GS_IN_NAMESPACE:-}" ]; then # what is mounted and started from here on ends with this process
    exec env GS_IN_NAMESPACE=1 unshare --mount --pid --fork --kill-child --propagation private "$0" "$@"
fi

place=${GS_CHROOTS:-/var/tmp/gpushare-chroots}
mirror=${GS_DEBIAN_MIRROR:-http://deb.debian.org/debian}
root=$place/$release-$who
packages=$place/packages-$release
say() { printf '== %s as %s: %s\n' "$release" "$who" "$*"; }

# A fresh Debian is kept as an archive for a day, so that several runs download and configure it once.
make_debian() {
    local fresh=$place/fresh-$release.tar
    mkdir -p "$packages/partial"
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    if [ -z "$(find "$fresh" -mmin -1440 2>/dev/null)" ]; then
        debootstrap --variant=minbase --include=sudo,git,ca-certificates --cache-dir="$packages" "$release" "$root" "$mirror" \
            >"$place/$release-$who.log" 2>&1 || { tail -5 "$place/$release-$who.log"; die "debootstrap failed"; }
        tar -cf "$fresh.new" --one-file-system -C "$root" . && mv "$fresh.new" "$fresh"
    else
        tar -xpf "$fresh" -C "$root"
    fi
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io" # it is thrown away: no sync for each file
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    # authorities that this machine trusts beside Debian's: a company's, say
    find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$root/usr/local/share/ca-certificates/" \; 2>/dev/null || true
    chroot "$root" update-ca-certificates >/dev/null 2>&1
}

mount_into_it() {
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
    mount --bind "$root/dev/pts/ptmx" "$root/dev/ptmx"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount --bind "$packages" "$root/var/cache/apt/archives"
    if [ -n "${GS_SHOW_CUDA:-}" ]; then
        mkdir -p "$root/usr/local/cuda"
        mount --bind "$(readlink -f "$GS_SHOW_CUDA")" "$root/usr/local/cuda"
        mount -o remount,bind,ro "$root/usr/local/cuda"
    fi
}

# By a shell of that user, with little in its environment. Its root is a real one, not that of a chroot: the kernel makes
# no user namespaces in a chroot, and not all mounts of a mount namespace.
inside() { # USER COMMAND
    local home variable words=()
    home=$(awk -F: -v name="$1" '$1 == name { print $6 }' "$root/etc/passwd")
    for variable in GS_FORCE_WHEELS GS_TEST_JOBS http_proxy https_proxy no_proxy PIP_INDEX_URL; do
        [ -z "${!variable:-}" ] || words+=("$variable=${!variable}")
    done
    # shellcheck disable=SC2016
    unshare --mount --propagation private bash -c 'mount --rbind "$0" "$0" && cd "$0" && pivot_root . mnt && umount -l /mnt &&
        exec "$@"' "$root" env -i HOME="$home" USER="$1" TERM="${TERM:-dumb}" LANG=C.UTF-8 "${words[@]}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        setpriv --reuid "$1" --regid "$1" --init-groups bash -c "cd && $2"
}

clone_into_it() { # through a bundle: git refuses to clone from a folder of another user
    runuser -u "$(stat -c %U .)" -- git bundle create -q - HEAD >"$root/tmp/gpushare.bundle"
    if [ "$who" != root ]; then
        chroot "$root" useradd --create-home --shell /bin/bash "$who"
        echo "$who ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$who"
    fi
    inside "$who" 'mkdir -m 700 only-mine && git clone -q /tmp/gpushare.bundle only-mine/gpushare'
}

say "making it in $root"
make_debian
mount_into_it
clone_into_it
failed=0
for command in "${commands[@]}"; do
    say "$command"
    before=$SECONDS
    inside "$who" "cd only-mine/gpushare && $command" || { say "FAILED: $command"; failed=1; }
    say "$command took $((SECONDS - before)) s"
done
if [ $failed = 0 ]; then
    umount -R --lazy "$root/proc" "$root/dev" "$root/sys" "$root/var/cache/apt/archives" # a daemon may still be leaving
    ! mountpoint -q "$root/usr/local/cuda" || umount --lazy "$root/usr/local/cuda"
    rm -rf --one-file-system "$root"
    say "all passed"
else
    say "it is left in $root"
fi
exit $failed
