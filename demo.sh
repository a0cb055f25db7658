#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows gpushare at work: ./demo.sh [--gpu|--sim] [--limit SIZE]. Takes the real card when there is one, else the simulated
# card. Two programs that each want 70 % of the card's memory: refused, then sharing. Every step is checked; exit 0
# only if all of it was so. The simulated card needs no nvcc: CUDA's headers are enough.
#   --limit SIZE       (real card) what the patched programs may use of it together; they are then moved within that.
#                      Default: the card, or a quarter of the free host memory where that is less.
#   GS_BUILD=FOLDER    the build folder (default build/dev, or build/demo for the simulated card); with GS_DEMO_NO_BUILD=1 it is taken as it is, which also
#                      works for the small folder that tests/gpu/bundle.sh makes.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/lib.sh

usage="usage: ./demo.sh [--gpu|--sim] [--limit SIZE]"
help="$usage
Show gpushare at work: two programs that each want 70 % of a GPU's memory, refused, then sharing it.
Every step is checked. Missing Debian packages are installed, with sudo unless you are root; gpushare is built first.

  --gpu          use the GPU of this machine
  --sim          use the simulated GPU, which needs no hardware (default: only where there is no GPU)
  --limit SIZE   let the patched programs use SIZE of the GPU together, so that less memory has to move
                 (default: the whole GPU, or a quarter of the free host memory where that is less)
  -h, --help     show this help"
mode=auto limit=
while [ $# != 0 ]; do
    case $1 in
    --gpu | --sim) mode=${1#--} ;;
    --limit) [ $# -ge 2 ] || { echo "$usage" >&2; exit 2; }; limit=$2; shift ;;
    -h | --help) echo "$help"; exit 0 ;;
    *) echo "demo.sh: $1 is no option; $usage" >&2; exit 2 ;;
    esac
    shift
done
if [ "$mode" = auto ]; then
    if nvidia-smi -L 2>/dev/null | grep -q '^GPU 0'; then mode=gpu; else mode=sim; fi
fi

preset=dev
[ "$mode" = gpu ] || preset=demo
build=${GS_BUILD:-build/$preset}
started=$SECONDS
show() { printf '\n\033[1m%s\033[0m\n' "$*"; }

show "1. Build gpushare, and prepare a program in two ways"
if [ -z "${GS_DEMO_NO_BUILD:-}" ]; then
    if [ "$mode" = sim ]; then
        gs_setup --headers demo
        say "building what the demo needs in $build"
        gs_build demo "$build" demo
    else
        gs_setup build
        say "building $build"
        gs_build dev "$build"
    fi
fi
build=$(realpath "$build")
work=$(mktemp -d /tmp/gpushare-demo-XXXXXX)
pids=()

finish() { # leaves nothing running and nothing behind
    local status=$? pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    if [ $status != 0 ]; then
        tail -n 5 "$work"/*.out "$work"/*.log >&2 2>/dev/null || true
        echo "demo.sh: NOT as it should be; what was printed and logged is in $work" >&2
    else
        rm -rf "$work"
    fi
}
trap finish EXIT
trap 'exit 130' INT TERM

die() { echo "demo.sh: $*" >&2; exit 1; }
now() { date +%s.%N; }
minus() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a - b }'; }

# a bundle brings the libraries of the tools that a bare machine may lack
gpusharectl() { LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} command gpusharectl "$@"; }

export GPUSHARE_SOCKET=$work/lockd.sock
export GPUSHARE_STATE=$work/state # no entries in the user's own list of patched files
export PATH=$build/wrap:$build/rewriter:$build/lockd:$PATH
if [ "$mode" = sim ]; then
    card="simulated card, 256 MiB, PCIe 8 GB/s each way"
    hog=$build/samples/hog.host
    compiler="g++, simulated kernels" link="gpushare-c++ -O2 hog_host.cc -o hog-linked"
    export LD_LIBRARY_PATH=$build/tests/simcuda SIMCUDA_KERNELS=$build/samples/hog_standin.so
    export SIMCUDA_CARD=$work/card SIMCUDA_MEMORY=256MiB SIMCUDA_PCIE_GBPS=8 SIMCUDA_KERNEL_NS=200000000
    link_words=(gpushare-c++ -O2 -std=c++17 -isystem "${CUDA_HOME:-/usr/local/cuda}/include" samples/hog_host.cc
        "$build/tests/simcudart/libcudart_static.a" -lpthread -ldl -lrt)
    rounds=4 cpu_ms=800
else
    card=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader -i 0) ||
        die "--gpu: nvidia-smi shows no card; use --sim"
    hog=$build/samples/hog.nv
    compiler=nvcc link="gpushare-nvcc -O2 hog.cu -o hog-linked"
    link_words=(gpushare-nvcc -O2 -arch=native -cudart static samples/hog.cu)
    rounds=8 cpu_ms=1500
    card_mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits -i 0)
    host_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024 / 4) }' /proc/meminfo)
    [ -n "$limit" ] || [ "$host_mib" -ge "$card_mib" ] || limit=${host_mib}MiB
fi
[ -x "$hog" ] || die "$hog is not built; see $build/build.log"
hog_words=(--share 0.7 --rounds "$rounds" --cpu-ms "$cpu_ms")

value() { # FILE KEY: the value after KEY= in the closing line of hog
    sed -n "s/^ok .*\b$2=\([^ ]*\).*/\1/p" "$1" | tail -1
}

stat_of() { # KEY FILE...: the sum of a key of GPUSHARE_STATS files
    python3 - "$@" <<'PY'
import json, sys
print(sum(json.load(open(path)).get(sys.argv[1], 0) for path in sys.argv[2:]))
PY
}

# start NAME PROGRAM WORD...: runs it in the background; output to $work/NAME.out, statistics to NAME.stats, and what the
# library did to NAME.log
start() {
    local name=$1
    shift
    GPUSHARE_STATS=$work/$name.stats GPUSHARE_LOG=$work/$name.log "$@" >"$work/$name.out" 2>&1 &
    pids+=($!)
    last=$!
}

# A child that prints the lines would have to be killed, and a shell with traps loses a signal that comes just after its fork.
ended() { # PID: waits, with a line each 4 s; sets status
    local since=$SECONDS said=0
    while kill -0 "$1" 2>/dev/null; do
        sleep 0.05
        [ $((SECONDS - since)) -lt $((said + 4)) ] || echo "    $((said = SECONDS - since)) s" >&2
    done
    status=0
    wait "$1" || status=$?
}

must_be_right() { # NAME STATUS
    sed "s/^/    $1: /" "$work/$1.out" | grep -E ': ok ' || sed "s/^/    $1: /" "$work/$1.out"
    [ "$2" = 0 ] || die "$1 ended with $2 instead of 0"
    [ "$(value "$work/$1.out" checksum)" = "$checksum" ] ||
        die "$1 has the checksum $(value "$work/$1.out" checksum), alone it was $checksum"
}

wait_for() { # SECONDS WHAT COMMAND...: until the command succeeds
    local tries=$(($1 * 20)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || die "waited in vain until $what"
        sleep 0.05
    done
}

# two NAME PROGRAM: two copies at once, both right; sets seconds. With "status" as third word shows gpusharectl meanwhile.
two() {
    local name=$1 program=$2 before first second
    before=$(now)
    start "$name-1" "${limited[@]}" "$program" "${hog_words[@]}"
    first=$last
    start "$name-2" "${limited[@]}" "$program" "${hog_words[@]}"
    second=$last
    [ "${3:-}" != status ] || show_status "$first" "$second"
    ended "$first"
    must_be_right "$name-1" $status
    ended "$second"
    must_be_right "$name-2" $status
    seconds=$(minus "$(now)" "$before")
}

both_known() {
    COLUMNS=80 gpusharectl status >"$work/status.out" && grep -qw "$1" "$work/status.out" && grep -qw "$2" "$work/status.out"
}

show_status() { # PID PID
    wait_for 20 "gpusharectl status shows both programs" both_known "$1" "$2"
    sleep 1
    both_known "$1" "$2" || die "gpusharectl status lost a program"
    sed 's/^/    /' "$work/status.out"
}

echo "    card: $card"
limited=(env)
[ -z "$limit" ] || limited=(env "GPUSHARE_DEVICE_LIMIT=$limit")
[ -z "$limit" ] || echo "    patched programs may use ${limit} of it together (GPUSHARE_DEVICE_LIMIT)"
cp "$hog" "$work/hog"
cp "$hog" "$work/hog-patched"
echo "    hog: samples/hog.cu, $compiler, static libcudart, stripped; ${hog_words[*]}"
echo "    \$ gpushare-patch hog-patched"
gpushare-patch "$work/hog-patched" | sed 's/^/    /'
echo "    \$ $link"
"${link_words[@]}" -o "$work/hog-linked"

show "2. Two unpatched copies, each wants 70 % of the card: the second dies"
start plain-1 "$work/hog" --share 0.7 --rounds 2 --cpu-ms 1000
first=$last
wait_for 60 "the first copy has its memory" grep -q . "$work/plain-1.out"
start plain-2 "$work/hog" --share 0.7 --rounds 2 --cpu-ms 1000
second=$last
ended "$second"
sed 's/^/    second: /' "$work/plain-2.out"
[ "$status" = 2 ] || die "the second unpatched copy ended with $status instead of 2 (out of memory)"
grep -q "out of memory" "$work/plain-2.out" || die "the second unpatched copy did not say 'out of memory'"
ended "$first"
[ "$status" = 0 ] || die "the first unpatched copy ended with $status"
echo "    first: $(grep '^ok ' "$work/plain-1.out")"

show "3. Two patched copies one after the other and at once, then two linked by ${link%% *} at once"
before=$(now)
start solo-1 "${limited[@]}" "$work/hog-patched" "${hog_words[@]}"
ended "$last"
solo=$(minus "$(now)" "$before")
checksum=$(value "$work/solo-1.out" checksum)
[ -n "$checksum" ] || { cat "$work/solo-1.out"; die "hog printed no checksum"; }
must_be_right solo-1 $status
start solo-2 "${limited[@]}" "$work/hog-patched" "${hog_words[@]}"
ended "$last"
must_be_right solo-2 $status
serial=$(minus "$(now)" "$before")

two patched "$work/hog-patched" status
patched=$seconds
echo "    both right, $((SECONDS - started)) s after ./demo.sh was started"

two linked "$work/hog-linked"
linked=$seconds

show "4. What it cost"
row() { printf '    %-34s %9s %12s %10s\n' "$@"; }
gib() { awk -v n="$(($(stat_of moved_out "$@") + $(stat_of moved_in "$@")))" 'BEGIN { printf "%.2f", n / 2^30 }'; }
ratio() { awk -v a="$1" -v b="$serial" 'BEGIN { printf "%.2f", a / b }'; }
row "" seconds "GiB moved" switches
for name in solo-1 patched-1 patched-2 linked-1 linked-2; do
    [ -s "$work/$name.stats" ] || die "$name wrote no statistics: libgpushare was not in it"
done
row "one alone" "$solo" "$(gib "$work/solo-1.stats")" "$(stat_of switches "$work/solo-1.stats")"
row "two, one after the other" "$serial" "$(gib "$work"/solo-?.stats)" "$(stat_of switches "$work"/solo-?.stats)"
row "two at once, patched" "$patched" "$(gib "$work"/patched-?.stats)" "$(stat_of switches "$work"/patched-?.stats)"
row "two at once, linked" "$linked" "$(gib "$work"/linked-?.stats)" "$(stat_of switches "$work"/linked-?.stats)"
printf '    two at once / one after the other: patched %s, linked %s\n' "$(ratio "$patched")" "$(ratio "$linked")"
[ "$(stat_of moved_out "$work"/patched-?.stats)" -gt 0 ] || die "nothing was moved out, yet both did not fit"
[ "$(stat_of moved_out "$work"/linked-?.stats)" -gt 0 ] || die "nothing was moved out, yet both did not fit"
show "All as it should be. Two programs of 0.7 of the card each: natively the second dies; shared, both end in $patched s;"
printf '\033[1m%s\033[0m\n' "one after the other, they take $serial s."
