#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bash completion of gpusharectl: completion.sh GPUSHARECTL SOURCE-FOLDER. Every command and setting that the program
# knows is offered by all three shells' files.
set -euo pipefail
ctl=$1 folder=$2/lockd/completion failed=0
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
expect --watch gpusharectl status --w
for word in $commands $settings; do
    for file in _gpusharectl gpusharectl.fish; do
        grep -qE "(^|[^a-z-])$word([^a-z-]|$)" "$folder/$file" || { echo "$file lacks $word"; failed=1; }
    done
done
# where the values of a setting are offered, all of them are
for word in $("$ctl" set --help | awk '$1 == "policy" { gsub(/\|/, " ", $2); $1 = ""; sub(/ who.*/, ""); print }'); do
    expect "$word" gpusharectl set policy ""
    grep -q "from policy\" -a \".*\b$word\b" "$folder/gpusharectl.fish" || { echo "fish does not offer policy $word"; failed=1; }
    grep -q "2:value or program:.*\b$word\b" "$folder/_gpusharectl" || { echo "zsh does not offer policy $word"; failed=1; }
done
for word in $commands; do expect --json gpusharectl "$word" --js; done
exit $failed
