#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes Debian packages of what is committed:
#   packaging/deb.sh [--native] FOLDER
# Source package and binary packages go to FOLDER. They are built against the old libraries of packaging/sysroot.py, so that
# they install on Debian 11 and later; --native builds with this distribution's own libraries, as its archive would.
set -euo pipefail
cd "$(dirname "$0")/.."
export DEB_BUILD_PROFILES=pkg.gpushare.portable DEB_BUILD_OPTIONS="noautodbgsym nocheck ${DEB_BUILD_OPTIONS:-}"
[ "${1:-}" != --native ] || { DEB_BUILD_PROFILES=''; shift; }
[ $# = 1 ] || { echo "usage: packaging/deb.sh [--native] FOLDER" >&2; exit 2; }
version=$(sed -n 's/^project(gpushare VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
mkdir -p "$1"
out=$(realpath "$1") work=$PWD/build/deb
export GS_SYSROOT=$PWD/build/portable/sysroot-amd64
[ -z "$DEB_BUILD_PROFILES" ] || [ -e "$GS_SYSROOT/.complete" ] || python3 packaging/sysroot.py amd64 "$GS_SYSROOT"
rm -rf "$work"
mkdir -p "$work"
git archive --format=tar.gz --prefix="gpushare-$version/" -o "$work/gpushare_$version.orig.tar.gz" HEAD
tar -xzf "$work/gpushare_$version.orig.tar.gz" -C "$work"
cp -r "$work/gpushare-$version/packaging/debian" "$work/gpushare-$version/debian"
(cd "$work/gpushare-$version" && dpkg-buildpackage -us -uc -d) >"$work/build.log" 2>&1 ||
    { tail -30 "$work/build.log" >&2; echo "deb.sh: the packages could not be built; the whole log: $work/build.log" >&2; exit 1; }
! grep -E '\.[chS]:[0-9]+:[0-9]+: warning: ' "$work/build.log" || { echo "deb.sh: the compiler warned" >&2; exit 1; }
cp "$work"/*.deb "$work"/*.dsc "$work"/*.orig.tar.gz "$work"/*.debian.tar.xz "$out/"
if command -v lintian >/dev/null; then # the first: of uploads to Debian; the other: what the portable ones are
    lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs,embedded-library "$work"/*.changes
fi
