#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# booted.sh ROOT KIT: boots systemd in a Debian, with the Debian packages of KIT in it, in namespaces of its own, and asks the
# services: the daemon by its socket, and gpushare-serve with its token. Nothing of ROOT changes. Exit 77 where systemd cannot run.
set -euo pipefail
root=$1 kit=$2
if [ -z "${GS_BOOTED:-}" ]; then
    work=$(mktemp -d /tmp/gpushare-booted-XXXXXX)
    [ -n "${GS_KEEP:-}" ] || trap 'rm -rf --one-file-system "$work"' EXIT
    mkdir "$work/layer" "$work/root" "$work/out"
    GS_BOOTED=$work timeout -k 5 180 unshare --mount --pid --fork --uts --ipc --net --cgroup --propagation private --kill-child "$0" "$root" "$kit" \
        </dev/null >"$work/boot.log" 2>&1 || true
    [ -e "$work/out/began" ] || { echo "systemd cannot run here: $(tail -1 "$work/boot.log")"; exit 77; }
    grep -q '^all as it should be$' "$work/out/said" && exit 0
    cat "$work/out/said" >&2
    exit 1
fi

work=$GS_BOOTED root=$GS_BOOTED/root
mount -t tmpfs none "$work/layer"
mkdir "$work/layer/upper" "$work/layer/work"
mount -t overlay -o "lowerdir=$1,upperdir=$work/layer/upper,workdir=$work/layer/work" none "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sys "$root/sys"
if ! mount -t cgroup2 none "$root/sys/fs/cgroup" 2>/dev/null; then
    mount -t tmpfs -o mode=755 none "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd none "$root/sys/fs/cgroup/systemd"
fi
mount -t tmpfs -o mode=755 none "$root/dev"
while read -r name major minor; do
    mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done <<END
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
END
mkdir "$root/dev/shm" "$root/dev/pts" "$root/dev/mqueue" "$root/out"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=755 none "$root/run"
mount -t tmpfs -o mode=1777 none "$root/tmp"
mount --bind "$work/out" "$root/out"
cp "$kit"/*.deb "$root/tmp/"
chroot "$root" sh -c 'dpkg -i /tmp/*.deb' 2>&1
rm -f "$root"/tmp/*.deb
# as docs/monitoring.md has it
install -m 600 /dev/null "$root/etc/gpushare/serve.token"
echo 0123456789abcdef0123 >"$root/etc/gpushare/serve.token"
for unit in gpushare-lockd.socket gpushare-lockd.service gpushare-serve.service; do
    ! chroot "$root" systemctl is-enabled -q "$unit" || echo "booted.sh: $unit is enabled by itself" >>"$work/out/said"
done
chroot "$root" systemctl enable gpushare-lockd.socket gpushare-serve.service 2>&1
cat >"$root/out/check.sh" <<'END'
fail() { echo "booted.sh: $*"; systemctl status --no-pager -n 20 gpushare-lockd gpushare-serve; kill -s RTMIN+3 1; exit; }
get() { python3 -c 'import sys, urllib.request as u
print(u.urlopen(u.Request("http://127.0.0.1:9745" + sys.argv[2], headers={"Authorization": "Bearer " + sys.argv[1]}), timeout=30).read().decode())' "$@" 2>&1; }
: >/out/began
for i in $(seq 60); do
    get 0123456789abcdef0123 /metrics >/out/metrics
    ! grep -q '^gpushare_up 1' /out/metrics || break
    sleep 1
done
grep -q '^gpushare_up 1' /out/metrics || fail "the service does not serve the daemon's figures: $(tail -1 /out/metrics)"
get 0123456789abcdef0124 /metrics | grep -q 'HTTP Error 401' || fail "another token gets an answer"
gpusharectl status >/out/status || fail "gpusharectl status"
pid=$(systemctl show -P MainPID gpushare-serve)
grep -qE '^Uid:	0' "/proc/$pid/status" && fail "it runs as root"
grep -qE '^CapEff:	0+$' "/proc/$pid/status" || fail "it has capabilities"
grep -qE '^Seccomp:	2' "/proc/$pid/status" || fail "its system calls are not filtered"
[ "$(stat -c '%U %a' /run/gpushare/lockd.sock)" = "root 660" ] || fail "the socket is not for its group only"
mv /etc/gpushare/serve.token /etc/gpushare/away
systemctl restart gpushare-serve 2>/out/refused && fail "it starts without a token"
grep -qi 'assertion failed' /out/refused || fail "the reason is not told: $(cat /out/refused)"
systemctl restart gpushare-lockd && gpusharectl status >/out/status || fail "the daemon does not come back"
served=$(systemctl show -P MainPID gpushare-lockd)
mv /etc/gpushare/away /etc/gpushare/serve.token
systemctl start gpushare-serve && pid=$(systemctl show -P MainPID gpushare-serve)
[ -e "/proc/$pid" ] && [ -e "/proc/$served" ] || fail "one of the services does not run"
dpkg -r gpushare libgpushare-dev >/out/removed 2>&1 || fail "dpkg -r: $(cat /out/removed)"
[ ! -e "/proc/$pid" ] && [ ! -e "/proc/$served" ] && [ ! -e /run/gpushare/lockd.sock ] || fail "after removal a service runs still"
dpkg -P gpushare >/out/removed 2>&1
left=$(find /etc/systemd -name 'gpushare*')
[ -z "$left" ] || fail "purge left $left"
[ -s /out/said ] || echo "all as it should be"
kill -s RTMIN+3 1
END
cat >"$root/etc/systemd/system/booted.service" <<'END'
[Unit]
After=gpushare-serve.service
[Service]
Type=oneshot
StandardOutput=append:/out/said
StandardError=inherit
ExecStart=/bin/sh /out/check.sh
[Install]
WantedBy=multi-user.target
END
chroot "$root" systemctl enable booted.service 2>&1
ip link set lo up 2>&1 || python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14s", b"lo", 1, b""))'
mount --make-rshared "$root" # a unit's credentials are mounted from another namespace
exec chroot "$root" env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=multi-user.target
