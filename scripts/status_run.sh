#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints what gpusharectl status shows of two patched programs that share the simulated card: scripts/status_run.sh BUILD. A kept
# run (docs/results) is what scripts/terminal_svg.py makes the guide's picture of.
set -euo pipefail
build=$(realpath "${1:?usage: status_run.sh BUILD}")
work=$(mktemp -d) children=()
export GPUSHARE_SOCKET=$work/lockd.sock GPUSHARE_STATE=$work/state LD_LIBRARY_PATH=$build/tests/simcuda COLUMNS=80
export SIMCUDA_CARD=$work/card SIMCUDA_KERNELS=$build/samples/hog_standin.so SIMCUDA_MEMORY=256MiB
finish() {
    kill "${children[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap finish EXIT
"$build/lockd/gpushare-lockd" --socket "$GPUSHARE_SOCKET" --quantum 1000 2>/dev/null & children+=($!)
for name in train notebook; do
    cp "$build/samples/hog" "$work/$name"
    "$build/rewriter/gpushare-patch" --quiet "$work/$name"
    "$work/$name" --share 0.7 --rounds 100000 --cpu-ms 20 >/dev/null & children+=($!)
done
shown() { "$build/lockd/gpusharectl" status >"$work/status" && grep -q " train .* runs" "$work/status" && grep -q " notebook .* waits" "$work/status"; }
for _ in $(seq 1200); do
    sleep 0.1
    if [ "$SECONDS" -ge 10 ] && shown; then break; fi
done
shown || [ -s "$work/status" ]
printf '$ gpusharectl status\n'
cat "$work/status"
