#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# busy.sh TIMES COMMAND...: runs a command so many times beside two loops for each processor, for tests that fail on busy machines only.
# Ends at the first failure, with that run's output and exit status.
set -u
[ $# -ge 2 ] || {
    echo "usage: $0 TIMES COMMAND..." >&2
    exit 2
}
times=$1
shift
out=$(mktemp) || exit 1
loops=
trap 'kill $loops 2>/dev/null; rm -f "$out"' EXIT
trap 'exit 130' INT TERM
for _ in $(seq $((2 * $(nproc)))); do
    nice sh -c 'while :; do :; done' &
    loops="$loops $!"
done
for run in $(seq "$times"); do
    "$@" >"$out" 2>&1
    code=$?
    if [ "$code" != 0 ]; then
        cat "$out"
        echo "run $run of $times: exit $code"
        exit "$code"
    fi
done
echo "$times runs passed"
