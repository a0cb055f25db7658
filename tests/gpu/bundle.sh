#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts what tests/gpu/run.sh needs of a build into one small folder that can be carried to a machine with a card:
#   tests/gpu/bundle.sh [BUILD=build/dev] [OUT=build/gpu]
# The layout is the build tree's, so that the tools find each other; libraries that a bare machine may lack lie in lib/.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/dev}
out=${2:-build/gpu}
[ -x "$build/rewriter/gpushare-patch" ] || { echo "bundle: $build is not built; run ./test.sh first" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out"/{runtime/door,lockd,rewriter,wrap,samples,bench,lib}
cp -L "$build/runtime/libgpushare.so.1" "$out/runtime/"
cp "$build/runtime/door/libcuda.so.1" "$out/runtime/door/"
cp "$build/wrap/gpushare-door" "$out/wrap/"
cp "$build/lockd/gpushare-lockd" "$build/lockd/gpusharectl" "$out/lockd/"
cp "$build/rewriter/gpushare-patch" "$out/rewriter/"
cp -d "$build"/wrap/gpushare-{cc,c++,nvcc} "$build/wrap/wrap.rsp" "$out/wrap/"
for program in "$build"/samples/*.nv "$build"/samples/{driver_api,dlopen_driver,vmm}; do
    [ ! -x "$program" ] || cp "$program" "$out/samples/"
done
for program in "$build"/bench/{*_bench,load,disposable,beyond}; do
    [ ! -x "$program" ] || cp "$program" "$out/bench/"
done
mkdir -p "$out/tests/gpu"
for program in "$build"/tests/gpu/{driver_facts,bad_input,endless,beside,ipc,turmoil,differ}; do
    [ ! -x "$program" ] || cp "$program" "$out/tests/gpu/"
done
find "$out" -type f -size +4k -exec sh -c 'strip -g "$1" 2>/dev/null || true' sh {} \;
# libraries that are not the C library's
for program in "$out"/lockd/* "$out"/rewriter/* "$out"/wrap/gpushare-cc; do
    ldd "$program" | awk '$3 ~ /^\// { print $3 }'
done | sort -u | grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' | while read -r library; do
    cp -L "$library" "$out/lib/"
done
git rev-parse --short HEAD >"$out/commit" 2>/dev/null || true
du -sh "$out"
