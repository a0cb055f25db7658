#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks this Debian's kernel into a folder, and makes an initial file system there, for vm.sh: fetch.sh FOLDER. Nothing is
# installed. qemu-system-x86 and busybox-static come from the machine (scripts/packages.txt, group vm).
set -euo pipefail
[ $# = 1 ] || { echo "usage: fetch.sh FOLDER" >&2; exit 2; }
here=$(dirname "$(realpath "$0")")
mkdir -p "$1"
folder=$(realpath "$1")
[ ! -e "$folder/complete" ] || exit 0
busybox=$(command -v busybox)
rm -rf "${folder:?}/deb" "${folder:?}/kernel" "${folder:?}/initial"
mkdir -p "$folder"/deb "$folder"/initial/{bin,dev,proc,host,above,root,modules}
cd "$folder/deb"
kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p')
apt-get download -qq "$kernel" 2>/dev/null || { apt-get update -qq; apt-get download -qq "$kernel"; }
dpkg -x ./*.deb "$folder/kernel"
cd "$folder"
cp kernel/boot/vmlinuz-* linux
number=10
for module in drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_legacy_dev drivers/virtio/virtio_pci_modern_dev \
    drivers/virtio/virtio_pci fs/netfs/netfs fs/fscache/fscache net/9p/9pnet net/9p/9pnet_virtio fs/9p/9p fs/overlayfs/overlay \
    drivers/block/virtio_blk crypto/crc32c_generic lib/libcrc32c lib/crc16 fs/mbcache fs/jbd2/jbd2 fs/ext4/ext4; do
    for file in kernel/lib/modules/*/kernel/"$module".ko; do
        cp "$file" "initial/modules/$number-$(basename "$file")" # in this order they are loaded
    done
    number=$((number + 1))
done
cp "$busybox" initial/bin/busybox
cp "$here/init.sh" initial/init
chmod 755 initial/init
(cd initial && find . | "$busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >initial.gz
rm -rf deb kernel initial
touch complete
