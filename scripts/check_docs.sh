#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every command of README, the guide and the recipes as it stands there: scripts/check_docs.sh RELEASE, on a clean Debian of that
# release (bookworm, trixie), as a user who may use sudo; see check_debian.sh for what that needs. HACKING.md says how blocks
# are marked. The last line counts; exit 0 only if none failed.
#
#   scripts/check_docs.sh --here               on this machine: installs into it, by sudo
#   scripts/check_docs.sh --installed PREFIX   on this machine, without the commands that are run in the repository: only
#                                              those for a user's program, with gpushare as it is installed in PREFIX
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

usage="usage: scripts/check_docs.sh RELEASE | --here | --installed PREFIX"
prefix=
case ${1:-} in
--here) ;;
--installed) prefix=$(realpath "${2:?$usage}") ;;
'' | -*) echo "$usage" >&2; exit 2 ;;
*) exec scripts/check_debian.sh "$1" --user --docs ;;
esac

[ -n "$prefix" ] || gs_setup build test docs
[ -n "$prefix" ] || gs_build dev build/dev
build=$PWD/build/dev
work=$(mktemp -d /tmp/gpushare-docs-XXXXXX)
passed=0 failed=0 skipped=0

finish() { # leaves no daemon and no folder behind
    local pid
    pid=$(GPUSHARE_SOCKET=$work/lockd.sock "$build/lockd/gpusharectl" status --json 2>/dev/null |
        sed -n 's/.*"pid": *\([0-9]*\),.*"uptime_ns".*/\1/p' | head -1)
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# The user's program of the pages: samples/hog.cu, for longer, linked with the runtime of the simulated card.
make_program() { # FOLDER
    mkdir -p "$1"
    cp samples/*.h "$1/"
    sed 's/long rounds = 5;/long rounds = 60;/' samples/hog.cu >"$1/train.cu"
    grep -q 'rounds = 60;' "$1/train.cu" || { echo "check_docs.sh: samples/hog.cu has no 'long rounds = 5;'" >&2; exit 1; }
    if [ ! -x "$work/train" ]; then
        "${CUDA_HOME:?}/bin/nvcc" -gencode arch=compute_80,code=compute_80 -cudart static "-L$build/tests/simcudart" \
            "$1/train.cu" -o "$work/train"
    fi
    cp "$work/train" "$1/train"
}

# A block in a shell of its own that ends with the first command that fails; jobs in the background must end well, too.
run_block() { # FOLDER FILE [NAME=VALUE...]
    local folder=$1 file=$2
    shift 2
    printf '\nfor job in $(jobs -p); do wait "$job"; done\n' >>"$file"
    (cd "$folder" && exec timeout 7200 env "$@" bash -e "$file")
}

run_program_block() { # FILE
    local folder
    folder=$(mktemp -d "$work/program-XXXXXX")
    make_program "$folder"
    run_block "$folder" "$1" "PATH=${prefix:+$prefix/bin:}$PATH" "GPUSHARE_SOCKET=$work/lockd.sock" \
        "LD_LIBRARY_PATH=$build/tests/simcuda" "SIMCUDA_KERNELS=$build/samples/hog_standin.so" \
        "SIMCUDA_CARD=$work/card" SIMCUDA_MEMORY=256MiB SIMCUDA_KERNEL_NS=100000000
}

check_page() { # PAGE
    local where line body status
    while IFS= read -r -d '' where && IFS= read -r -d '' line && IFS= read -r -d '' body; do
        if [[ $where = no:* ]] || { [ "$where" = repository ] && [ -n "$prefix" ]; }; then
            echo "skipped: $1:$line (${where#no: })"
            skipped=$((skipped + 1))
            continue
        fi
        say "$1:$line"
        printf '%s' "$body" >"$work/block"
        status=0
        if [ "$where" = program ]; then
            run_program_block "$work/block" </dev/null || status=$?
        else
            run_block "$PWD" "$work/block" </dev/null || status=$?
        fi
        if [ $status = 0 ]; then
            passed=$((passed + 1))
        else
            echo "FAILED ($status): $1:$line"
            failed=$((failed + 1))
        fi
    done < <(scripts/check_docs.py --blocks "$1")
}

[ -z "$prefix" ] || CUDA_HOME=$(GS_NO_INSTALL=1 scripts/setup.sh build)
export CUDA_HOME
check_page README.md
check_page docs/guide.md
for page in docs/recipes/*.md; do
    check_page "$page"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed != 0 ]
