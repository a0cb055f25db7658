#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# systemd_run.sh BUILD: the service and two unpatched programs as units of systemd-run, with a memory limit each; they share the
# simulated card. For a machine that systemd has booted: tests/vm/vm.sh build/vm --systemd bash tests/vm/systemd_run.sh build/dev
set -euo pipefail
build=$(realpath "${1:?systemd_run.sh BUILD}")
[ -d /run/systemd/system ] || { echo "systemd is not the first process here"; exit 77; }
work=$(mktemp -d /tmp/gs-systemd-XXXXXX)
trap 'systemctl stop gs-lockd 2>/dev/null; rm -rf "$work"' EXIT
card=(-E "SIMCUDA_CARD=$work" -E SIMCUDA_MEMORY=256MiB -E "SIMCUDA_KERNELS=$build/samples/hog_standin.so" -E "LD_LIBRARY_PATH=$build/tests/simcuda"
    -E "GPUSHARE_SOCKET=$work/lockd.sock")
status() { "$build/lockd/gpusharectl" --socket "$work/lockd.sock" status --json; }

systemd-run --quiet --unit=gs-lockd "${card[@]}" "$build/lockd/gpushare-lockd" --foreground --socket "$work/lockd.sock"
for _ in $(seq 600); do
    ! status >"$work/status" 2>/dev/null || break
    sleep 0.2
done
for name in one two; do
    systemd-run --quiet --unit="gs-$name" --wait --collect -p MemoryMax=1G "${card[@]}" -E GPUSHARE_CLASS=background -E "GPUSHARE_NAME=$name" \
        "$build/wrap/gpushare-door" -- "$build/samples/hog" --share 0.6 --rounds 4 --cpu-ms 20 &
    pids+=($!)
done
seen=
while [ -n "$(jobs -r)" ]; do
    status >"$work/status" 2>/dev/null || true
    if grep -q '"name": "one"' "$work/status" && grep -q '"name": "two"' "$work/status"; then seen=1; fi
    sleep 0.2
done
for pid in "${pids[@]}"; do
    wait "$pid" || { echo "a program failed: exit status $?"; exit 1; }
done
[ -n "$seen" ] || { echo "the daemon did not see both: $(cat "$work/status")"; exit 1; }
echo "$(stat -fc %T /sys/fs/cgroup): two unpatched programs of systemd-run share the card"
