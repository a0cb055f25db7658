#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a release: scripts/release.sh [--dry-run] [WORDS FOR test.sh...]
# Packs the committed sources of the version in CMakeLists.txt, unpacks them in a clean folder, builds and tests them there,
# and only then sets the tag. Leaves in build/release the sources, wheels, tarballs of binaries, Debian packages and SHA256SUMS. --dry-run sets no tag and
# does not ask that everything is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { echo "release: $*" >&2; exit 1; }

dry=''
[ "${1:-}" != --dry-run ] || { dry=1; shift; }
version=$(sed -n 's/^project(gpushare VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ -n "$version" ] || die "CMakeLists.txt names no version: project(gpushare VERSION X.Y.Z ...)"
name=gpushare-$version out=$PWD/build/release
if [ -z "$dry" ]; then
    [ -z "$(git status --porcelain)" ] || die "there are changes that are not committed: commit or stash them"
    ! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || die "the tag v$version exists: raise the version in CMakeLists.txt"
    grep -q "^## $version" NEWS.md || die "NEWS.md has no heading '## $version'"
    ! grep -q "^## $version (not released yet)" NEWS.md || die "NEWS.md still says that $version is not released"
fi

mkdir -p "$out"
git archive --format=tar.gz --prefix="$name/" -o "$out/$name.tar.gz" HEAD
clean=$(mktemp -d)
trap 'rm -rf "$clean"' EXIT
tar -xzf "$out/$name.tar.gz" -C "$clean"
git init -q "$clean/$name" # some checks ask git which files there are
git -C "$clean/$name" add -A
(cd "$clean/$name" && ./test.sh "$@") || die "the tests failed in a clean folder: no tag was set"
scripts/check_releases.sh || die "it does not work with the last release: no tag was set"
for machine in x86_64 aarch64; do
    packaging/portable.sh $machine
    packaging/wheel.py $machine "build/portable/$machine/stage" "$out"
    packaging/tarball.sh $machine "build/portable/$machine/stage" "$out"
done
packaging/deb.sh "$out"
rm -f "$out/SHA256SUMS"
(cd "$out" && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS . && cat SHA256SUMS)
[ -n "$dry" ] || git tag -a "v$version" -m "gpushare $version"
echo "release: $out/$name.tar.gz is ready${dry:+ (no tag was set)}"
