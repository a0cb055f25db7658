#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test_tools.sh SCRIPT TOOL...: the completion of each tool offers every option of its --help.
set -euo pipefail
# shellcheck source=lockd/completion/gpushare-tools.bash
. "$1"
shift
for tool; do
    count=0
    while read -r option; do
        COMP_WORDS=("$tool" "$option") COMP_CWORD=1
        _gpushare_tool "$tool"
        [[ " ${COMPREPLY[*]} " == *" $option "* ]] || { echo "$tool: $option is not offered" >&2; exit 1; }
        count=$((count + 1))
    done < <("$tool" --help | grep -oE '^ +(-[a-zA-Z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+')
    [ $count -gt 10 ] || { echo "$tool: only $count options" >&2; exit 1; }
done
COMP_WORDS=("$1" --scope p) COMP_CWORD=2
_gpushare_tool "$1"
[ "${COMPREPLY[*]}" = process ]
