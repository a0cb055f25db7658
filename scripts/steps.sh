# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# steps.sh: how .ci/run and .ci/release run their steps and count them. Sourced in the repository's root, after lib.sh.
# Owns passed, failed and skipped; $logs is the folder that keeps what each step said. GS_CI_SKIP="asan tidy" leaves
# steps out, GS_CI_ONLY="tidy" all others.

passed=0 failed=0 skipped=0
mkdir -p "${logs:?}"
rm -f "$logs"/*.log

is_left_out() { # NAME
    [[ " ${GS_CI_SKIP:-} " == *" $1 "* ]] || [[ -n "${GS_CI_ONLY:-}" && " $GS_CI_ONLY " != *" $1 "* ]]
}

# step NAME COMMAND...: one check that counts as one. Its output is shown and kept.
step() {
    local name=$1 since=$SECONDS
    shift
    if is_left_out "$name"; then
        echo "skipped: $name (GS_CI_SKIP, GS_CI_ONLY)"
        skipped=$((skipped + 1))
        return
    fi
    say "$name"
    if "$@" 2>&1 | tee "$logs/$name.log"; then
        passed=$((passed + 1))
    else
        echo "FAILED: $name"
        failed=$((failed + 1))
    fi
    echo "$name: $((SECONDS - since)) s"
}

# tests NAME COMMAND...: a run of test.sh, whose closing line is added up.
tests() {
    local name=$1 line before=$passed
    step "$@"
    [ "$passed" != "$before" ] && passed=$((passed - 1))
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$logs/$name.log" 2>/dev/null | tail -1)
    is_left_out "$name" && return
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        # the step itself was counted as one failure if there were any: count the tests instead
        [ "${BASH_REMATCH[2]}" = 0 ] || failed=$((failed - 1))
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        skipped=$((skipped + BASH_REMATCH[3]))
    fi
}

# Ends the script: the last line counts everything.
finish_steps() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}
