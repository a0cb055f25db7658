#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs gpushare: ./install.sh [PREFIX]     default: /usr/local
# PREFIX/share/gpushare/uninstall.sh removes it again.
set -eu
unset CDPATH
umask 022 # all users run it, whatever the administrator's own files are
die() { echo "install.sh: $*" >&2; exit 1; }
case ${1:-} in
-h | --help) sed -n '4,5s/^# //p' "$0"; exit 0 ;;
-*) die "$1 is no option, and a prefix may not begin with -" ;;
esac
[ $# -le 1 ] || die "one prefix at most"
prefix=${1:-/usr/local}
made=$(mktemp) # what this run has made that was not there: files, and folders with / at their end
new=''         # the file that is being written
done=''

fail() { # what was there before stays; what is new goes again
    if [ -z "$done" ]; then
        [ -z "$new" ] || rm -f "$new"
        if [ -e "$prefix/share/gpushare/installed" ]; then
            echo "install.sh: not finished: some files are still those of the version before; run it again" >&2
        else
            sort -r "$made" | while read -r path; do
                case $path in */) rmdir "$prefix$path" 2>/dev/null || true ;; *) rm -f "$prefix$path" ;; esac
            done
            echo "install.sh: not finished: nothing was installed" >&2
        fi
    fi
    rm -f "$made"
}
trap fail EXIT
trap 'exit 1' HUP INT TERM

make_folder() { # /A/B, below the prefix
    [ ! -d "$prefix$1" ] || return 0
    [ -z "$1" ] || make_folder "${1%/*}"
    if [ -n "$1" ]; then mkdir "$prefix$1"; else mkdir -p "$prefix"; fi
    echo "$1/" >>"$made"
}

make_folder ''
prefix=$(cd "$prefix" && pwd -P)
case $prefix in *'
'*) die "a prefix with a line feed in its name cannot be used" ;; esac
cd "$(dirname "$0")/files"
quoted=$(printf '%s' "$prefix" | sed 's/[\\&|]/\\&/g') # for sed
list=$prefix/share/gpushare/installed
make_folder /share/gpushare
files=$(find . ! -type d | sed 's/^\.//' | sort)
if [ -e "$list" ]; then # until all is done, of both versions
    new=$list.new
    { cat "$list"; echo "$files"; } | sort -u >"$new"
    mv -f "$new" "$list"
fi

# Each file is replaced at once: programs that run keep the old one.
while read -r file; do
    make_folder "${file%/*}"
    new=$prefix$file.new
    rm -f "$new" # of a run that was killed, or a link of somebody else's
    case $file in
    *.service) sed "s|^ExecStart=.*/bin/|ExecStart=$quoted/bin/|" ".$file" >"$new" ;;
    *) cp -P ".$file" "$new" ;;
    esac
    [ -e "$prefix$file" ] || [ -L "$prefix$file" ] || echo "$file" >>"$made"
    mv -fT "$new" "$prefix$file"
done <<END
$files
END

new=$list.new
{
    echo "$files"
    { sed -n '\|/$|p' "$made"; [ ! -e "$list" ] || sed -n '\|/$|p' "$list"; } | sort -u
} >"$new"
if [ -e "$list" ]; then # of an older version, and not of this one
    { grep -vxFf "$new" "$list" || true; } | while read -r file; do rm -f "$prefix$file"; done
fi
mv -f "$new" "$list"
done=1
echo "gpushare is in $prefix; $prefix/share/gpushare/uninstall.sh removes it"
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "add $prefix/bin to PATH" ;; esac
