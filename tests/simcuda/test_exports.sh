#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_exports.sh LIBCUDA DRIVER_API_DEF: the library exports exactly the rows of the table (GS_SIDE is beside the interface) and
# simcuda_memory_ns for its own tests, and its SONAME is libcuda.so.1.
set -eu
library=$1 table=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$library" | awk '{print $3}' | grep -v -e '^__' -e '^_\(init\|fini\)$' -e '^simcuda_memory_ns$' | LC_ALL=C sort > "$work/exports"
grep -v '^GS_SIDE(' "$table" | grep -o '^GS_[A-Z]*([A-Za-z0-9_]*' | sed 's/.*(//' | LC_ALL=C sort > "$work/rows"
test "$(wc -l < "$work/rows")" -ge 600
diff "$work/rows" "$work/exports" || { echo "test_exports: < is in the table only, > is exported only" >&2; exit 1; }
readelf -d "$library" | grep -q 'SONAME.*\[libcuda.so.1\]' || { echo "test_exports: wrong SONAME" >&2; exit 1; }
readelf -d "$library" | grep -q SYMBOLIC || { echo "test_exports: not linked with -Bsymbolic" >&2; exit 1; }
