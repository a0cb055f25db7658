#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test_lookups.sh PROBE FAKE_DRIVER_FOLDER LOOKUPS: the runtime inside PROBE does one dlsym, of cuGetProcAddress_v2, and then the
# look-ups of LOOKUPS, in that order, with symbolStatus NULL.
set -u
probe=$1 fake=$2 lookups=$3
log=$(mktemp) || exit 1
trap 'rm -f "$log" "$log.rest"' EXIT
fail() { echo "$probe: $*" >&2; exit 1; }

LD_LIBRARY_PATH=$fake FAKE_DRIVER_LOG=$log "$probe" || fail "ended with $?"
[ "$(head -n 1 "$log")" = "dlsym cuGetProcAddress_v2" ] || fail "began with: $(head -n 1 "$log")"
[ "$(grep -c '^dlsym' "$log")" = 1 ] || fail "called dlsym more than once: $(grep '^dlsym' "$log" | tr '\n' ' ')"
grep -v '^dlsym' "$log" >"$log.rest"
diff "$lookups" "$log.rest" >&2 || fail "looked up something else than $lookups (above: < expected, > seen)"
count=$(wc -l <"$log.rest")
[ "$count" = 440 ] || fail "$count look-ups, not 440"
echo "$count look-ups and one dlsym, as listed"
