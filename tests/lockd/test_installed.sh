#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The service as it is installed, under another prefix than was configured: test_installed.sh CMAKE BUILD-FOLDER. systemd takes the
# units, and what they start is there; the user, the group and the folder can be made; the example configuration is valid.
set -euo pipefail
cmake=$1 build=$2 failed=0
root=$(mktemp -d /tmp/gpushare-test-XXXXXX)
trap 'rm -rf "$root"' EXIT
fail() { echo "$*"; failed=1; }
# an installation as root leaves a manifest that the next one may only remove
touch "$build/install_manifest.txt"
ln -f "$build/install_manifest.txt" "$build/install_manifest.before"
"$cmake" --install "$build" --prefix "$root/opt" >"$root/log" 2>&1 || { tail "$root/log"; exit 1; }
[ ! "$build/install_manifest.txt" -ef "$build/install_manifest.before" ] || fail "the manifest was written over instead of made anew"
rm -f "$build/install_manifest.before"
units=$root/opt/lib/systemd/system
program=$(sed -n 's/^ExecStart=\([^ ]*\) .*/\1/p' "$units/gpushare-serve.service")
[ "$program" = "$root/opt/bin/gpusharectl" ] || fail "gpushare-serve.service starts $program, which is not what was installed"
program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$units/gpushare-lockd.service")
[ "$program" = "$root/opt/bin/gpushare-lockd" ] || fail "the unit starts $program, which is not what was installed"
"$program" --version | grep -q gpushare-lockd || fail "$program does not run"
"$program" --config "$root/opt/share/gpushare/lockd.conf" --check || fail "the example configuration is not valid"
[ -s "$root/opt/share/gpushare/grafana/gpushare.json" ] || fail "the dashboard is not installed"
if command -v systemd-analyze >/dev/null; then
    said=$(SYSTEMD_UNIT_PATH="$units:" systemd-analyze verify --man=no gpushare-lockd.service gpushare-lockd.socket gpushare-serve.service \
        gpushare-guard.socket 'gpushare-guard@.service' 2>&1) ||
        fail "systemd does not take the units: $said"
    [[ $said != *gpushare* ]] || fail "systemd says of the units: $said"
fi
if [ "$(id -u)" = 0 ] && command -v systemd-sysusers >/dev/null && command -v systemd-tmpfiles >/dev/null; then
    mkdir -p "$root/image/etc" "$root/image/usr/lib"
    cp -r "$root/opt/lib/sysusers.d" "$root/opt/lib/tmpfiles.d" "$root/image/usr/lib"
    systemd-sysusers --root="$root/image" 2>"$root/log" || fail "no user: $(cat "$root/log")"
    systemd-tmpfiles --root="$root/image" --create 2>"$root/log" || fail "no folder: $(cat "$root/log")"
    group=$(sed -n 's/^gpushare:[^:]*:\([0-9]*\):.*/\1/p' "$root/image/etc/group")
    [ -n "$group" ] || fail "there is no group gpushare"
    [ "$(stat -c '%a %u %g' "$root/image/run/gpushare")" = "755 0 $group" ] || fail "/run/gpushare is not root's and the group's"
fi
exit $failed
