#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks that every ELF file below the given folders runs with glibc 2.28 (the tag manylinux_2_28) and needs nothing else:
#   scripts/check_portable.sh FOLDER...
# As auditwheel does: which libraries are needed, which symbol versions, and no path into the machine that built it.
set -euo pipefail
limit=2.28
allowed='libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|librt\.so\.1|ld-linux-x86-64\.so\.2|ld-linux-aarch64\.so\.1'
behind=$(sed -n 's/^set(GS_DOOR_REAL \([^) ]*\)).*/\1/p' "$(dirname "$0")/../cmake/GpushareDoor.cmake")
failed=0 count=0
bad() { echo "check_portable.sh: $*" >&2; failed=1; }

while read -r file; do
    [ "$(head -c 4 "$file" | od -An -tx1 | tr -d ' ')" = 7f454c46 ] || continue
    count=$((count + 1))
    dynamic=$(readelf -dW "$file")
    while read -r library; do
        [[ ${file##*/} = libcuda.so.1 && ${library##*/} = "$behind" ]] || # the door, and the driver behind it
            [[ $library =~ ^($allowed)$ ]] || bad "$file needs $library"
    done < <(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic")
    ! grep -qE '\((RPATH|RUNPATH)\)' <<<"$dynamic" || bad "$file has a path to libraries of the machine that built it"
    while read -r version; do
        case $version in
        GLIBC_PRIVATE) bad "$file uses what is glibc's own (GLIBC_PRIVATE)" ;;
        GLIBC_*)
            [ "$(printf '%s\n' "${version#GLIBC_}" $limit | sort -V | tail -1)" = $limit ] ||
                bad "$file needs $version: $(readelf -W --dyn-syms "$file" | grep -oE "[A-Za-z_0-9]+@$version\b" | sort -u | tr '\n' ' ')" ;;
        *) bad "$file needs $version" ;;
        esac
    done < <(readelf -VW "$file" | sed -n '/\.gnu\.version_r/,$p' | grep -oE 'Name: [A-Z]+_[A-Z0-9._]+' | cut -d' ' -f2 | sort -u)
    grep -q 'GNU_STACK.* RW ' <<<"$(readelf -lW "$file")" || bad "$file has no stack that is not executable"
done < <(find "$@" -type f)
[ $count -gt 0 ] || bad "there is no ELF file in $*"
[ $failed = 0 ] && echo "$count files need glibc $limit at most, and no other library"
exit $failed
