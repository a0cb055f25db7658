#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test_hog_pair.sh SIMCUDA_FOLDER STANDIN HOG: two hogs on one card without gpushare. At 30 % each, both finish with the same
# checksum. At 70 % each, the first finishes and the second dies of out-of-memory with exit status 2.
set -u
simcuda=$1 standin=$2 hog=$3
if [ ! -e "$simcuda/libcuda.so.1" ]; then
    echo "skipped: there is no simulated driver in $simcuda"
    exit 77
fi
work=$(mktemp -d) || exit 1
first=
trap '[ -n "$first" ] && kill "$first" 2>/dev/null; rm -rf "$work"' EXIT
fail() { echo "$*" >&2; tail -n 5 "$work"/*.out >&2; exit 1; }

export LD_LIBRARY_PATH=$simcuda SIMCUDA_KERNELS=$standin SIMCUDA_CARD=$work/card SIMCUDA_MEMORY=256MiB
mkdir -m 700 "$work/card"

# starts the first hog, which holds its memory until told otherwise, and waits until it has it
start_first() {
    timeout 300 "$hog" --share "$1" --rounds "$2" --cpu-ms 100 >"$work/first.out" 2>&1 &
    first=$!
    for _ in $(seq 6000); do
        grep -q '^round 1' "$work/first.out" && return
        sleep 0.05
    done
    fail "the first hog did not get through its first round"
}

start_first 0.3 10
timeout 300 "$hog" --share 0.3 --rounds 10 >"$work/second.out" 2>&1 || fail "two at 30 %: the second ended with $?"
wait "$first" || fail "two at 30 %: the first ended with $?"
first=
a=$(grep -o 'checksum=[0-9a-f]*' "$work/first.out") b=$(grep -o 'checksum=[0-9a-f]*' "$work/second.out")
[ -n "$a" ] && [ "$a" = "$b" ] || fail "two at 30 %: checksums differ: $a $b"

for rounds in 20 100 500 1500; do # on a busy machine the first may be over before the second begins
    start_first 0.7 "$rounds"
    timeout 300 "$hog" --share 0.7 --rounds 3 >"$work/second.out" 2>&1
    status=$?
    [ "$status" = 0 ] && ! kill -0 "$first" 2>/dev/null || break
done
[ "$status" = 2 ] || fail "two at 70 %: the second ended with $status, not 2"
grep -q '^out of memory: asked .*, card has ' "$work/second.out" || fail "two at 70 %: the second did not say why"
wait "$first" || fail "two at 70 %: the first ended with $?"
first=
grep -q "^ok rounds=$rounds " "$work/first.out" || fail "two at 70 %: the first printed no ok line"
cat "$work"/*.out | tail -n 2
