#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests/gpu/run.sh on the simulated card, to see that its scripts work: tests/gpu/test_selfcheck.sh BUILD [run.sh's words].
# The cases that need NVIDIA's runtime, a framework or a real card are skipped or use simcudart's samples instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?usage: tests/gpu/test_selfcheck.sh BUILD [words for run.sh]}")
shift
work=$(mktemp -d /tmp/gpushare-selfcheck-XXXXXX)
trap 'rm -rf "$work"' EXIT
kernels=$(printf '%s:' "$build"/samples/*_standin.so)
export GS_GPU_SELFCHECK=1 GS_JOB_LIMIT=600 GS_BUILD=$build GS_GPU_LIMIT=512MiB GS_TURMOIL_SEEDS=10 OUT=$work
export LD_LIBRARY_PATH=$build/tests/simcuda SIMCUDA_KERNELS=${kernels%:} SIMCUDA_CARD=$work/card SIMCUDA_MEMORY=1GiB
export GS_GPU_ARCH=sm_90 GS_GPU_LINK="-L$build/tests/simcudart"
tests/gpu/run.sh "$@"
