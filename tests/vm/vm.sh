#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command on a machine that qemu emulates, with this machine's files, its own kernel and control groups of version 2 alone:
# vm.sh FOLDER [--memory MIB] [--systemd] COMMAND... FOLDER is what fetch.sh made. The command sees the files of this machine,
# and whatever it writes stays in its own memory; below /disk is a disk. --systemd: systemd is the first process, as on a node. The exit status is the
# command's; 77 with the reason where there is no such machine.
set -euo pipefail
usage() { echo "usage: vm.sh FOLDER [--memory MIB] [--systemd] COMMAND..." >&2; exit 2; }
[ $# -ge 2 ] || usage
folder=$(realpath "$1") memory=2048 systemd=
shift
while :; do
    case $1 in
    --memory) memory=$2; shift 2 ;;
    --systemd) systemd=1; shift ;;
    --*) usage ;;
    *) break ;;
    esac
done
[ -e "$folder/complete" ] || { echo "$folder has no kernel: tests/vm/fetch.sh puts it there"; exit 77; }
qemu=$(command -v qemu-system-x86_64) || { echo "qemu-system-x86 is not installed"; exit 77; }
result=$(mktemp -d /tmp/gs-vm-XXXXXX)
trap 'rm -rf "$result"' EXIT
truncate -s 4G "$result/disk"
mke2fs -q -t ext4 -O ^has_journal "$result/disk"

printf -v command '%q ' "$@"
cat >"$result/command" <<EOF
cd ${PWD@Q}
export PATH=${PATH@Q}
( $command ) >/result/output 2>&1 </dev/null
echo \$? >/result/status
sync
echo o >/proc/sysrq-trigger
sleep 100
EOF
if [ -n "$systemd" ]; then
    cat >"$result/start" <<'EOF'
unit() { cat >"/etc/systemd/system/$1"; }
unit gs-vm.service <<'END'
[Unit]
After=basic.target
Requires=basic.target
FailureAction=poweroff-force
[Service]
ExecStart=/bin/sh /result/command
END
unit gs-vm.target <<'END'
[Unit]
Wants=gs-vm.service
After=gs-vm.service
END
echo 0123456789abcdef0123456789abcdef >/etc/machine-id # else systemd would preset all units first
: >/etc/fstab
rm -f /usr/lib/systemd/system-generators/* /etc/systemd/system-generators/* # units for what the host has
for name in systemd-networkd-wait-online systemd-udev-settle systemd-journal-flush; do # nobody waits for the host's devices
    ln -sf /dev/null "/etc/systemd/system/$name.service"
done
exec /lib/systemd/systemd --unit=gs-vm.target
EOF
else
    cat >"$result/start" <<'EOF'
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
ip link set lo up 2>/dev/null || /bin/busybox ip link set lo up
echo +memory +pids +cpu >/sys/fs/cgroup/cgroup.subtree_control # processes stay in the root, which may hand controllers down
. /result/command
EOF
fi
"$qemu" -accel tcg,thread=multi -cpu max -smp 2 -m "$memory" -nographic -nodefaults -no-reboot -serial "file:$result/console" \
    -kernel "$folder/linux" -initrd "$folder/initial.gz" -append "console=ttyS0 panic=-1 quiet no_timer_check" \
    -drive "file=$result/disk,format=raw,if=virtio,cache=unsafe" \
    -virtfs local,path=/,security_model=none,readonly=on,multidevs=remap,mount_tag=host \
    -virtfs local,path="$result",security_model=none,mount_tag=result </dev/null
cat "$result/output" 2>/dev/null || true
if [ ! -s "$result/status" ]; then
    echo "vm.sh: the machine ended without an answer:" >&2
    head -c 3000 "$result/console" >&2
    exit 1
fi
exit "$(cat "$result/status")"
