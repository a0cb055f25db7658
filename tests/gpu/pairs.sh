#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Two data-parallel jobs (DDP, FSDP) of two ranks each on two cards, beyond a limit, without any setting; with memory that grows; then with a
# third job beside them: tests/gpu/pairs.sh [ddp|fsdp|grow|third|ddp-long|fsdp-long]... (default: all). Needs two cards and
# PyTorch; exit 77 without. Writes $OUT/pairs.json (OUT: default docs/results).
# NVLink multicast stays off. Programs come from $GS_BUILD, build/gpu or build/dev, as for run.sh.
#
#   GS_GPU_LIMIT    GiB that each card is made to hold (default 16GiB)
#   GS_PAIR_BUDGET  seconds for all of it (default 560); GS_PAIR_RUNS: repetitions of each case (20)
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/gpu/lib.sh

gpu_setup || exit 1
[ "$(nvidia-smi -L | grep -c '^GPU')" -ge 2 ] || { echo "pairs.sh: it needs two cards" >&2; exit 77; }
make_pythons || { echo "pairs.sh: $detail" >&2; exit 1; }
"$python_plain" -c 'import torch.distributed' 2>/dev/null || { echo "pairs.sh: no torch here" >&2; exit 77; }
out=${OUT:-docs/results}
mkdir -p "$out"
export NCCL_NVLS_ENABLE=0
"$python_patched" tests/gpu/pairs.py "$python_patched" "${limit%GiB}" "$out" "$@"
