#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test_sample.sh SIMCUDA_FOLDER STANDIN STATUS PATTERN COMMAND...: COMMAND on a simulated card of its own ends with STATUS within 50
# seconds, and what it prints (on either stream) has a line that matches PATTERN.
set -u
simcuda=$1 standin=$2 status=$3 pattern=$4
shift 4
if [ ! -e "$simcuda/libcuda.so.1" ]; then
    echo "skipped: there is no simulated driver in $simcuda"
    exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

export LD_LIBRARY_PATH=$simcuda SIMCUDA_KERNELS=$standin SIMCUDA_CARD=$work SIMCUDA_MEMORY=${SIMCUDA_MEMORY:-512MiB}
timeout 300 "$@" >"$work/output" 2>&1
got=$?
cat "$work/output"
if [ "$got" != "$status" ]; then
    echo "$*: ended with $got, not $status" >&2
    exit 1
fi
if ! grep -qE "$pattern" "$work/output"; then
    echo "$*: printed no line like: $pattern" >&2
    exit 1
fi
