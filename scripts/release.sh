#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a release: scripts/release.sh [--dry-run] [--to FOLDER] [WORDS FOR test.sh...]
# Packs the committed sources of the version in CMakeLists.txt, unpacks them in a clean folder, and tests them and makes all packages
# there. The packages are installed and used, and tried together with the last release (scripts/check_releases.sh, which needs
# nothing but that release's tag); only then this release's tag is set. FOLDER (default: build/release) gets the sources, wheels,
# tarballs of binaries, Debian packages and SHA256SUMS. --dry-run sets no tag and does not ask that everything is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
die() { echo "release: $*" >&2; exit 1; }

dry='' out=$PWD/build/release
[ "${1:-}" != --dry-run ] || { dry=1; shift; }
if [ "${1:-}" = --to ]; then
    [ -n "${2:-}" ] || die "--to needs a folder"
    out=$(realpath -m "$2")
    [ -z "$(ls -A "$out" 2>/dev/null)" ] || die "$out is not empty"
    shift 2
else
    rm -rf "$out"
fi
version=$(sed -n 's/^project(gpushare VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ -n "$version" ] || die "CMakeLists.txt names no version: project(gpushare VERSION X.Y.Z ...)"
name=gpushare-$version
if [ -z "$dry" ]; then
    [ -z "$(git status --porcelain)" ] || die "there are changes that are not committed: commit or stash them"
    ! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || die "the tag v$version exists: raise the version in CMakeLists.txt"
    grep -q "^## $version" NEWS.md || die "NEWS.md has no heading '## $version'"
    ! grep -q "^## $version (not released yet)" NEWS.md || die "NEWS.md still says that $version is not released"
fi
gs_setup build test package

# A repository of its own: some checks ask git which files there are, and deb.sh packs what is committed.
unpack() {
    tar -xzf "$out/$name.tar.gz" -C "$clean"
    git init -q "$clean/$name"
    git -C "$clean/$name" add -A
    git -C "$clean/$name" -c user.name=release -c user.email=release@localhost commit -qm "$name"
    mkdir -p "$clean/$name/build/portable"
    find build/portable -maxdepth 1 -name 'sysroot-*' -exec cp -a {} "$clean/$name/build/portable/" \; 2>/dev/null || true # spares a download
}

make_packages() { # FOLDER
    local machine
    for machine in x86_64 aarch64; do
        packaging/portable.sh $machine
        packaging/wheel.py $machine "build/portable/$machine/stage" "$1"
        packaging/tarball.sh $machine "build/portable/$machine/stage" "$1"
    done
    packaging/deb.sh "$1"
}

check_packages() { # FOLDER: as somebody who has fetched it
    (cd "$1" && sha256sum --quiet -c SHA256SUMS && [ "$(wc -l <SHA256SUMS)" = "$(find . -type f ! -name SHA256SUMS | wc -l)" ]) || return 1
    GS_DIST=$1 scripts/check_install.sh --short
}

mkdir -p "$out"
git archive --format=tar.gz --prefix="$name/" -o "$out/$name.tar.gz" HEAD
clean=$(mktemp -d)
trap 'rm -rf "$clean"' EXIT
unpack
(cd "$clean/$name" && ./test.sh --all "$@") || die "the tests failed in a clean folder: no tag was set"
scripts/check_releases.sh || die "it does not work with the last release: no tag was set"
(cd "$clean/$name" && make_packages "$out") || die "the packages could not be made: no tag was set"
(cd "$out" && sha256sum -- * >"$clean/SHA256SUMS" && mv "$clean/SHA256SUMS" .)
cp -r "$out" "$clean/fetched"
(cd "$clean/$name" && check_packages "$clean/fetched") || die "the packages are not as they should be: no tag was set"
cat "$out/SHA256SUMS"
[ -n "$dry" ] || git tag -a "v$version" -m "gpushare $version"
echo "release: $out is ready${dry:+ (no tag was set)}"
