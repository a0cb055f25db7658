#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the fuzz targets of a build (preset fuzz): scripts/fuzz.sh [--build FOLDER] [--seconds N] [--merge] [TARGET...]
# Each runs for N seconds (default 30), GS_TEST_JOBS (default 2) at a time, from the seeds in tests/*/corpus-* and from what
# earlier runs have found, which is kept in build/fuzz-corpus. An input that breaks something is left there, too, and named.
#   --merge   instead: copies what reaches new code from build/fuzz-corpus to the seeds, for a commit
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: scripts/fuzz.sh [--build FOLDER] [--seconds N] [--merge] [TARGET...]"
build=build/fuzz seconds=30 merge='' wanted=()
while [ $# != 0 ]; do
    case $1 in
    --build | --seconds) [ $# -ge 2 ] || { echo "$usage" >&2; exit 2; }; declare "${1#--}=$2"; shift ;;
    --merge) merge=1 ;;
    -h | --help) echo "$usage"; exit 0 ;;
    -*) echo "fuzz.sh: $1 is no option; $usage" >&2; exit 2 ;;
    *) wanted+=("$1") ;;
    esac
    shift
done
kept=${GS_FUZZ_CORPUS:-build/fuzz-corpus}

seeds_of() { # TARGET: the folder of its seeds
    local folder
    for folder in tests/*/"corpus-${1#fuzz_}"; do
        [ ! -d "$folder" ] || { echo "$folder"; return; }
    done
    [ "$1" = fuzz_reader ] && echo tests/rewriter/corpus-seeds
}

fuzz() { # PROGRAM: runs it, and says in one line how that went
    local name seeds log count
    name=$(basename "$1")
    seeds=$(seeds_of "$name") || { echo "FAILED: $name: there is no folder tests/*/corpus-${name#fuzz_} of seeds"; return 1; }
    log=$kept/$name.log
    mkdir -p "$kept/$name"
    if [ -n "$merge" ]; then
        "$1" -merge=1 -max_len=65536 "$seeds" "$kept/$name" >"$log" 2>&1 || { tail -5 "$log"; return 1; }
        echo "$name: $(find "$seeds" -type f | wc -l) files in $seeds"
        return
    fi
    # a run is bounded by the time; one input that takes minutes is a fault on the busiest machine
    if ! "$1" -max_total_time="$seconds" -timeout=300 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$kept/$name-" "$kept/$name" "$seeds" >"$log" 2>&1; then
        grep -aE 'ERROR|Test unit written|SUMMARY' "$log" || tail -5 "$log"
        echo "FAILED: $name, after $seconds s at most; all it said: $log"
        return 1
    fi
    count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    [ "${count:-0}" -ge "$(find "$seeds" -type f | wc -l)" ] || { echo "FAILED: $name ran ${count:-0} inputs only"; return 1; }
    echo "$name: $count inputs in $seconds s, $(find "$kept/$name" -type f | wc -l) kept"
}

mapfile -t found < <(find "$build" -name 'fuzz_*' -type f -executable | sort)
programs=()
for program in "${found[@]}"; do
    if [ ${#wanted[@]} = 0 ] || [[ " ${wanted[*]} " == *" $(basename "$program") "* ]]; then
        programs+=("$program")
    fi
done
[ ${#programs[@]} != 0 ] || { echo "fuzz.sh: $build holds no such fuzz target; build it with the preset fuzz" >&2; exit 1; }
mkdir -p "$kept"
status=0 running=0
for program in "${programs[@]}"; do
    if [ "$running" -ge "${GS_TEST_JOBS:-2}" ]; then
        wait -n || status=1
        running=$((running - 1))
    fi
    fuzz "$program" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || status=1
    running=$((running - 1))
done
exit $status
