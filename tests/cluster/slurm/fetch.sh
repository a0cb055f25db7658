#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks Slurm and munge of this Debian into a folder, for tests/cluster/slurm/test_slurm.py: fetch.sh FOLDER. Nothing is
# installed, and no daemon of the machine is started; libraries that the machine has already are taken from there.
set -euo pipefail
[ $# = 1 ] || { echo "usage: fetch.sh FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(realpath "$1")
[ ! -e "$folder/complete" ] || exit 0
rm -rf "${folder:?}/debs" "${folder:?}/usr"
mkdir -p "$folder/debs"
cd "$folder/debs"
packages=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 libhwloc15 libnuma1 liblua5.1-0)
apt-get download -qq "${packages[@]}" 2>/dev/null || { apt-get update -qq; apt-get download -qq "${packages[@]}"; }
for deb in *.deb; do dpkg -x "$deb" "$folder"; done
# Slurm finds out by the program's name whether it is a daemon; the packages make these names when they are installed
for name in slurmctld slurmd slurmstepd; do ln -s "$name-wlm" "$folder/usr/sbin/$name"; done
rm -rf "${folder:?}/debs"
touch "$folder/complete"
