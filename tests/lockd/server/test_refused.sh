#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A program that the daemon refuses says why, once, and goes on without sharing: test_refused.sh BUILD-FOLDER SOURCE-FOLDER
set -euo pipefail
build=$1 source=$2
folder=$(mktemp -d /tmp/gpushare-test-XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
export GPUSHARE_SOCKET=$folder/lockd.sock SIMCUDA_CARD=$folder/card
export LD_LIBRARY_PATH=$build/tests/simcuda SIMCUDA_KERNELS=$build/samples/hog_standin.so
[ -x "$build/samples/hog" ] || { echo "no samples were built"; exit 77; }
cp "$build/samples/hog" "$folder/hog"
"$build/rewriter/gpushare-patch" -q --runtime "$build/runtime/libgpushare.so.1" "$folder/hog"
"$build/lockd/gpushare-lockd" --max-programs 1 2>"$folder/daemon.log" &
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source/tests/lockd python3 -c '
import os, sys
from fake import *
wait_for(lambda: can_connect(os.environ["GPUSHARE_SOCKET"]), PATIENCE, "the daemon")
first = Program(os.environ["GPUSHARE_SOCKET"])
first.say(demand=MIB)
first.hear()
print("there", flush=True)
time.sleep(600)' >"$folder/first" &
for ((i = 0; i < 3000; i++)); do
    grep -q there "$folder/first" && break
    sleep 0.1
done
grep -q there "$folder/first" || { echo "the first program did not come up in five minutes"; exit 1; }
timeout 300 "$folder/hog" --share 0.3 >"$folder/out" 2>"$folder/said" || { cat "$folder/said"; exit 1; }
grep -q '^ok ' "$folder/out" || { echo "it did not do its work"; exit 1; }
for text in 'refuses this program: .*max-programs' 'running without sharing: gpushare-lockd refuses it'; do
    [ "$(grep -c "$text" "$folder/said")" = 1 ] || { echo "not said once: $text"; cat "$folder/said"; exit 1; }
done
# it tried again now and then, not in a loop: at most every 200 ms for 5 s
[ "$(grep -c 'connection closed' "$folder/daemon.log")" -le 60 ] || { echo "it came back too often"; exit 1; }
