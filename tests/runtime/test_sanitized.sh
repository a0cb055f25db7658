#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_sanitized.sh BUILD CUDA_INCLUDE: patched programs that were built with a sanitizer start: its runtime comes up after the library.
set -u
build=$1 include=$2
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
export LD_LIBRARY_PATH="$build/tests/simcuda" SIMCUDA_CARD="$here" GPUSHARE_STATE="$here/state" GPUSHARE_SOCKET="$here/lockd.sock" \
    GPUSHARE_LOCKD="$build/lockd/gpushare-lockd" ASAN_OPTIONS=detect_leaks=0
cat >"$here/program.c" <<'EOF'
#include <cuda.h>
#include <pthread.h>

static CUcontext context;

static void *allocate(void *answer)
{
    CUdeviceptr address;
    *(int *)answer = cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&address, 1 << 20) != CUDA_SUCCESS;
    return NULL;
}

int main(void)
{
    pthread_t thread;
    int answer = 1;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        pthread_create(&thread, NULL, allocate, &answer) != 0)
        return 2;
    pthread_join(thread, NULL);
    return answer;
}
EOF
tried=0 failed=0
for compiler in clang gcc; do
    for sanitizer in thread address undefined memory; do
        program="$here/$compiler-$sanitizer"
        "$compiler" -fsanitize="$sanitizer" -isystem "$include" "$here/program.c" -o "$program" -L"$build/tests/simcuda" -lcuda -lpthread \
            2>/dev/null || continue # there is no such compiler, or it has no such sanitizer
        timeout 120 "$program" || continue # it does not run unpatched here
        "$build/rewriter/gpushare-patch" -q --runtime "$build/runtime/libgpushare.so.1" "$program" || exit 1
        for disable in 0 1; do
            tried=$((tried + 1))
            GPUSHARE_DISABLE=$disable timeout 120 "$program"
            code=$?
            [ "$code" = 0 ] || {
                echo "$compiler -fsanitize=$sanitizer, GPUSHARE_DISABLE=$disable: exit $code"
                failed=1
            }
        done
    done
done
[ "$tried" != 0 ] || {
    echo "no compiler has a sanitizer that works here"
    exit 77
}
exit "$failed"
