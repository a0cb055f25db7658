#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The tests that need a real card: tests/gpu/run.sh [-k WORD]... [--door] [--list]. One line a case, "PASS|FAIL|SKIP name detail"; exit
# 1 if any failed. Writes $OUT/gpu-tests.json (OUT: default docs/results). Needs nvcc and python3; PyTorch, JAX, CuPy and
# Triton are each skipped where they are missing. Takes the programs from $GS_BUILD, build/gpu (made by
# tests/gpu/bundle.sh on the machine that built them) or build/dev. Managed memory is used at 512 MiB only.
#
#   GS_GPU_LIMIT   what the card is made to hold (default 16GiB): programs beyond it are moved out and in
#   GS_TURMOIL_SEEDS  how many seeds of random threads and streams a case runs (default 100; 10 on the simulated card)
#   -k WORD        only the cases whose names contain WORD
#   --door         nothing is patched: the same programs run in a mount namespace with the fourth door over the driver's library
#   GS_KEEP=1      keeps the work folder
#   GS_GPU_SELFCHECK=1   the scripts themselves, on the simulated card (tests/gpu/test_selfcheck.sh)
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/gpu/lib.sh
. tests/gpu/frameworks.sh

only=() list=''
while [ $# != 0 ]; do
    case $1 in
    -k) only+=("${2:?-k wants a word}"); shift ;;
    --list) list=1 ;;
    --door) door=1 ;;
    *) echo "usage: tests/gpu/run.sh [-k WORD]... [--door] [--list]" >&2; exit 2 ;;
    esac
    shift
done

# ---- the cases; each is a function that ends with pass, fail or skip

case_routing_static_cudart() { # all look-ups of NVIDIA's static cudart go through us
    local lookups substituted
    patched vectoradd.nv vectoradd || return
    run_job routing "$work/vectoradd" --rounds 2 || return
    lookups=$(stat_of routing lookups)
    substituted=$(stat_of routing substituted)
    [ "$lookups" -ge 440 ] || { fail "$lookups look-ups seen, 440 expected"; return; }
    [ "$substituted" -gt 100 ] || { fail "of $lookups look-ups only $substituted were answered with our own"; return; }
    pass "440 of 440 look-ups answered by us ($lookups seen, $substituted with functions of ours)"
}

same_when_patched() { # PROGRAM WORDS...: same result unpatched and patched
    local program=$1 plain result
    shift
    patched "$program" "${program%.nv}" || return
    run_job plain "$(sample "$program")" "$@" || return
    plain=$(result_of plain)
    run_job mine "$work/${program%.nv}" "$@" || return
    result=$(result_of mine)
    [ "$plain" = "$result" ] || { fail "unpatched '$plain', patched '$result'"; return; }
    [ "$(stat_of mine gated_calls)" -gt 0 ] || { fail "no call went through the gate"; return; }
    pass "$result, $(stat_of mine gated_calls) calls through the gate"
}

case_same_vectoradd() { same_when_patched vectoradd.nv --rounds 20; }
case_same_graph() { same_when_patched graph.nv --rounds 20; }
case_same_alloc_churn() { same_when_patched alloc_churn.nv --rounds 200; }
case_same_hog() { same_when_patched hog.nv --share 0.05 --rounds 3; }
case_same_driver_api() { same_when_patched driver_api --rounds 3; }
case_same_dlopen_driver() { same_when_patched dlopen_driver --rounds 3; }
case_same_vmm() { same_when_patched vmm --rounds 5; }
case_same_vmm_exported() { same_when_patched vmm --rounds 5 --exportable; }

case_two_vmm_beyond_limit() { # the program's own virtual memory is moved as well
    local moved rounds bytes=$(($(size_of "$limit") * 7 / 10))
    patched vmm vmm || return
    for rounds in 15 60 240; do # on a busy machine the first may be over before the second begins
        start_job one env GPUSHARE_DEVICE_LIMIT="$limit" "$work/vmm" --bytes "$bytes" --rounds "$rounds" --cpu-ms 500 --seed 1
        start_job two env GPUSHARE_DEVICE_LIMIT="$limit" "$work/vmm" --bytes "$bytes" --rounds "$rounds" --cpu-ms 500 --seed 2
        end_job one && end_job two || return
        moved=$(($(stat_of one moved_out) + $(stat_of two moved_out)))
        [ $moved = 0 ] || break
    done
    [ $moved -gt 0 ] || { fail "both were right, but nothing was moved: were they not beyond the limit?"; return; }
    pass "both right; $(gib $moved) GiB moved out"
}

case_driver_facts() { # the driver's answers in corner cases, without and with us in front
    local lines
    [ -x "$bundle/tests/gpu/driver_facts" ] || { skip "driver_facts was not built"; return; }
    cp "$bundle/tests/gpu/driver_facts" "$work/driver_facts"
    patch_tool "$work/driver_facts" >"$work/patch.out" 2>&1 || { fail "gpushare-patch: $(tail -1 "$work/patch.out")"; return; }
    "$bundle/tests/gpu/driver_facts" >"$work/facts.plain" 2>&1 || { fail "unpatched: $(tail -1 "$work/facts.plain")"; return; }
    mine "$work/driver_facts" >"$work/facts.mine" 2>&1 || { fail "patched: $(tail -1 "$work/facts.mine")"; return; }
    if ! diff <(grep -v '^~' "$work/facts.plain") <(grep -v '^~' "$work/facts.mine") >"$work/facts.diff"; then
        sed 's/^/    /' "$work/facts.diff"
        fail "$(grep -c '^[<>]' "$work/facts.diff") lines differ between unpatched and patched"
        return
    fi
    lines=$(grep -vc '^~' "$work/facts.mine")
    [ "$lines" -gt 150 ] || { fail "only $lines answers"; return; }
    pass "$lines answers are the same"
}

ipc_program() { # patches $work/ipc
    [ -x "$bundle/tests/gpu/ipc" ] || { skip "ipc was not built"; return 1; }
    rm -f "$work/ipc"
    cp "$bundle/tests/gpu/ipc" "$work/ipc"
    patch_tool "$work/ipc" >"$work/patch.out" 2>&1 || { fail "gpushare-patch: $(tail -1 "$work/patch.out")"; return 1; }
}

case_ipc_facts() { # memory that processes share by handles: the driver's answers, without and with us in front
    ipc_program || return
    python3 tests/gpu/ipc_told.py facts "$bundle/tests/gpu/ipc" >"$work/ipc.plain" 2>&1 || { fail "unpatched: $(tail -1 "$work/ipc.plain")"; return; }
    python3 tests/gpu/ipc_told.py facts "$work/ipc" >"$work/ipc.mine" 2>&1 || { fail "patched: $(tail -1 "$work/ipc.mine")"; return; }
    if ! diff "$work/ipc.plain" "$work/ipc.mine" >"$work/ipc.diff"; then
        sed 's/^/    /' "$work/ipc.diff"
        fail "$(grep -c '^[<>]' "$work/ipc.diff") lines differ between unpatched and patched"
        return
    fi
    pass "$(wc -l <"$work/ipc.mine") answers are the same"
}

ipc_pair() { # fork|spawn: 3 GiB from a parent to a child, which changes them
    local mib=3072
    ipc_program || return
    [ "${GS_GPU_SELFCHECK:-}" != 1 ] || mib=96
    run_job ipc-plain "$bundle/tests/gpu/ipc" pair "$1" $((mib << 20)) || return
    run_job ipc-mine "$work/ipc" pair "$1" $((mib << 20)) || return
    pass "$mib MiB there and back, unpatched $(seconds_of ipc-plain) s, patched $(seconds_of ipc-mine) s"
}

case_ipc_fork() { ipc_pair fork; }
case_ipc_spawn() { ipc_pair spawn; }

case_ipc_ranks() { # a buffer for each of four ranks, which all open, as a custom all-reduce does
    ipc_program || return
    python3 tests/gpu/ipc_told.py ranks "$work/ipc" >"$work/ranks.out" 2>&1 || { fail "$(tail -1 "$work/ranks.out")"; return; }
    pass "every byte of 4 buffers in 4 processes"
}

case_bad_input() { # the driver's answers to bad input, without and with us in front
    local status=0
    [ -x "$bundle/tests/gpu/bad_input" ] || { skip "bad_input was not built"; return; }
    cp "$bundle/tests/gpu/bad_input" "$work/bad_input"
    patch_tool "$work/bad_input" >"$work/patch.out" 2>&1 || { fail "gpushare-patch: $(tail -1 "$work/patch.out")"; return; }
    mine python3 tests/gpu/test_bad_input.py "$work/bad_input" >"$work/bad.out" 2>&1 || status=$?
    [ $status = 0 ] || { sed 's/^/    /' "$work/bad.out"; fail "$(grep 'answers are the same' "$work/bad.out")"; return; }
    pass "$(grep 'answers are the same' "$work/bad.out")"
}

case_reads_beside() { # kernels that read a row beside their arrays do so when patched, wherever they do unpatched
    local faults
    [ -x "$bundle/tests/gpu/beside" ] || { skip "beside was not built"; return; }
    cp "$bundle/tests/gpu/beside" "$work/beside"
    patch_tool "$work/beside" >"$work/patch.out" 2>&1 || { fail "gpushare-patch: $(tail -1 "$work/patch.out")"; return; }
    run_job beside-plain "$bundle/tests/gpu/beside" read || return
    run_job beside-mine "$work/beside" read || return
    run_job beside-written "$work/beside" write || return
    [ "$(grep -c ': 0$' "$work/beside-mine.out")" = 8 ] || { fail "patched: $(tr '\n' ' ' <"$work/beside-mine.out")"; return; }
    faults=$(grep -v ': 0$' "$work/beside-plain.out" | tr '\n' ' ')
    pass "all 8 reads; unpatched without ${faults:-any fault}; written, patched: $(grep -vc ': 0$' "$work/beside-written.out") of 8 fault"
}

case_reads_beside_moved() { # and after the array was moved out and in
    patched hog.nv hog || return
    [ -x "$bundle/tests/gpu/beside" ] || { skip "beside was not built"; return; }
    cp "$bundle/tests/gpu/beside" "$work/beside-stays"
    patch_tool "$work/beside-stays" >"$work/patch.out" 2>&1 || { fail "gpushare-patch: $(tail -1 "$work/patch.out")"; return; }
    rm -f "$work/ready" "$work/go"
    start_job beside env GPUSHARE_DEVICE_LIMIT="$limit" "$work/beside-stays" stay "$(($(size_of "$limit") / 2 >> 20))" "$work/ready" "$work/go"
    wait_until 60 test -e "$work/ready" || { fail "it did not come to its middle: $(tail -1 "$work/beside.out")"; return; }
    start_job beside-hog env GPUSHARE_DEVICE_LIMIT="$limit" "$work/hog" --share 0.7 --rounds 40 --cpu-ms 200
    wait_until 60 grep -q 'round 2' "$work/beside-hog.out" || { fail "the hog beside does not run: $(tail -1 "$work/beside-hog.out")"; return; }
    touch "$work/go"
    end_job beside || return
    kill "${job_pid[beside-hog]}" 2>/dev/null
    wait "${job_wait[beside-hog]}" 2>/dev/null
    unset "job_pid[beside-hog]"
    if [ "$(stat_of beside moved_out)" = 0 ] || [ "$(stat_of beside moved_in)" = 0 ]; then
        fail "all reads, but nothing was moved"
        return
    fi
    pass "all 8 reads before and after, $(gib "$(stat_of beside moved_out)") GiB moved out and $(gib "$(stat_of beside moved_in)") GiB in"
}

two_hogs() { # PROGRAM: two beyond the limit; both right
    local program=$1 want moved rounds
    for rounds in 4 16 64; do # on a busy machine the first may be over before the second begins
        run_job solo env GPUSHARE_DEVICE_LIMIT="$limit" "$program" --share 0.7 --rounds "$rounds" --cpu-ms 300 || return
        want=$(result_of solo)
        start_job one env GPUSHARE_DEVICE_LIMIT="$limit" "$program" --share 0.7 --rounds "$rounds" --cpu-ms 300
        start_job two env GPUSHARE_DEVICE_LIMIT="$limit" "$program" --share 0.7 --rounds "$rounds" --cpu-ms 300
        end_job one && end_job two || return
        [ "$(result_of one)" = "$want" ] || { fail "first: '$(result_of one)', alone '$want'"; return; }
        [ "$(result_of two)" = "$want" ] || { fail "second: '$(result_of two)', alone '$want'"; return; }
        moved=$(($(stat_of one moved_out) + $(stat_of two moved_out)))
        [ $moved = 0 ] || break
    done
    [ $moved -gt 0 ] || { fail "both were right, but nothing was moved: were they not beyond the limit?"; return; }
    pass "both right; $(gib $moved) GiB moved out, switches $(stat_of one switches)+$(stat_of two switches)," \
        "alone $(seconds_of solo) s, together $(seconds_of one)/$(seconds_of two) s"
}

case_two_patched_beyond_limit() { patched hog.nv hog && two_hogs "$work/hog"; }

handed_over() { # OPTION...: two hogs with a daemon of their own; sets $taken, bytes that went from one to the other unreleased
    local daemon
    patched hog.nv hog || return
    "$bundle/lockd/gpushare-lockd" --socket "$work/hand.sock" "$@" >"$work/hand.log" 2>&1 &
    daemon=$!
    if wait_until 10 test -S "$work/hand.sock"; then
        GPUSHARE_SOCKET=$work/hand.sock two_hogs "$work/hog"
    else
        fail "gpushare-lockd: $(tail -1 "$work/hand.log")"
    fi
    kill $daemon
    wait $daemon
    rm -f "$work/hand.sock"
    [ "$outcome" = PASS ] || return
    taken=$(($(stat_of one taken_over) + $(stat_of two taken_over)))
}

case_two_handed_over() { # by default memory goes from one to the other without being released
    local taken=0
    handed_over
    [ "$outcome" = PASS ] || return
    [ $taken -gt 0 ] || { fail "both were right, but no memory was handed over"; return; }
    pass "$(gib $taken) GiB handed over; $detail"
}

case_two_not_handed_over() { # with hand-over = no what leaves is released
    local taken=0
    handed_over --hand-over no
    [ "$outcome" = PASS ] || return
    [ $taken = 0 ] || fail "both were right, but $taken bytes were handed over"
}

case_two_linked_beyond_limit() {
    [ -z "$door" ] || { skip "nothing is linked"; return; }
    command -v "${GPUSHARE_NVCC:-nvcc}" >/dev/null || { skip "no nvcc"; return; }
    # shellcheck disable=SC2086 # several words
    if ! "$bundle/wrap/gpushare-nvcc" -O2 -std=c++17 -arch="${GS_GPU_ARCH:-native}" -cudart static \
        ${GS_GPU_LINK:-} samples/hog.cu -o "$work/hog-linked" >"$work/link.out" 2>&1; then
        fail "gpushare-nvcc: $(tail -1 "$work/link.out")"
        return
    fi
    two_hogs "$work/hog-linked"
}

case_unpatched_second_dies() { # what it is all for: without gpushare the second program gets no memory
    start_job first "$(sample hog.nv)" --share 0.7 --rounds 4 --cpu-ms 1500
    wait_until 60 grep -q 'round 1' "$work/first.out" || { fail "first: $(tail -1 "$work/first.out")"; return; }
    timeout "$job_limit" "$(sample hog.nv)" --share 0.7 --rounds 1 >"$work/second.out" 2>&1
    local status=$?
    end_job first || return
    [ $status = 2 ] || { fail "the second ended with $status, not 2 (out of memory)"; return; }
    pass "$(tail -1 "$work/second.out")"
}

turmoil_program() { # patches $work/turmoil
    [ -x "$bundle/tests/gpu/turmoil" ] || { skip "turmoil was not built"; return 1; }
    [ ! -e "$work/turmoil" ] || return 0
    cp "$bundle/tests/gpu/turmoil" "$work/turmoil.new"
    patch_tool "$work/turmoil.new" >"$work/patch.out" 2>&1 || { fail "gpushare-patch: $(tail -1 "$work/patch.out")"; return 1; }
    mv "$work/turmoil.new" "$work/turmoil"
}

# Random threads and streams, whose kernels check what they read. The number of seeds is fixed, and so is not what happens meanwhile.
case_turmoil_alone() { # the program is right by itself, and patched
    turmoil_program || return
    run_job turmoil-plain "$bundle/tests/gpu/turmoil" --seeds "$turmoil_seeds" --first 1 --memory 256 || return
    run_job turmoil-mine "$work/turmoil" --seeds "$turmoil_seeds" --first 1 --memory 256 || return
    pass "$turmoil_seeds seeds, unpatched $(seconds_of turmoil-plain) s, patched $(seconds_of turmoil-mine) s"
}

case_turmoil_evicted() { # all its memory is moved out again and again
    local evictions=0
    turmoil_program || return
    start_job turmoil-evicted "$work/turmoil" --seeds "$turmoil_seeds" --first 1001 --memory 256
    while kill -0 "${job_wait[turmoil-evicted]}" 2>/dev/null; do
        ctl_tool evict all >"$work/evict.out" 2>&1 && evictions=$((evictions + 1))
        sleep 0.2
    done
    end_job turmoil-evicted || return
    [ "$(stat_of turmoil-evicted moved_in)" != 0 ] || { fail "right, but nothing was moved"; return; }
    pass "$turmoil_seeds seeds, $evictions evictions, $(gib "$(stat_of turmoil-evicted moved_in)") GiB moved in"
}

case_turmoil_shared() { # two whose memory does not fit at once
    local name first=2001
    turmoil_program || return
    for name in one two; do
        start_job "turmoil-$name" env GPUSHARE_DEVICE_LIMIT=320MiB "$work/turmoil" --seeds "$turmoil_seeds" --first "$first" \
            --memory 200
        first=3001
    done
    end_job turmoil-one && end_job turmoil-two || return
    pass "$turmoil_seeds seeds each, $(gib "$(stat_of turmoil-one moved_in)") and $(gib "$(stat_of turmoil-two moved_in)") GiB moved in," \
        "$(gib "$(($(stat_of turmoil-one taken_over) + $(stat_of turmoil-two taken_over)))") GiB handed over"
}

case_killed_holder_frees_the_other() {
    local before
    patched hog.nv hog || return
    start_job victim env GPUSHARE_DEVICE_LIMIT="$limit" "$work/hog" --share 0.7 --rounds 500 --cpu-ms 50
    start_job other env GPUSHARE_DEVICE_LIMIT="$limit" "$work/hog" --share 0.7 --rounds 6 --cpu-ms 50
    wait_until 60 grep -q 'round 1' "$work/victim.out" || { fail "victim: $(tail -1 "$work/victim.out")"; return; }
    before=$(grep -c round "$work/other.out")
    # in a group with its errors away: the shell would tell of the kill
    { kill -9 "${job_pid[victim]}" && wait "${job_wait[victim]}"; } 2>/dev/null
    unset 'job_pid[victim]'
    end_job other || return
    pass "the other had done $before rounds and finished: $(result_of other)"
}

# A kernel of $work/endless that does not end, and a hog that waits for the card. Sets $bytes.
endless_and_waiting() { # exit|host
    [ -x "$bundle/tests/gpu/endless" ] || { skip "endless was not built"; return 1; }
    patched hog.nv hog || return 1
    rm -f "$work/go"
    cp "$bundle/tests/gpu/endless" "$work/endless"
    patch_tool "$work/endless" >"$work/patch.out" 2>&1 || { fail "gpushare-patch: $(tail -1 "$work/patch.out")"; return 1; }
    start_job endless env GPUSHARE_DEVICE_LIMIT="$limit" "$work/endless" "$1" "$bytes" "$work/go"
    wait_until 60 grep -q spinning "$work/endless.out" || { fail "patched: $(tail -1 "$work/endless.out")"; return 1; }
    start_job waiting env GPUSHARE_DEVICE_LIMIT="$limit" "$work/hog" --share 0.7 --rounds 2
    wait_until 60 is_asked_to_stop "${job_pid[endless]}" || { fail "nobody asked it to stop"; return 1; }
}

is_asked_to_stop() { # PID
    ctl_tool status --json | python3 -c '
import json, sys
sys.exit(not any(program["pid"] == int(sys.argv[1]) and program["state"] in ("stopping", "stuck")
                 for device in json.load(sys.stdin)["devices"] for program in device["programs"]))' "$1"
}

seconds_to_end() { # NAME: from now until it has ended, which must be with 0; sets $took
    local start
    start=$(date +%s.%N)
    end_job "$1" || return 1
    took=$(awk -v a="$(date +%s.%N)" -v b="$start" 'BEGIN { printf "%.2f", a - b }')
}

case_exit_with_endless_kernel() { # ... while another program waits: as fast as without gpushare, not as the kernel's two minutes
    local bytes took plain
    bytes=$(($(size_of "$limit") * 7 / 10))
    [ -x "$bundle/tests/gpu/endless" ] || { skip "endless was not built"; return; }
    rm -f "$work/go"
    start_job plain "$bundle/tests/gpu/endless" exit "$bytes" "$work/go"
    wait_until 60 grep -q spinning "$work/plain.out" || { fail "unpatched: $(tail -1 "$work/plain.out")"; return; }
    touch "$work/go"
    seconds_to_end plain || return
    plain=$took
    endless_and_waiting exit || return
    touch "$work/go"
    seconds_to_end endless || return
    end_job waiting || return
    awk -v a="$took" -v b="$plain" 'BEGIN { exit !(a < b + 5) }' || { fail "exit took $took s, unpatched $plain s"; return; }
    pass "exit took $took s, unpatched $plain s; the other one: $(result_of waiting)"
}

case_kernel_waits_for_host() { # it ends only after the next call, which waits at the gate for its end: 2 s, it was 10
    local bytes took call
    bytes=$(($(size_of "$limit") * 7 / 10))
    endless_and_waiting host || return
    touch "$work/go"
    seconds_to_end endless || return
    end_job waiting || return
    call=$(sed -n 's/^call //p' "$work/endless.out")
    grep -qx ok "$work/endless.out" || { fail "its bytes were not looked at"; return; }
    awk -v a="${call:-99}" 'BEGIN { exit !(a < 8) }' || { fail "the call came through after $call s, 2 s expected"; return; }
    pass "the call came through after $call s, the other one: $(result_of waiting)"
}

case_restore_same_bytes() {
    [ -z "$door" ] || { skip "nothing is patched"; return; }
    local file count=0 python words
    python=$(python3 -c 'import os, sys; print(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))')
    for file in "$bundle"/samples/* "$python"; do
        if [ ! -f "$file" ] || [ ! -x "$file" ] || [[ $file == *.so ]]; then
            continue
        fi
        cp "$file" "$work/file"
        words=()
        [ "$file" != "$python" ] || words=(--any)
        if ! patch_tool "${words[@]}" "$work/file" >"$work/patch.out" 2>&1; then
            fail "$file: $(tail -1 "$work/patch.out")"
            return
        fi
        cmp -s "$file" "$work/file" && { fail "$file: patching changed nothing"; return; }
        patch_tool --restore "$work/file" >"$work/patch.out" 2>&1 ||
            { fail "$file: --restore: $(tail -1 "$work/patch.out")"; return; }
        cmp "$file" "$work/file" >"$work/cmp.out" 2>&1 || { fail "$file: $(cat "$work/cmp.out")"; return; }
        count=$((count + 1))
    done
    pass "$count files, python3 among them"
}

case_gate_latency() {
    [ -x "$bundle/bench/gate_bench" ] || { skip "no gate_bench in $bundle"; return; }
    timeout "$job_limit" env GPUSHARE_SOCKET="$work/none.sock" GPUSHARE_LOCKD=/nonexistent GPUSHARE_QUIET=1 \
        "$bundle/bench/gate_bench" --calls 200000 >"$work/bench.out" 2>&1
    local status=$?
    sed 's/^/    /' "$work/bench.out"
    [ $status != 77 ] || { skip "$(tail -1 "$work/bench.out")"; return; }
    [ $status = 0 ] || { fail "gate_bench ended with $status: $(tail -1 "$work/bench.out")"; return; }
    pass "$(tail -1 "$work/bench.out")"
}

case_status_while_running() {
    patched hog.nv hog || return
    start_job shown env GPUSHARE_DEVICE_LIMIT="$limit" "$work/hog" --share 0.3 --rounds 20 --cpu-ms 200
    wait_until 60 grep -q 'round 1' "$work/shown.out" || { fail "$(tail -1 "$work/shown.out")"; return; }
    ctl_tool status >"$work/status.out" 2>&1
    local status=$?
    kill "${job_pid[shown]}" 2>/dev/null
    wait "${job_wait[shown]}" 2>/dev/null
    [ $status = 0 ] || { fail "gpusharectl status ended with $status: $(head -1 "$work/status.out")"; return; }
    grep -qw "${job_pid[shown]}" "$work/status.out" || { fail "the program's pid is not in gpusharectl status"; return; }
    unset 'job_pid[shown]'
    sed 's/^/    /' "$work/status.out"
    pass "the program is in it"
}

cases=(routing_static_cudart same_vectoradd same_graph same_alloc_churn same_hog same_driver_api same_dlopen_driver
    same_vmm same_vmm_exported driver_facts ipc_facts ipc_fork ipc_spawn ipc_ranks bad_input reads_beside reads_beside_moved restore_same_bytes gate_latency status_while_running two_patched_beyond_limit two_handed_over two_not_handed_over two_linked_beyond_limit two_vmm_beyond_limit
    turmoil_alone turmoil_evicted turmoil_shared killed_holder_frees_the_other exit_with_endless_kernel kernel_waits_for_host unpatched_second_dies pytorch_train_and_graph pytorch_counts
    pytorch_expandable_segments pytorch_ipc jax_jit cupy triton managed_moved)

[ -z "$list" ] || { printf '%s\n' "${cases[@]}"; exit 0; }
gpu_setup || exit 1
[ ${#only[@]} != 0 ] || only=('')
for name in "${cases[@]}"; do
    for word in "${only[@]}"; do
        if [[ $name == *"$word"* ]]; then
            run_case "$name"
            break
        fi
    done
done
gpu_report
