#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bash completion of gpusharectl: test_completion.sh GPUSHARECTL FOLDER. Every command and setting that the program
# knows is offered by all three shells' files.
set -euo pipefail
ctl=$1 folder=$2 failed=0
# shellcheck disable=SC1091
. "$folder/gpusharectl.bash"
gpusharectl() { GPUSHARE_SOCKET=/nowhere/lockd.sock "$ctl" "$@"; }

# offers LINE...: what is offered for the last word
offers() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _gpusharectl
    echo " ${COMPREPLY[*]-} "
}

expect() { # WANTED LINE...
    local wanted=$1 got
    shift
    got=$(offers "$@")
    [[ $got == *" $wanted "* ]] || { echo "'$*' does not offer $wanted, but:$got"; failed=1; }
}

commands=$("$ctl" --help | sed -n '/^commands/,/^options/p' | awk '/^  / { print $1 }')
settings=$("$ctl" set --help | awk '/^  / { print $1 }')
[ "$(wc -w <<<"$commands")" -ge 11 ] && [ "$(wc -w <<<"$settings")" -ge 12 ] || { echo "the help lists too little"; failed=1; }
for word in $commands; do expect "$word" gpusharectl ""; done
for word in $settings; do expect "$word" gpusharectl set ""; done
expect rr gpusharectl set policy ""
expect all gpusharectl --socket /x pause ""
expect stuck gpusharectl get ""
expect quantum gpusharectl get ""
expect auto gpusharectl set quantum ""
if grep -n "@" "$folder"/* | grep -v ":local\|COMP\|commands\[@\]"; then echo "something was not replaced"; failed=1; fi
for word in $commands $settings; do
    for file in _gpusharectl gpusharectl.fish; do
        grep -qE "(^|[^a-z-])$word([^a-z-]|$)" "$folder/$file" || { echo "$file lacks $word"; failed=1; }
    done
done
# every word that may be a value of a setting, as the help shows it
while read -r name values; do
    for word in $values; do
        expect "$word" gpusharectl set "$name" ""
        grep -qE "from $name\" -a \".*\b$word\b" "$folder/gpusharectl.fish" || { echo "fish does not offer $name $word"; failed=1; }
        grep -qE "2:value or program:.*\b$word\b" "$folder/_gpusharectl" || { echo "zsh does not offer $name $word"; failed=1; }
    done
done < <("$ctl" set --help | awk '/^  / && $2 != "PID" { gsub(/[A-Z]+\|?|\|[A-Z]+/, "", $2); gsub(/\|/, " ", $2); print $1, $2 }')
for word in $commands; do [[ $word =~ ^(cdi|serve)$ ]] || expect --json gpusharectl "$word" --js; done # cdi writes JSON always, serve serves it
expect generate gpusharectl cdi gen
exit $failed
