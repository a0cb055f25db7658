#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the tarball of one machine's portable binaries (packaging/portable.sh):
#   packaging/tarball.sh MACHINE STAGE FOLDER      the path of the tarball goes to stdout
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 3 ] || { echo "usage: packaging/tarball.sh MACHINE STAGE FOLDER" >&2; exit 2; }
version=$(sed -n 's/^project(gpushare VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=gpushare-$version-linux-$1
mkdir -p "$3"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/$name"
cp -a "$2" "$work/$name/files"
cp packaging/tarball/install.sh LICENSE NEWS.md "$work/$name/"
cp packaging/tarball/uninstall.sh "$work/$name/files/share/gpushare/"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-1767225600}" -czf "$3/$name.tar.gz" "$name"
echo "$3/$name.tar.gz"
