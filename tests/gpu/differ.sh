#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The differential tester on a card: tests/gpu/differ.sh [SECONDS=120] [FIRST_SEED=1]. Random sequences of driver calls, native and patched, in five
# ways: plain, with calls of the CUDA runtime, with threads, with faults, and while everything is moved out every 20 ms; each gets its part of the time. Then what Python libraries
# ask (library_answers.py). Prints a table of the kinds of differences a way. Exit status: 1 if any is not in differences.txt.
#
#   GS_DIFFER_JOBS   sequences at a time (default 8; more take turns on the card)
#   GS_DIFFER_OPERATIONS   of a sequence (default 1500, since a context costs as much as 500 of them; with faults, a fifteenth)
#   GS_CUDART        the CUDA runtime (default: the toolkit's, or that of Python's packages)
#   GS_DIFFER_ALARM   seconds after which an operation hangs (default 20)
#   GS_DIFFER_LIBRARIES   no: without the libraries
#   GS_DIFFER_MORE   options of test_differ.py for all ways, such as "--progress --no-shorten"
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
seconds=${1:-120} first=${2:-1}
. tests/gpu/lib.sh
gpu_setup || exit 1
out=${OUT:-$work}
failed=0
cp "$bundle/tests/gpu/differ" "$work/differ" && patch_tool -q --runtime "$bundle/runtime/libgpushare.so.1" "$work/differ" || exit 1
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "${LD_LIBRARY_PATH:-}" "$bundle/lockd/gpusharectl" >"$work/ctl"
chmod +x "$work/ctl"
export GPUSHARE_CTL=$work/ctl
"$bundle/lockd/gpushare-lockd" --foreground --socket "$GPUSHARE_SOCKET" >"$out/lockd.log" 2>&1 &
job_pid[lockd]=$!
disown

find_runtime() {
    local file
    for file in "${GS_CUDART:-}" /usr/local/cuda/lib64/libcudart.so.1? \
        "$(python3 -c 'import nvidia; print(nvidia.__path__[0])' 2>/dev/null)"/*/lib/libcudart.so.1?; do
        [ -f "$file" ] || continue
        echo "$file"
        return
    done
}

way() { # NAME PARTS FIRST OPTIONS...: so many eighths of the time
    local name=$1 parts=$2 begin=$3
    shift 3
    echo "== $name"
    # shellcheck disable=SC2086
    python3 tests/gpu/test_differ.py "$work/differ" --plain "$bundle/tests/gpu/differ" --first "$begin" --seeds 1000000 --operations "${GS_DIFFER_OPERATIONS:-1500}" \
        --jobs "${GS_DIFFER_JOBS:-8}" --limit $((parts * seconds / 8)) --alarm "${GS_DIFFER_ALARM:-20}" --json "$out/differ-$name.json" ${GS_DIFFER_MORE:-} "$@" ||
        failed=1
}
way plain 1 "$first"
runtime=$(find_runtime)
if [ -n "$runtime" ]; then
    way runtime 1 $((first + 4000000)) --runtime "$runtime"
else
    echo "== runtime: skipped, there is no libcudart.so here (GS_CUDART names one)"
fi
way threads 1 $((first + 1000000)) --threads 3
way faults 3 $((first + 2000000)) --faults --operations $((${GS_DIFFER_OPERATIONS:-1500} / 15))
way evictions 2 $((first + 3000000)) --evict 20

[ "${GS_DIFFER_LIBRARIES:-yes}" = yes ] || exit $failed
echo "== libraries"
if make_pythons; then
    timeout 60 "$python_plain" tests/gpu/library_answers.py >"$out/library-plain.txt" 2>&1 &
    timeout 60 "$python_patched" tests/gpu/library_answers.py >"$out/library-patched.txt" 2>&1 || failed=1
    wait $! || failed=1
    if diff "$out/library-plain.txt" "$out/library-patched.txt"; then
        echo "$(wc -l <"$out/library-plain.txt") answers are the same"
    else
        failed=1
    fi
    grep missing "$out/library-plain.txt"
else
    echo "$detail"
fi
exit $failed
