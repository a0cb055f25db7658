#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The benchmarks that need a card, one after the other, each within its time: bench/card.sh [PART...]   (default: all)
#   gate allocation handoff handover repeat many interactive cold startup disposable spatial thesis solo release ipc equal overcommit train generate cache serving notebook frontier
# Takes the programs from $GS_BUILD, build/gpu (tests/gpu/bundle.sh) or build/dev; leaves PART.json and PART.txt in $OUT
# (default docs/results). A table last: what each part said at its end, and how long it took. GS_SECONDS: no part is begun
# that could end later than that. GS_PATIENCE=N: each may take N times as long (a busy machine).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bundle=${GS_BUILD:-build/gpu}
[ -d "$bundle" ] || bundle=build/dev
bundle=$(realpath "$bundle") out=${OUT:-docs/results} left=${GS_SECONDS:-100000}
[ -x "$bundle/bench/handoff_bench" ] || { echo "card.sh: no benchmarks in $bundle; build here, or carry build/gpu" >&2; exit 1; }
export GS_BUILD=$bundle LD_LIBRARY_PATH=$bundle/lib:$bundle/runtime${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out"

declare -A limit=([gate]=20 [allocation]=150 [handoff]=280 [handover]=170 [many]=230 [interactive]=130 [cold]=330 [thesis]=150 [solo]=200 [release]=60 [ipc]=60 [equal]=240
    [repeat]=180 [startup]=240 [disposable]=240 [overcommit]=280 [train]=180 [generate]=180 [cache]=180 [spatial]=260 [serving]=590 [notebook]=590 [frontier]=590)
program() { # PART: its command
    case $1 in
    gate) echo "$bundle/bench/gate_bench" ;;
    allocation) echo "$bundle/bench/alloc_bench" ;;
    handoff) echo "$bundle/bench/handoff_bench --all" ;;
    handover) echo "$bundle/bench/handoff_bench --gib 8,24 --hand-over" ;;
    repeat) echo "$bundle/bench/handoff_bench --gib 24 --repeat 40" ;;
    startup) echo "python3 bench/startup_bench.py --trace" ;;
    disposable) echo "python3 bench/disposable_bench.py --torch" ;;
    overcommit) echo "python3 bench/overcommit_bench.py" ;;
    train | generate | cache) echo "python3 bench/overcommit_llm.py --case $1" ;;
    spatial) echo "python3 bench/spatial_bench.py --mps" ;;
    serving) echo "python3 bench/serving_bench.py --case server --case two --case three --budget 570" ;;
    notebook) echo "python3 bench/serving_bench.py --case notebook --case pressure --case resident --budget 570" ;;
    frontier) echo "python3 bench/serving_bench.py --case frontier --rates 0.1,0.2,0.4,0.6 --budget 570" ;;
    many) echo "python3 bench/many_bench.py --quick" ;;
    interactive) echo "python3 bench/interactive_bench.py" ;;
    cold) echo "python3 bench/cold_bench.py" ;;
    thesis) echo "python3 bench/thesis_bench.py" ;;
    solo) echo "python3 bench/solo_bench.py" ;;
    release) echo "$bundle/bench/release_bench" ;;
    ipc) echo "$bundle/bench/ipc_bench" ;;
    equal) echo "python3 bench/equal_bench.py" ;;
    *) return 1 ;;
    esac
}

[ $# != 0 ] || set -- gate allocation handoff handover repeat many interactive cold startup disposable spatial thesis solo release ipc equal overcommit train generate cache serving notebook frontier
for part in "$@"; do
    program "$part" >/dev/null || { echo "card.sh: no part '$part'; there are: ${!limit[*]}" >&2; exit 2; }
done
for part in "${!limit[@]}"; do
    limit[$part]=$((limit[$part] * ${GS_PATIENCE:-1}))
done
table='' worst=0
for part in "$@"; do
    if [ $((SECONDS + limit[$part])) -gt "$left" ]; then
        table+=$(printf '%-12s not begun: %d s are left, it may take %d' "$part" $((left - SECONDS)) "${limit[$part]}")$'\n'
        continue
    fi
    from=$SECONDS status=0
    # shellcheck disable=SC2046 # several words
    timeout "${limit[$part]}" $(program "$part") --json "$out/$part.json" >"$out/$part.txt" 2>&1 || status=$?
    sed 's/^/    /' "$out/$part.txt"
    [ $status = 0 ] || worst=1
    table+=$(printf '%-12s %3d s, exit %d: %s' "$part" $((SECONDS - from)) $status "$(grep -v '^$' "$out/$part.txt" | tail -1)")$'\n'
done
printf '%s' "$table"
exit $worst
