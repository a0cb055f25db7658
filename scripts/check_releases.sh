#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks that this build works with an earlier release, or that both sides say why not: the old library with the new daemon and
# the other way round, gpusharectl too, and a program that the old release has patched after an upgrade.
#   scripts/check_releases.sh [TAG | COMMIT | TARBALL]     default: the newest tag vX.Y.Z before this commit
# TARBALL: one of the release's binaries for this machine, as scripts/release.sh makes it. A tag is built from its sources, in
# build/previous. Exit 0 also if there is no earlier release yet.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
die() { echo "check_releases.sh: $*" >&2; exit 1; }

release=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null || true)}
[ -n "$release" ] || { echo "there is no earlier release: nothing to check"; exit 0; }
place=$PWD/build/previous
rm -rf "$place/prefix"
mkdir -p "$place"
gs_setup build test
if [ -f "$release" ]; then
    mkdir "$place/prefix"
    tar -xzf "$release" -C "$place/prefix" --strip-components=2 --wildcards '*/files/*' || die "$release is no tarball of binaries"
else
    commit=$(git rev-parse -q --verify "$release^{commit}") || die "$release is neither a file nor a commit"
    rm -rf "$place/source"
    mkdir "$place/source"
    git archive "$commit" | tar -x -C "$place/source"
    { cmake -S "$place/source" -B "$place/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGS_BUILD_TESTS=OFF -DCMAKE_INSTALL_LIBDIR=lib &&
        cmake --build "$place/build" && cmake --install "$place/build" --prefix "$place/prefix"; } >"$place/build.log" 2>&1 ||
        { tail -20 "$place/build.log" >&2; die "$release could not be built; the whole log: $place/build.log"; }
fi
gs_build dev build/dev
say "$release with this build"
python3 tests/runtime/client/test_releases.py --build build/dev --previous "$place/prefix" PreviousRelease
