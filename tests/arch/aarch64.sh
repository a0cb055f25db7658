#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the runtime library and the fourth door for aarch64, and runs doors_check and pass_check under qemu-user. Exit 77: the cross tools are not installed.
#   aarch64.sh SOURCE_DIR CUDA_INCLUDE RUNTIME_BUILD_DIR WORK_DIR
set -euo pipefail
source_dir=$1 cuda=$2 inputs=$3 work=$4
cc=aarch64-linux-gnu-gcc root=/usr/aarch64-linux-gnu
for tool in $cc qemu-aarch64; do
    command -v "$tool" >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
rm -rf "$work" && mkdir -p "$work" && cd "$work"
flags=(-std=gnu17 -O2 -fPIC -fvisibility=hidden -D_GNU_SOURCE -D__CUDA_API_VERSION_INTERNAL -I"$source_dir" -isystem "$cuda")
objects=()
mapfile -t sources < <(find "$source_dir/runtime" -name '*.c' ! -name door.c ! -name stub.c)
for file in "${sources[@]}" "$source_dir"/runtime/{calls/doors_aarch64,swap/kernels_image}.S "$source_dir"/common/{err,memory_left,packet,place,size}.c; do
    object=$(basename "$file").o
    $cc "${flags[@]}" -ftls-model=initial-exec -DGS_VERSION='"cross"' -DGS_LOCKD_PATH='"/nonexistent"' -c "$file" -o "$object"
    objects+=("$object")
done
$cc -shared -Wl,-soname,libgpushare.so.1 -Wl,--version-script="$inputs/exports.map" "$inputs/aliases.ld" \
    -Wl,-z,initfirst,-z,nodelete,-z,defs,-Bsymbolic-functions "${objects[@]}" -o libgpushare.so.1
$cc "${flags[@]}" -fvisibility=default -shared -Wl,-soname,libcuda.so.1 "$source_dir"/bench/fake_driver.c -o libcuda.so.1
$cc "${flags[@]}" -fvisibility=default "$source_dir"/tests/arch/doors_check.c -Wl,--no-as-needed ./libgpushare.so.1 -Wl,-rpath,"$work" -o doors_check
GPUSHARE_QUIET=1 qemu-aarch64 -L $root -E LD_LIBRARY_PATH="$work" ./doors_check

# the fourth door, with a driver that it needs by an absolute path
mkdir door
real=$work/door/libcuda-real.so.1
$cc "${flags[@]}" -fvisibility=default -shared -Wl,-soname,"$real" "$source_dir"/tests/arch/pass_driver.c -o "$real"
$cc "${flags[@]}" -DGS_DOOR_REAL='"libcuda-real.so.1"' -c "$source_dir"/runtime/calls/door.c -o door.o
$cc "${flags[@]}" -c "$source_dir"/runtime/calls/pass_aarch64.S -o pass.o
$cc -shared -Wl,-soname,libcuda.so.1 -Wl,--version-script="$inputs/door.map" "$inputs/aliases.ld" \
    -Wl,-z,nodelete,-z,defs,-Bsymbolic-functions "${objects[@]}" door.o pass.o -Wl,--no-as-needed "$real" -o door/libcuda.so.1
$cc "${flags[@]}" "$source_dir"/tests/arch/pass_check.c -o pass_check
GPUSHARE_QUIET=1 qemu-aarch64 -L $root -E LD_LIBRARY_PATH="$work/door" ./pass_check
