#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs gpushare: ./install.sh [PREFIX]     default: /usr/local
# PREFIX/share/gpushare/uninstall.sh removes it again.
set -eu
die() { echo "install.sh: $*" >&2; exit 1; }
case ${1:-} in -h | --help) sed -n '5,6s/^# //p' "$0"; exit 0 ;; esac
prefix=${1:-/usr/local}
mkdir -p "$prefix" || die "$prefix cannot be made"
prefix=$(cd "$prefix" && pwd -P)
cd "$(dirname "$0")/files"
list=$prefix/share/gpushare/installed
mkdir -p "$prefix/share/gpushare"
find . ! -type d | sed 's/^\.//' | sort >"$list.new"

# Each file is replaced at once: programs that run keep the old one.
while read -r file; do
    mkdir -p "$prefix$(dirname "$file")"
    case $file in
    *.service) sed "s|^ExecStart=.*/bin/|ExecStart=$prefix/bin/|" ".$file" >"$prefix$file.new"; chmod 644 "$prefix$file.new" ;;
    *) cp -P ".$file" "$prefix$file.new" ;;
    esac
    mv -fT "$prefix$file.new" "$prefix$file"
done <"$list.new"

if [ -e "$list" ]; then # of an older version, and not of this one
    grep -vxFf "$list.new" "$list" | while read -r file; do rm -f "$prefix$file"; done
fi
mv -f "$list.new" "$list"
echo "gpushare is in $prefix; $prefix/share/gpushare/uninstall.sh removes it"
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "add $prefix/bin to PATH" ;; esac
