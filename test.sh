#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds gpushare and runs its tests: ./test.sh [--all] [--asan] [--tsan] [-R REGEX]. Needs no GPU. Installs what is missing
# (scripts/setup.sh). Without options the preset dev is tested; each option names another preset to test instead.
# Tests that take half a minute and more (label slow) run with --all, or when -R names tests.
# A sanitizer's build leaves out the tests that gain nothing there (label unsanitized, HACKING.md). Three tests run at a time on
# two processors (GS_TEST_JOBS), because many of them mostly wait.
# The last line counts: "N passed, N failed, N skipped"; exit 0 only if nothing failed.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/lib.sh

usage="usage: ./test.sh [--all] [--dev] [--asan] [--tsan] [-R REGEX]"
help="$usage
Build gpushare and run its tests. No GPU is needed. Missing Debian packages are installed, with sudo unless you are root.

  --all        run the slow tests, too (half a minute and more each)
  --dev        test the ordinary build (the default)
  --asan       test a build with AddressSanitizer and UndefinedBehaviorSanitizer
  --tsan       test a build with ThreadSanitizer
  -R REGEX     run only the tests whose names match
  -h, --help   show this help

The last line counts: N passed, N failed, N skipped. Exit status 0 only if nothing failed.
GS_TEST_JOBS=N runs N tests at a time (default: three for two processors); GS_NO_INSTALL=1 installs nothing."
presets=() filter=() slow=leave
while [ $# != 0 ]; do
    case $1 in
    --all) slow=run ;;
    --dev | --asan | --tsan) presets+=("${1#--}") ;;
    -R) [ $# -ge 2 ] || { echo "$usage" >&2; exit 2; }; filter=(-R "$2"); slow=run; shift ;;
    -h | --help) echo "$help"; exit 0 ;;
    *) echo "test.sh: $1 is no option; $usage" >&2; exit 2 ;;
    esac
    shift
done
[ ${#presets[@]} != 0 ] || presets=(dev)

gs_setup build test
results=()
for preset in "${presets[@]}"; do
    say "building build/$preset"
    gs_build "$preset" "build/$preset"
    say "testing build/$preset"
    result=$PWD/build/$preset/ctest.xml
    rm -f "$result"
    # ctest's own exit status says no more than its result file, which is counted below
    leave=''
    [ "$preset" = dev ] || leave=unsanitized
    [ "$slow" = run ] || leave+="${leave:+|}slow"
    ctest --test-dir "build/$preset" --output-on-failure --output-junit "$result" -j "${GS_TEST_JOBS:-$(($(nproc) * 3 / 2))}" \
        "${filter[@]}" ${leave:+-LE "^($leave)\$"} || true
    results+=("$result")
done
[ "$slow" = run ] || say "left out: the slow tests (./test.sh --all runs them)"
python3 scripts/ctest_count.py "${results[@]}"
