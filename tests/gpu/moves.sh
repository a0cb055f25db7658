#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Programs change cards while they run, on a machine with two: tests/gpu/moves.sh [hog|torch|pool]...   (default: all). A hog that
# checks every page goes back and forth; a PyTorch job with convolutions of cuDNN and a CUDA graph does too, and must have the
# checksum that it has alone; eight programs that all begin on the first card end sooner with `balance = waiting`. Exit 77
# with fewer than two cards. Writes $OUT/moves.json (OUT: default docs/results); programs come from $GS_BUILD, build/gpu or
# build/dev, as for run.sh.
#
#   GS_MOVES=N         moves of the hog (200); GS_MOVES_TORCH=N: of the PyTorch job (20)
#   GS_MOVES_BYTES=N   what the hog holds (7GiB)
#   GS_MOVES_SECONDS   for the hog's moves (150): fewer moves are made then
#   GS_POOL_SECONDS    that each of the eight programs takes alone (8); GS_POOL_SHORT=1: without the run with balance off
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/gpu/lib.sh

gpu_setup || exit 1
if [ -z "${GS_GPU_SELFCHECK:-}" ] && [ "$(nvidia-smi -L | grep -c '^GPU')" -lt 2 ]; then
    echo "moves.sh: it needs two cards" >&2
    exit 77
fi
patched hog.nv hog || { echo "moves.sh: $detail" >&2; exit 1; }
[ $# != 0 ] || set -- hog torch pool
if [[ " $* " == *" torch "* ]]; then
    make_pythons || { echo "moves.sh: $detail" >&2; exit 1; }
    export GS_PYTHON_PLAIN=$python_plain GS_PYTHON_PATCHED=$python_patched
fi
export OUT=${OUT:-docs/results}
mkdir -p "$OUT"
python3 tests/gpu/moves.py "$bundle" "$work" "$limit" "$@"
