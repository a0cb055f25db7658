#!/bin/busybox sh
# shellcheck shell=dash
# SPDX-License-Identifier: Apache-2.0
#
# The first process of vm.sh's machine: the host's files, read-only, below a file system in memory; then what /result/start says.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do insmod "$module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host
mount -t tmpfs -o size=80% above /above
mkdir /above/upper /above/work
mount -t overlay -o lowerdir=/host,upperdir=/above/upper,workdir=/above/work root /root
mkdir -p /root/result
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 result /root/result
mount -t tmpfs tmp /root/tmp
chmod 1777 /root/tmp
mount -t tmpfs -o mode=755 run /root/run
mkdir -p /root/disk
mount -t ext4 /dev/vda /root/disk
mount --move /dev /root/dev
mount --move /proc /root/proc
exec switch_root /root /bin/sh /result/start
