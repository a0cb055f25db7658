#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests/gpu/moves.sh on two simulated cards, to see that it works: tests/gpu/test_moves.sh BUILD. PyTorch needs a real card.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?usage: tests/gpu/test_moves.sh BUILD}")
work=$(mktemp -d /tmp/gpushare-moves-XXXXXX)
trap 'rm -rf "$work"' EXIT
export GS_GPU_SELFCHECK=1 GS_BUILD=$build OUT=$work GS_GPU_LIMIT=512MiB GS_MOVES=6 GS_MOVES_SECONDS=10 GS_MOVES_BYTES=24MiB
export GS_MOVES_CARDS="GPU-51585f66-6d74-7b82-8990-979ea5acb300 GPU-51585f66-6d74-7b82-8990-979ea5acb301"
export LD_LIBRARY_PATH=$build/tests/simcuda SIMCUDA_KERNELS=$build/samples/hog_standin.so SIMCUDA_CARD=$work/card
export SIMCUDA_MEMORY=512MiB SIMCUDA_DEVICES=2 SIMCUDA_KERNEL_NS=1000000 SIMCUDA_PCIE_GBPS=1
tests/gpu/moves.sh hog
