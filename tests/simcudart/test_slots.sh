#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test_slots.sh SOURCE_FOLDER DRIVER_API_DEF CC: every driver function that simcudart calls is one that its look-ups give it, in
# that very ABI. (A slot that no look-up fills would say cudaErrorCallRequiresNewerDriver for ever.)
set -u
source=$1 table=$2 cc=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# rows of the table: symbol base since variant
printf '%s\n' '#define GS_API(symbol, base, since, variant, family, kind) @ symbol base since variant' \
    "#include \"$table\"" >rows.c
"$cc" -E -P rows.c | tr -s ' \n' ' ' | sed 's/@ */\n/g' | grep . >rows.txt
[ "$(wc -l <rows.txt)" -gt 600 ] || { echo "$table: only $(wc -l <rows.txt) rows were understood" >&2; exit 1; }

# the symbol that each look-up means: newest ABI not above the version; the per-thread variant for flags 2
awk 'NR == FNR { base[NR] = $2; symbol[NR] = $1; since[NR] = $3; variant[NR] = $4; n = NR; next }
     { best = 0
       for (i = 1; i <= n; i++)
           if (base[i] == $1 && since[i] <= $2 && (variant[i] == "" || $3 == 2) &&
               (!best || (variant[i] != "") > (variant[best] != "") ||
                ((variant[i] != "") == (variant[best] != "") && since[i] > since[best])))
               best = i
       if (best) print symbol[best] }' rows.txt "$source/lookups.txt" | sort -u >filled.txt

# the symbols that the code calls; files compiled twice call the per-thread variants as well
{
    cat "$source"/*.c | tr -d ' \n' | grep -oE 'DRIVER(_PTSZ|_PTDS)?\(cu[A-Za-z0-9_]+\)' |
        sed -E 's/DRIVER(_PTSZ|_PTDS)?\((.*)\)/\2/'
    cat "$source"/*.c | tr -d ' \n' | grep -oE 'DRIVER_PTSZ\(cu[A-Za-z0-9_]+\)' | sed -E 's/.*\((.*)\)/\1_ptsz/'
    cat "$source"/*.c | tr -d ' \n' | grep -oE 'DRIVER_PTDS\(cu[A-Za-z0-9_]+\)' | sed -E 's/.*\((.*)\)/\1_ptds/'
} | sort -u >used.txt
[ "$(wc -l <used.txt)" -gt 100 ] || { echo "only $(wc -l <used.txt) calls were found in $source" >&2; exit 1; }

missing=$(comm -13 filled.txt used.txt)
if [ -n "$missing" ]; then
    echo "called, but not looked up (see lookups.txt for the ABI that is):" >&2
    echo "$missing" >&2
    exit 1
fi
echo "$(wc -l <used.txt) driver functions are called; all are looked up"
