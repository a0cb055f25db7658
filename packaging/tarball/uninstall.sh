#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Removes gpushare from the prefix that this script lies in: uninstall.sh [--refuse | --stub]
# Patched files are restored first. --refuse: if there are any, nothing is removed. --stub: they stay patched, and a stub in the
# library's place lets them run without sharing. Files that could not be restored get the stub in any case, and are named.
set -eu
unset CDPATH
prefix=$(cd "$(dirname "$0")/../.." && pwd -P)
tool=$prefix/bin/gpushare-patch library=$prefix/lib/libgpushare.so.1 list=$prefix/share/gpushare/installed
who=''
state=${XDG_STATE_HOME:-$HOME/.local/state}/gpushare
if [ "$(id -u)" = 0 ]; then
    who=--all-users
    state=/var/lib/gpushare
fi
state=${GPUSHARE_STATE:-$state}
still_patched() {
    status=0
    listed=$("$tool" --list $who --runtime "$library") || status=$?
    printf '%s\n' "$listed" | sed -nE 's/^(patched|changed|hidden) +//p'
    # 4: none. What cannot be read may name files, and they must start still
    case $status in 0 | 4) ;; *) echo "(perhaps more: not every list could be read)" ;; esac
}
[ -r "$list" ] || { echo "uninstall.sh: $list is missing: nothing is known of an installation in $prefix" >&2; exit 1; }
for folder in "$prefix/share/gpushare" "$prefix/bin" "$prefix/lib"; do
    [ -w "$folder" ] || { echo "uninstall.sh: $folder cannot be changed by this user: nothing was done" >&2; exit 1; }
done

left=$(still_patched)
case ${1:-} in
--refuse)
    if [ -n "$left" ]; then
        printf 'uninstall.sh: these files are patched:\n%s\nuninstall.sh: nothing was removed\n' "$left" >&2
        exit 1
    fi
    ;;
--stub) ;;
'') "$tool" --restore-all $who --runtime "$library" || true ;;
*) sed -n '5,7s/^# //p' "$0"; exit 2 ;;
esac
left=$(still_patched)
if [ -n "$left" ]; then
    mkdir -p "$state"
    cp "$prefix/lib/gpushare/libgpushare-stub.so.1" "$library.stub"
    cp "$tool" "$state/gpushare-patch"
    printf '%s\n' "$library" "$state/gpushare-patch" >>"$state/stub"
fi
folders=$(sort -r "$list" | sed -n '\|/$|p') # those that install.sh made, the deepest first
while read -r file; do
    case $file in */) ;; *) rm -f "$prefix$file" ;; esac
done <"$list"
rm -f "$list"
[ -z "$left" ] || mv -f "$library.stub" "$library"
while read -r folder; do [ -z "$folder" ] || rmdir "$prefix$folder" 2>/dev/null || true; done <<END
$folders
END
rmdir "$state/patched" "$state" 2>/dev/null || true
if [ -n "$left" ]; then
    printf 'gpushare: these files stay patched; %s is a stub now, with which they run without sharing:\n%s\n' "$library" "$left" >&2
    echo "gpushare: later: $state/gpushare-patch --restore-all" >&2
fi
