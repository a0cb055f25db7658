# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
#
# frameworks.sh: the cases of run.sh with Python: PyTorch, JAX, CuPy, Triton, managed memory. Sourced by run.sh after lib.sh.

# framework MODULE JOB: unpatched, patched alone, patched with its memory moved out in the middle; all bit-equal.
framework() {
    local module=$1 job=$2 want
    make_pythons || return
    "$python_plain" -c "import $module" 2>/dev/null || { skip "no $module here"; return; }
    run_job "$job-plain" "$python_plain" "tests/gpu/job_$job.py" || return
    want=$(result_of "$job-plain")
    [ -n "$want" ] || { fail "job_$job.py printed no result"; return; }
    run_job "$job-alone" "$python_patched" "tests/gpu/job_$job.py" || return
    [ "$(result_of "$job-alone")" = "$want" ] ||
        { fail "patched alone: '$(result_of "$job-alone")', unpatched '$want'"; return; }
    [ "$(stat_of "$job-alone" gated_calls)" -gt 0 ] || { fail "patched, but no call went through the gate"; return; }
    moved_in_the_middle "$job" "$want"
}

# The job stops in the middle (it polls for a file), a hog takes the card from it, and it goes on.
moved_in_the_middle() { # JOB WANT
    local job=$1 want=$2 name=$1-moved
    shift 2 # what is left: words for env
    patched hog.nv hog || return
    rm -f "$work/ready" "$work/go"
    start_job "$name" env GPUSHARE_DEVICE_LIMIT="$limit" "$@" "$python_patched" "tests/gpu/job_$job.py" \
        --ballast-gib "$ballast" --ready "$work/ready" --go "$work/go"
    wait_until 90 test -e "$work/ready" || { fail "$job did not come to its middle: $(tail -1 "$work/$name.out")"; return; }
    start_job "$name-hog" env GPUSHARE_DEVICE_LIMIT="$limit" "$work/hog" --share 0.7 --rounds 40 --cpu-ms 200
    wait_until 60 grep -q 'round 2' "$work/$name-hog.out" ||
        { fail "the hog beside $job does not run: $(tail -1 "$work/$name-hog.out")"; return; }
    touch "$work/go"
    end_job "$name" || return
    kill "${job_pid[$name-hog]}" 2>/dev/null
    wait "${job_wait[$name-hog]}" 2>/dev/null
    unset "job_pid[$name-hog]"
    [ "$(result_of "$name")" = "$want" ] || { fail "after moving: '$(result_of "$name")', unpatched '$want'"; return; }
    if [ "$(stat_of "$name" moved_out)" = 0 ] || [ "$(stat_of "$name" moved_in)" = 0 ]; then
        fail "same result, but nothing was moved"
        return
    fi
    pass "bit-equal unpatched, patched, and with $(gib "$(stat_of "$name" moved_out)") GiB moved out and" \
        "$(gib "$(stat_of "$name" moved_in)") GiB in; $want"
}

case_pytorch_train_and_graph() { framework torch torch; }

case_pytorch_expandable_segments() { # PyTorch's own virtual memory: its cuMemCreate and cuMemMap are moved too
    local segments=PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    make_pythons || return
    "$python_plain" -c "import torch" 2>/dev/null || { skip "no torch here"; return; }
    run_job torch-segments env $segments "$python_plain" tests/gpu/job_torch.py || return
    moved_in_the_middle torch "$(result_of torch-segments)" $segments
}

case_jax_jit() { framework jax jax; }
case_cupy() { framework cupy cupy; }
case_triton() { framework triton triton; }

case_managed_moved() { # managed memory, sent to the host by an eviction and back by the next turn: half a GiB, never near the limit
    local want
    make_pythons || return
    run_job managed-plain "$python_plain" tests/gpu/job_managed.py || return
    want=$(result_of managed-plain)
    rm -f "$work/ready" "$work/go"
    start_job managed-moved "$python_patched" tests/gpu/job_managed.py --ready "$work/ready" --go "$work/go"
    wait_until 90 test -e "$work/ready" || { fail "it did not come to its middle: $(tail -1 "$work/managed-moved.out")"; return; }
    ctl_tool evict "${job_pid[managed-moved]}" >"$work/evict.out" 2>&1 || { fail "evict: $(tail -1 "$work/evict.out")"; return; }
    sleep 2
    touch "$work/go"
    end_job managed-moved || return
    [ "$(result_of managed-moved)" = "$want" ] || { fail "after moving: '$(result_of managed-moved)', unpatched '$want'"; return; }
    [ "$(stat_of managed-moved moved_out)" -ge $((512 << 20)) ] || { fail "same result, but not all of it was moved"; return; }
    pass "bit-equal with $(gib "$(stat_of managed-moved moved_out)") GiB prefetched to the host; $want"
}

case_pytorch_counts() {
    [ -s "$work/torch-alone.stats" ] || { skip "PyTorch did not run"; return; }
    local objects
    objects=$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["objects"]))' "$work/torch-alone.stats")
    [ "$objects" -gt 1 ] || { fail "only $objects object was routed"; return; }
    pass "$objects objects asked for driver functions, $(stat_of torch-alone names) names routed," \
        "$(stat_of torch-alone substituted) look-ups answered with ours, $(stat_of torch-alone gated_calls) gated calls"
}

case_pytorch_ipc() { # torch.multiprocessing with CUDA tensors, by spawn and forkserver
    local method want
    make_pythons || return
    "$python_plain" -c "import torch" 2>/dev/null || { skip "no torch here"; return; }
    for method in spawn forkserver; do
        run_job "torch-ipc-plain" "$python_plain" tests/gpu/job_torch_ipc.py "$method" || return
        want=$(result_of torch-ipc-plain)
        run_job "torch-ipc-mine" "$python_patched" tests/gpu/job_torch_ipc.py "$method" || return
        [ "$(result_of torch-ipc-mine)" = "$want" ] || { fail "$method: patched '$(result_of torch-ipc-mine)', unpatched '$want'"; return; }
    done
    pass "$want"
}
