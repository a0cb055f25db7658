# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# lib.sh: what test.sh, demo.sh and .ci/run share. Sourced in the repository's root.

# The last failure of a command is told with its name; set -e does the leaving.
say() { printf '== %s\n' "$*"; }

# gs_setup [--headers] GROUP...: installs, and sets CUDA_HOME for CMake.
gs_setup() {
    CUDA_HOME=$(scripts/setup.sh "$@") || return 1
    export CUDA_HOME
}

# gs_follow LOG: prints each 4 s how far ninja has come.
gs_follow() {
    local since=$SECONDS
    while sleep 4; do
        echo "   $((SECONDS - since)) s $(tail -c 300 "$1" 2>/dev/null | grep -oE '^\[[0-9]+/[0-9]+\]' | tail -1)" >&2
    done >/dev/null
}

# gs_build PRESET FOLDER [TARGET]: configures and builds, all or one target. A folder configured with another toolkit is made anew.
gs_build() {
    local log=$2/build.log cache=$2/CMakeCache.txt
    mkdir -p "$2"
    if [ -r "$cache" ] && ! grep -q "^GS_CUDA_INCLUDE:PATH=$CUDA_HOME/" "$cache"; then
        sed -i '/^GS_\(NVCC\|CUDA_INCLUDE\|CUDA_STUB\|CUDART_STATIC\):/d' "$cache"
    fi
    local follower status=0
    gs_follow "$log" &
    follower=$!
    { cmake --preset "$1" -B "$2" >"$log" 2>&1 && cmake --build "$2" --target "${3:-all}" >>"$log" 2>&1; } || status=$?
    kill $follower 2>/dev/null
    wait $follower 2>/dev/null || true
    if [ $status != 0 ]; then
        tail -40 "$log" >&2
        echo "building $2 (preset $1) failed; the whole log: $log" >&2
        return 1
    fi
}
