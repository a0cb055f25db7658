# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
#
# lib.sh: what the cases of run.sh are written with: jobs (programs that run in the background, with output, statistics and
# a time limit), patched copies, results. Sourced by run.sh in the repository's root.

limit=${GS_GPU_LIMIT:-16GiB}
door=''              # not empty: nothing is patched, and the copies in $work run through the fourth door
ballast=8            # GiB that a framework's job holds, so that it does not fit beside a hog within the limit
turmoil_seeds=${GS_TURMOIL_SEEDS:-100}
job_limit=${GS_JOB_LIMIT:-100} # seconds for one job
declare -A job_pid=() job_wait=() job_start=() job_seconds=()
passed=0 failed=0 skipped=0
outcome='' detail=''

pass() { outcome=PASS detail=$*; }
fail() { outcome=FAIL detail=$*; }
skip() { outcome=SKIP detail=$*; }

gpu_setup() {
    bundle=${GS_BUILD:-build/gpu}
    [ -n "${GS_BUILD:-}" ] || [ -d "$bundle" ] || bundle=build/dev
    [ -x "$bundle/rewriter/gpushare-patch" ] ||
        { echo "run.sh: no gpushare-patch in $bundle; build here (./test.sh) or carry build/gpu (tests/gpu/bundle.sh)" >&2; return 1; }
    bundle=$(realpath "$bundle")
    # what the daemon needs, which programs start by themselves
    [ ! -d "$bundle/lib" ] || export LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    if [ -z "${GS_GPU_SELFCHECK:-}" ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU 0'; then
        echo "run.sh: nvidia-smi shows no card; these tests need one" >&2
        return 1
    fi
    work=$(mktemp -d /tmp/gpushare-gpu-XXXXXX)
    results=$work/results.tsv
    : >"$results"
    export GPUSHARE_SOCKET=$work/lockd.sock GPUSHARE_LOCKD=$bundle/lockd/gpushare-lockd
    export PYTHONDONTWRITEBYTECODE=1
    trap gpu_finish EXIT
    trap 'exit 130' INT TERM
    card=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader -i 0 2>/dev/null)
    echo "card: ${card:-none}; programs of $bundle; limit $limit"
}

gpu_finish() {
    local name
    for name in "${!job_pid[@]}"; do
        kill -9 "${job_pid[$name]}" 2>/dev/null
    done
    wait 2>/dev/null
    if [ -n "${GS_KEEP:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
}

# Tools that need a library which a bare machine may lack get it from the bundle; the programs under test do not.
patch_tool() {
    [ -z "$door" ] || return 0
    LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$bundle/rewriter/gpushare-patch" "$@"
}
ctl_tool() { LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$bundle/lockd/gpusharectl" "$@"; }

mine() { # COMMAND...: it uses gpushare, as it stands or through the door
    if [ -n "$door" ]; then "$bundle/wrap/gpushare-door" -- "$@"; else "$@"; fi
}

# Whether the command is for gpushare: the copies in $work are, but for the python that stays as it is.
is_mine() { # COMMAND...
    local word
    for word; do
        [[ $word != "$work"/* || $word = "$work"/python-plain/* || ! -x $word ]] || return 0
    done
    return 1
}

sample() { # NAME.nv: its path; the one for the simulated card in a self-check
    if [ -n "${GS_GPU_SELFCHECK:-}" ]; then echo "$bundle/samples/${1%.nv}"; else echo "$bundle/samples/$1"; fi
}

patched() { # SAMPLE NAME: a patched copy $work/NAME; made once
    local file
    file=$(sample "$1")
    [ -x "$file" ] || { skip "$1 was not built"; return 1; }
    [ ! -e "$work/$2" ] || return 0
    cp "$file" "$work/$2.new"
    if ! patch_tool "$work/$2.new" >"$work/patch.out" 2>&1; then
        fail "gpushare-patch $1: $(tail -1 "$work/patch.out")"
        return 1
    fi
    mv "$work/$2.new" "$work/$2"
}

start_job() { # NAME COMMAND...
    local name=$1 through=()
    shift
    rm -f "$work/$name.stats"
    if [ -n "$door" ] && is_mine "$@"; then through=("$bundle/wrap/gpushare-door" --); fi
    job_start[$name]=$(date +%s.%N)
    GPUSHARE_STATS=$work/$name.stats timeout "$job_limit" "${through[@]}" "$@" >"$work/$name.out" 2>&1 &
    # timeout's child is the program, and timeout passes signals on; but kill -9 must reach the program itself
    local pid=$! child tries=100
    while [ $tries -gt 0 ] && kill -0 $pid 2>/dev/null; do
        child=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
        [ -z "$child" ] || break
        tries=$((tries - 1))
        sleep 0.02
    done
    job_wait[$name]=$pid
    job_pid[$name]=${child%% *}
    [ -n "${job_pid[$name]}" ] || job_pid[$name]=$pid
}

end_job() { # NAME: waits; fails the case unless it ended with 0
    local name=$1 status=0
    wait "${job_wait[$name]}" || status=$?
    unset "job_pid[$name]"
    job_seconds[$name]=$(awk -v a="$(date +%s.%N)" -v b="${job_start[$name]}" 'BEGIN { printf "%.1f", a - b }')
    [ $status = 0 ] && return 0
    fail "$name ended with $status: $(grep -v '^$' "$work/$name.out" | tail -1)"
    sed 's/^/    /' "$work/$name.out" | tail -15
    return 1
}

run_job() { # NAME COMMAND...
    start_job "$@"
    end_job "$1"
}

wait_until() { # SECONDS COMMAND...: so long, or as long as a job may take
    local tries=$((($1 > job_limit ? $1 : job_limit) * 10))
    shift
    until "$@" 2>/dev/null; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.1
    done
}

# The closing line of a program, without what differs from run to run.
result_of() { # NAME
    grep -E '^(ok|result) ' "$work/$1.out" | tail -1 | sed -E 's/ (seconds|gpu_seconds|longest|threads)=[^ ]*//g'
}

seconds_of() { echo "${job_seconds[$1]}"; }

stat_of() { # NAME KEY: a number of its GPUSHARE_STATS file, 0 if there is none
    python3 -c '
import json, sys
try:
    print(json.load(open(sys.argv[1])).get(sys.argv[2], 0))
except (OSError, ValueError):
    print(0)' "$work/$1.stats" "$2"
}

size_of() { numfmt --from=auto "${1%B}"; } # 16GiB: bytes

gib() { awk -v n="$1" 'BEGIN { printf "%.1f", n / 2^30 }'; }

# Two copies of this machine's python3 with the same packages: one as it is, one patched. Copied, never changed in place.
make_pythons() {
    [ -z "${python_patched:-}" ] || return 0
    python_plain=$work/python-plain/bin/python3
    python_patched=$work/python-patched/bin/python3
    if ! python3 tests/gpu/copy_python.py "$work/python-plain" "$work/python-patched" >"$work/python.out" 2>&1; then
        fail "copying python3: $(tail -1 "$work/python.out")"
        return 1
    fi
    # an interpreter that keeps libpython beside itself ($ORIGIN) is told where that is
    local folder
    folder=$(tail -1 "$work/python.out")
    [ -z "$folder" ] || export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    if ! patch_tool --any "$python_patched" >"$work/patch.out" 2>&1; then
        fail "gpushare-patch python3: $(tail -1 "$work/patch.out")"
        python_patched=''
        return 1
    fi
}

run_case() { # NAME
    local name=$1 begin
    begin=$(date +%s.%N)
    outcome=FAIL detail="the case ended without a verdict"
    "case_$name"
    local pid seconds
    for pid in "${!job_pid[@]}"; do # a failed case may leave its other half running
        kill -9 "${job_pid[$pid]}" 2>/dev/null
        wait "${job_wait[$pid]}" 2>/dev/null
        unset "job_pid[$pid]"
    done
    seconds=$(awk -v a="$(date +%s.%N)" -v b="$begin" 'BEGIN { printf "%.1f", a - b }')
    printf '%s %s %s\n' "$outcome" "$name" "$detail"
    printf '%s\t%s\t%s\t%s\n' "$outcome" "$name" "$seconds" "$detail" >>"$results"
    case $outcome in
    PASS) passed=$((passed + 1)) ;;
    SKIP) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
}

gpu_report() {
    local out=${OUT:-docs/results}
    mkdir -p "$out"
    python3 tests/gpu/report.py "$results" "$bundle/commit" "$limit" "$card" >"$out/gpu-tests${door:+-door}.json" &&
        echo "written: $out/gpu-tests${door:+-door}.json"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}
