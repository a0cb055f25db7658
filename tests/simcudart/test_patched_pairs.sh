#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test_patched_pairs.sh BUILD: the samples, patched, two different ones at a time on one simulated card that has room for one of
# them. Both of a pair must end 0 with right results; unpatched, the second would die of out-of-memory, which is tried first.
set -u
build=$1
patch=$build/rewriter/gpushare-patch lockd=$build/lockd/gpushare-lockd library=$build/runtime/libgpushare.so.1
for file in "$patch" "$lockd" "$library" "$build/tests/simcuda/libcuda.so.1"; do
    [ -e "$file" ] || { echo "skipped: there is no $file"; exit 77; }
done
work=$(mktemp -d) || exit 1
daemon='' first=''
cleanup() {
    for process in $first $daemon; do kill "$process" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$work" 2>/dev/null
}
trap cleanup EXIT
fail() { echo "$*" >&2; tail -n 5 "$work"/*.out >&2; exit 1; }

mkdir -m 700 "$work/card" "$work/run" "$work/bin"
export LD_LIBRARY_PATH=$build/tests/simcuda SIMCUDA_CARD=$work/card SIMCUDA_MEMORY=160MiB SIMCUDA_CONTEXT_MEMORY=4MiB
export GPUSHARE_SOCKET=$work/run/lockd.sock

# standin_of PROGRAM: its kernels' host code
standin_of() {
    case $1 in
    driver_api | dlopen_driver) echo "$build/samples/driver_standin.so" ;;
    *) echo "$build/samples/${1%%.*}_standin.so" ;;
    esac
}

# run FOLDER PROGRAM ARGUMENT...: works for about so many seconds
seconds=3
run() {
    local folder=$1 name=$2
    shift 2
    SIMCUDA_KERNELS=$(standin_of "$name") timeout 300 "$folder/$name" --rounds 100000 --seconds "$seconds" "$@"
}

for first_seconds in 6 24 96; do # on a busy machine the first may be over before the second begins
    SIMCUDA_KERNELS=$(standin_of hog) timeout 300 "$build/samples/hog" --bytes 100MiB --rounds 100000 \
        --seconds $first_seconds >"$work/first.out" 2>&1 &
    first=$!
    for _ in $(seq 6000); do
        grep -q '^round 1' "$work/first.out" && break
        sleep 0.05
    done
    run "$build/samples" graph --bytes 90MiB >"$work/second.out" 2>&1
    status=$?
    [ $status = 0 ] && ! kill -0 "$first" 2>/dev/null || break
done
[ $status = 2 ] || fail "unpatched: the second program found room beside the first: this test would show nothing"
wait "$first" || fail "unpatched: the first program ended with $?"
first=

for name in hog vectoradd.shared vectoradd.ptds graph alloc_churn driver_api dlopen_driver; do
    "$patch" -o "$work/bin/$name" --runtime "$library" "$build/samples/$name" >"$work/patch.out" 2>&1 ||
        fail "gpushare-patch $name: ended with $?"
done
"$lockd" >"$work/lockd.out" 2>&1 &
daemon=$!
for _ in $(seq 6000); do # else the programs start one of their own
    "$build/lockd/gpusharectl" status --json 2>/dev/null | grep -q '"running": true' && break
    sleep 0.05
done

# both_worked "PROGRAM ARGUMENT..." "PROGRAM ARGUMENT...": words are split on purpose
both_worked() {
    # shellcheck disable=SC2086
    {
        run "$work/bin" $1 >"$work/first.out" 2>&1 &
        first=$!
        run "$work/bin" $2 >"$work/second.out" 2>&1 || fail "$2, beside $1: ended with $?"
    }
    wait "$first" || fail "$1, beside $2: ended with $?"
    first=
    for output in first second; do
        grep -q '^ok rounds=' "$work/$output.out" || fail "$1 and $2: the $output does not say how it went"
        grep -q '^ok rounds=[1-9]' "$work/$output.out" || return 1
    done
}

# pair ...: on a busy machine three seconds may be too short for a round
pair() {
    for seconds in 3 6 12 24 48 96; do
        both_worked "$1" "$2" && break
    done
    grep -q '^ok rounds=[1-9]' "$work/first.out" || fail "$1, beside $2: did no round in $seconds s"
    grep -q '^ok rounds=[1-9]' "$work/second.out" || fail "$2, beside $1: did no round in $seconds s"
    echo "$1 | $2: $(tail -n 1 "$work/first.out") | $(tail -n 1 "$work/second.out")"
}
pair "hog --bytes 100MiB --quiet" "graph --bytes 90MiB --cpu-ms 10"
pair "vectoradd.shared --bytes 100MiB" "alloc_churn --bytes 80MiB --largest 8MiB"
pair "driver_api --bytes 90MiB" "dlopen_driver --bytes 90MiB"
pair "vectoradd.ptds --bytes 90MiB" "hog --bytes 100MiB --quiet --cpu-ms 50"
