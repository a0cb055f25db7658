#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# inside.sh KIT: what scripts/check_install.sh runs in a Debian, or with GS_SHORT=1 on the machine itself with HOME in a folder
# of its own: installs each of the packages in KIT, uses and removes it. Exit 0 only if all was as it should be.
set -euo pipefail
kit=$1 short=${GS_SHORT:-}
work=$(mktemp -d /tmp/gpushare-install-XXXXXX)
chmod 755 "$work"
mkdir -p "$HOME"
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export SIMCUDA_MEMORY=256MiB SIMCUDA_KERNELS=$kit/standin.so SIMCUDA_CARD=$work/card
[ -z "$short" ] || export GPUSHARE_SOCKET=$work/lockd.sock
state=/var/lib/gpushare data=/var/lib/gpushare
[ -z "$short" ] || state=$GPUSHARE_STATE
say() { printf '   %s\n' "$*"; }
die() { echo "inside.sh: $*" >&2; exit 1; }
finish() {
    local status=$?
    if [ $status = 0 ]; then
        rm -rf "$work"
    else
        tail -n 20 "$work"/*.out 2>/dev/null || true
        echo "inside.sh: something is not as it should be; $work has what was printed" >&2
    fi
}
trap finish EXIT

run() { LD_LIBRARY_PATH=$kit "$@"; }
must_say() { # TEXT COMMAND...: it must succeed or fail, and say that
    local text=$1
    shift
    "$@" >"$work/said.out" 2>&1 || true
    grep -qF -- "$text" "$work/said.out" || { cat "$work/said.out"; die "$* did not say: $text"; }
}
must_fail() { ! "$@" >"$work/failed.out" 2>&1 || die "$* succeeded"; }

damage() { # FILE: its undo note
    python3 - "$1" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(file.read().rindex(b"gpushare-undo-") + 24)
    file.write(b"\xff" * 64)
PY
}

share() { # PROGRAM: two at once want more than the card has, take turns, and are both right
    local moved
    rm -f "$work"/share-*
    for i in 1 2; do
        GPUSHARE_STATS=$work/share-$i.stats run "$1" --bytes 180MiB --seconds 2 >"$work/share-$i.out" 2>&1 &
        pids[i]=$!
    done
    wait "${pids[1]}" || die "the first of two programs failed"
    wait "${pids[2]}" || die "the second of two programs failed"
    moved=$(cat "$work"/share-*.stats | grep -oE '"moved_out": *[0-9]+' | awk -F: '{ n += $2 } END { print n + 0 }')
    [ "$moved" -gt 0 ] || die "nothing was moved out: the two programs did not share"
}

go_through_door() { # GPUSHARE-DOOR: a program that is not patched, with the door in the driver's place
    run "$1" --stage "$work/door" >"$work/door.out" 2>&1 || die "gpushare-door --stage failed"
    rm -f "$work/door.stats"
    GPUSHARE_STATS=$work/door.stats LD_LIBRARY_PATH=$work/door "$kit/program" >"$work/door.out" 2>&1 || die "the program failed behind the door"
    [ -s "$work/door.stats" ] || die "the program did not go through the door"
    rm -rf "$work/door"
}

everything() { # a line for each file that is there
    if [ -n "$short" ]; then
        find "$HOME" -name .rustup -prune -o ! -type d -printf '%y %p %l\n' | sort
    else
        find / -xdev \( -path /tmp -o -path /proc -o -path /kit -o -path /dev -o -path /var/lib/dpkg -o -path /var/cache -o -path /var/log \
            -o -path /run -o -path /etc -o -path /home -o -path /usr/share/doc -o -path '*/__pycache__' \) -prune -o ! -type d \
            -printf '%y %p %l\n' | sort
    fi
}
nothing_left() { # WHAT: since "before" was written
    everything >"$work/after"
    diff "$work/before" "$work/after" >"$work/left.out" || { cat "$work/left.out"; die "$1 left something"; }
    say "$1: nothing is left"
}

leave_stub() { # WHAT LIBRARY REMOVE...: removal with a file that cannot be restored, and one with a list that cannot be read
    local what=$1 library=$2
    shift 2
    cp "$work/patched" "$work/kept"
    if [ "$what" = "${what%unreadable}" ]; then
        damage "$work/patched"
        "$@" >"$work/remove.out" 2>&1 || die "$what: removal failed"
        grep -q "$work/patched" "$work/remove.out" || die "$what: the file that stays patched was not named"
    else
        mv "$state/patched" "$state/aside"
        echo theirs >"$state/patched"
        "$@" >"$work/remove.out" 2>&1 || die "$what: removal failed"
        grep -q "not every list could be read" "$work/remove.out" || die "$what: that is not told"
        rm "$state/patched"
        mv "$state/aside" "$state/patched"
    fi
    [ "$(stat -c %s "$library")" -lt 131072 ] || die "$what: $library is no stub"
    must_say "gpushare was removed" run "$work/patched"
    run "$work/patched" >/dev/null 2>&1 || die "$what: the program does not run with the stub"
    say "$what: a stub stays, and the program runs"
    cat "$work/kept" >"$work/patched"
    "$state/gpushare-patch" --restore-all >"$work/restore.out" 2>&1 || die "$what: the kept tool could not restore"
    cmp -s "$work/patched" "$kit/program" || die "$what: restored, but not the same"
    [ ! -e "$library" ] || die "$what: the stub stayed"
}

check_licences() { # FILE: it must have those of the libraries in the programs, and the texts that they name
    local name
    zcat -f "$1" >"$work/licences" || die "there are no licences in $1" # Debian compresses it
    while read -r name; do
        grep -qx "== $name" "$work/licences" || die "$1 has no licence of $name"
    done <"$kit/linked"
    grep -q 'GNU LESSER GENERAL PUBLIC LICENSE' "$work/licences" || die "$1 has not the text of the LGPL"
}

folders_of() { [ ! -d "$1" ] || find "$1" -type d | sort; } # FOLDER

# What install.sh and uninstall.sh do with folders and users that are not as usual.
check_odd_prefixes() { # UNPACKED
    local odd=$work/"odd & a|b" unit
    mkdir -p "$odd/lib/of somebody else" "$odd/share/man" "$odd/bin"
    folders_of "$odd" >"$work/folders"
    echo theirs >"$work/elsewhere"
    ln -s "$work/elsewhere" "$odd/bin/gpusharectl.new"
    (cd "$work" && umask 077 && CDPATH=/ "$1/install.sh" "${odd#"$work/"}") >"$work/install.out" || die "install.sh failed for $odd"
    [ "$(stat -c %a "$odd/bin" "$odd/bin/gpusharectl" "$odd/lib/libgpushare.so.1")" = "755
755
777" ] || die "with a umask of 077 others cannot use what is installed"
    [ "$(cat "$work/elsewhere")" = theirs ] || die "install.sh writes through a link"
    for unit in "$odd"/lib/systemd/system/*.service; do
        grep -qF "ExecStart=$odd/bin/" "$unit" || die "$unit starts something else"
    done
    "$odd/bin/gpusharectl" --version >/dev/null || die "gpusharectl does not run in $odd"
    if [ "$(id -u)" = 0 ] && [ -z "$short" ]; then
        cp "$kit/program" "$work/patched"
        "$odd/bin/gpushare-patch" -q "$work/patched"
        must_say "nothing was done" setpriv --reuid 65534 --regid 65534 --clear-groups "$odd/share/gpushare/uninstall.sh"
        "$odd/bin/gpushare-patch" --check -q "$work/patched" || die "a user that may not remove it restored files"
        "$odd/bin/gpushare-patch" --restore -q "$work/patched"
        rm "$work/patched"
    fi
    "$1/install.sh" "$odd" >"$work/install.out" # folders that the first run has made are known still
    "$odd/share/gpushare/uninstall.sh" >"$work/uninstall.out"
    folders_of "$odd" | diff "$work/folders" - || die "not the folders that were there before"
    [ -z "$(find "$odd" ! -type d)" ] || die "files are left in $odd"
    # a disk that is full: what a first run has written goes again; an older version stays and can be removed
    must_fail bash -c 'trap "" XFSZ; ulimit -f 500; exec "$@"' bash "$1/install.sh" "$odd"
    grep -q "nothing was installed" "$work/failed.out" || die "a failed installation does not say so"
    folders_of "$odd" | diff "$work/folders" - || die "a failed installation left folders"
    [ -z "$(find "$odd" ! -type d)" ] || die "a failed installation left files in $odd"
    must_fail bash -c 'trap "" XFSZ; ulimit -f 500; exec "$@"' bash "$1/install.sh" "$work/none"
    [ ! -e "$work/none" ] || die "a failed installation left $work/none"
    "$1/install.sh" "$odd" >"$work/install.out"
    must_fail bash -c 'trap "" XFSZ; ulimit -f 500; exec "$@"' bash "$1/install.sh" "$odd"
    grep -q "run it again" "$work/failed.out" || die "a failed upgrade does not say so"
    [ -z "$(find "$odd" -name '*.new')" ] || die "a failed upgrade left its half of a file"
    "$odd/bin/gpusharectl" --version >/dev/null || die "gpusharectl does not run after a failed upgrade"
    "$odd/share/gpushare/uninstall.sh" >"$work/uninstall.out"
    folders_of "$odd" | diff "$work/folders" - || die "after a failed upgrade, removal left folders"
    rm -r "$odd"
    say "tarball: odd names, a strict umask and a full disk"
}

check_tarball() {
    local prefix=/usr/local unpacked
    [ -z "$short" ] || prefix=$HOME/prefix
    mkdir "$work/tar"
    tar -xzf "$kit"/gpushare-*-linux-*.tar.gz -C "$work/tar"
    unpacked=$(echo "$work"/tar/*)
    check_odd_prefixes "$unpacked"
    everything >"$work/before"
    "$unpacked/install.sh" "$prefix" >"$work/install.out"
    check_licences "$prefix/share/doc/gpushare/third-party.txt"
    PATH=$prefix/bin:$PATH
    hash -r
    cp "$kit/program" "$work/patched"
    gpushare-patch -q "$work/patched"
    share "$work/patched"
    go_through_door gpushare-door
    gpushare-patch --list | grep -q "^patched  *$work/patched" || die "the patched file is not listed"
    "$unpacked/install.sh" "$prefix" >"$work/install.out" # an upgrade
    run "$work/patched" >/dev/null || die "the program does not run after an upgrade"
    must_fail "$prefix/share/gpushare/uninstall.sh" --refuse
    grep -q "$work/patched" "$work/failed.out" || die "the refusal names no file"
    "$prefix/share/gpushare/uninstall.sh" >"$work/uninstall.out"
    cmp -s "$work/patched" "$kit/program" || die "uninstall.sh did not restore the program"
    end_daemon
    nothing_left tarball
    "$unpacked/install.sh" "$prefix" >"$work/install.out"
    gpushare-patch -q "$work/patched"
    leave_stub tarball "$prefix/lib/libgpushare.so.1" "$prefix/share/gpushare/uninstall.sh"
    nothing_left "tarball with a stub"
    "$unpacked/install.sh" "$prefix" >"$work/install.out"
    gpushare-patch -q "$work/patched"
    leave_stub "tarball, list unreadable" "$prefix/lib/libgpushare.so.1" "$prefix/share/gpushare/uninstall.sh"
    nothing_left "tarball with a list that could not be read"
}

end_daemon() { # it leaves by itself; the next package has its own
    local i
    for i in $(seq 200); do
        pgrep -x gpushare-lockd >/dev/null 2>&1 || return 0
        [ -n "$short" ] && return 0
        sleep 0.1
    done
}

check_wheel() {
    local env=$work/env most limits closed
    [ -z "$short" ] || data=$state
    everything >"$work/before"
    python3 -m venv "$env"
    "$env/bin/python3" -m pip --version >/dev/null
    snapshot() { (cd "$env" && find . -type f ! -name '*.pyc' -exec sha256sum {} + -o -type l -printf '%p %l\n' | sort); }
    snapshot >"$work/env-before"
    "$env/bin/pip" install -q --no-index "$kit"/gpushare_patch-*.whl >"$work/pip.out" 2>&1
    check_licences "$(echo "$env"/lib/python3*/site-packages/gpushare_patch-*.dist-info/third-party.txt)"
    # a disk that is full: for the library, then for the patched interpreter
    limits=500
    [ "$(stat -L -c %s "$env/bin/python3")" -lt 5000000 ] || limits="500 4000" # some are small, with all in a library
    for most in $limits; do
        must_fail bash -c "trap '' XFSZ; ulimit -f $most; exec \"\$@\"" bash "$env/bin/python3" -m gpushare_patch enable
        grep -q 'File too large' "$work/failed.out" || die "the reason is not told"
        [ ! -e "$data/lib" ] || die "enable failed, and left $(find "$data")"
    done
    (umask 077 && "$env/bin/python3" -m gpushare_patch enable >"$work/enable.out")
    closed=$(find "$data" -type d ! -perm -5 -o -path "$data/lib/*" -type f ! -perm -4)
    [ "$(id -u)" != 0 ] || [ -z "$closed" ] || die "other users cannot load the library: $closed"
    "$env/bin/python3" -m gpushare_patch status >"$work/status.out" || die "status says that it is not enabled"
    GPUSHARE_STATS=$work/python.stats run "$env/bin/python3" -c 'import ctypes; assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0'
    [ -s "$work/python.stats" ] || die "the environment's python was not routed"
    cp "$kit/program" "$work/patched"
    "$env/bin/gpushare-patch" -q "$work/patched"
    share "$work/patched"
    go_through_door "$env/bin/gpushare-door"
    run "$env/bin/gpusharectl" --version >/dev/null
    "$env/bin/gpushare-lockd" --version >/dev/null
    "$env/bin/pip" install -q --no-index --force-reinstall "$kit"/gpushare_patch-*.whl >"$work/pip.out" 2>&1 # an upgrade
    "$env/bin/python3" -c 'pass'
    "$env/bin/gpushare-patch" -q --restore "$work/patched"
    "$env/bin/gpushare-patch" --venv --check >/dev/null || die "--venv does not find its environment"
    "$env/bin/python3" -m gpushare_patch disable >"$work/disable.out"
    "$env/bin/pip" uninstall -q -y gpushare-patch >"$work/pip.out" 2>&1
    snapshot >"$work/env-after"
    diff "$work/env-before" "$work/env-after" >"$work/left.out" || die "the environment is not as it was"
    say "wheel: the environment is byte for byte as it was"
    # removed while it is enabled: programs start still, and can be restored
    "$env/bin/pip" install -q --no-index "$kit"/gpushare_patch-*.whl >"$work/pip.out" 2>&1
    "$env/bin/python3" -m gpushare_patch enable >"$work/enable.out"
    "$env/bin/pip" uninstall -q -y gpushare-patch >"$work/pip.out" 2>&1
    rm -f "$work/python.stats"
    GPUSHARE_STATS=$work/python.stats run "$env/bin/python3" -c 'import ctypes; assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0'
    [ -s "$work/python.stats" ] || die "without the package the environment's python is not routed any more"
    "$data/bin/gpushare-patch" --restore-all >"$work/restore.out"
    snapshot >"$work/env-after"
    diff "$work/env-before" "$work/env-after" >"$work/left.out" || die "--restore-all did not give the environment back"
    say "wheel: removed while enabled, programs start still, and can be restored"
    "$env/bin/pip" install -q --no-index "$kit"/gpushare_patch-*.whl >"$work/pip.out" 2>&1
    "$env/bin/python3" -m gpushare_patch disable >"$work/disable.out"
    end_daemon
    if command -v cc >/dev/null; then
        "$env/bin/gpushare-cc" -x c - -o "$work/linked" <<<'int main(void) { return 0; }'
        ldd "$work/linked" | grep -qF "libgpushare.so.1 => $data/lib/" || die "gpushare-cc links another library: $(ldd "$work/linked")"
        "$env/bin/python3" -m gpushare_patch enable >"$work/enable.out"
        "$env/bin/python3" -m gpushare_patch disable >"$work/disable.out"
        "$work/linked" || die "a linked program does not start any more after disable"
        grep -qF "$data stays" "$work/disable.out" || die "disable does not say that the library stays"
        rm -rf "$data"
        say "wheel: the library stays for programs that are linked with it"
    fi
    rm -rf "$env"
    rmdir -p "$data" "$state" 2>/dev/null || true
    nothing_left wheel
}

check_deb() {
    local next=$work/next library running left
    everything >"$work/before"
    dpkg -i "$kit"/*.deb >"$work/dpkg.out" 2>&1 || die "dpkg -i failed"
    library=$(echo /usr/lib/*-linux-gnu/libgpushare.so.1)
    hash -r
    for path in /usr/include/gpushare.h "${library%.1}" /lib/systemd/system/gpushare-lockd.socket /lib/systemd/system/gpushare-serve.service /etc/gpushare/lockd.conf \
        /usr/share/zsh/vendor-completions/_gpushare; do
        [ -e "$path" ] || die "$path was not installed"
    done
    check_licences "$(echo /usr/share/doc/gpushare/third-party.txt*)"
    cp "$kit/program" "$work/patched"
    gpushare-patch -q "$work/patched"
    share "$work/patched"
    go_through_door gpushare-door
    getent passwd gpushare >/dev/null || die "there is no user gpushare"
    getent passwd tester >/dev/null || useradd --create-home tester
    cp "$kit/program" /home/tester/theirs
    chown tester: /home/tester/theirs
    setpriv --reuid tester --regid tester --init-groups env -i HOME=/home/tester PATH="$PATH" gpushare-patch -q /home/tester/theirs
    # of a directory service that does not tell all of its users
    mkdir /home/remote
    cp "$kit/program" /home/remote/theirs
    chown -R 54321:54321 /home/remote
    setpriv --reuid 54321 --regid 54321 --clear-groups env -i HOME=/home/remote PATH="$PATH" gpushare-patch -q /home/remote/theirs
    # an upgrade of another package overwrites a patched file
    cp "$kit/program" "$work/other" && gpushare-patch -q "$work/other"
    cp "$kit/program" "$work/new" && mv "$work/new" "$work/other"
    dpkg-trigger --by-package=gpushare --no-await /usr/bin
    must_say "an upgrade has overwritten the patched file $work/other" dpkg --triggers-only -a
    sed -i 's/^ON_UPGRADE=.*/ON_UPGRADE=patch/' /etc/default/gpushare
    dpkg-trigger --by-package=gpushare --no-await /usr/bin
    dpkg --triggers-only -a >"$work/dpkg.out" 2>&1
    gpushare-patch --check -q "$work/other" || die "the trigger did not patch again"
    # an upgrade of this one
    for name in libgpushare1 libgpushare-dev gpushare; do
        dpkg-deb -R "$kit"/${name}_*.deb "$next-$name"
        sed -i 's/0\.1\.0-1/0.1.0-2/' "$next-$name/DEBIAN/control"
        dpkg-deb -b "$next-$name" "$next-$name.deb" >/dev/null
    done
    dpkg -i "$next"-*.deb >"$work/dpkg.out" 2>&1 || die "the upgrade failed"
    gpushare-patch --check -q "$work/patched" || die "the upgrade restored the program"
    run "$work/patched" >/dev/null || die "the program does not run after the upgrade"
    sed -i 's/^ON_REMOVE=.*/ON_REMOVE=refuse/' /etc/default/gpushare
    must_fail dpkg -r gpushare
    grep -q /home/tester/theirs "$work/failed.out" || die "the refusal does not name a user's file"
    sed -i 's/^ON_REMOVE=.*/ON_REMOVE=restore/' /etc/default/gpushare
    # a program that runs meanwhile goes on, and files that vanished or were replaced since are no reason for a stub
    for name in gone replaced; do cp "$kit/program" "$work/$name"; done
    gpushare-patch -q "$work/gone" "$work/replaced"
    rm "$work/gone"
    cp "$kit/program" "$work/new" && mv "$work/new" "$work/replaced"
    LD_LIBRARY_PATH=$kit "$work/patched" --bytes 16MiB --rounds 1000000 --seconds 60 >"$work/running.out" 2>&1 &
    running=$!
    for i in $(seq 300); do
        grep -qs libgpushare "/proc/$running/maps" && break
        [ "$i" != 300 ] || die "the program that was to run meanwhile did not start"
        sleep 0.1
    done
    dpkg -r gpushare libgpushare-dev libgpushare1 >"$work/dpkg.out" 2>&1 || die "dpkg -r failed"
    kill -0 "$running" || die "the program ended before the package was removed: the test shows nothing"
    wait "$running" || die "a program that ran while the package was removed failed"
    for file in "$work/patched" "$work/other" /home/tester/theirs /home/remote/theirs; do
        cmp -s "$file" "$kit/program" || die "removal did not restore $file"
    done
    [ "$(stat -c %U /home/tester/theirs)" = tester ] || die "the user's file has another owner now"
    # installed again: the configuration of before is still there
    grep -q '^ON_UPGRADE=patch' /etc/default/gpushare || die "removal without purge took the configuration away"
    dpkg -i "$kit"/*.deb >"$work/dpkg.out" 2>&1 || die "it cannot be installed again"
    grep -q '^ON_UPGRADE=patch' /etc/default/gpushare || die "the configuration of before was replaced"
    gpushare-patch -q "$work/patched" && run "$work/patched" >/dev/null || die "nothing can be patched after it was installed again"
    gpushare-patch -q --restore "$work/patched"
    dpkg -P gpushare libgpushare-dev libgpushare1 >"$work/dpkg.out" 2>&1 || die "dpkg -P failed"
    left=$(find /etc -name '*gpushare*' ! -path '/etc/passwd*' ! -path '/etc/group*')
    [ -z "$left" ] || die "purge left in /etc: $left"
    end_daemon
    nothing_left "Debian package"
    dpkg -i "$kit"/*.deb >"$work/dpkg.out" 2>&1
    gpushare-patch -q "$work/patched"
    leave_stub "Debian package" "$library" dpkg -r gpushare libgpushare-dev libgpushare1
    dpkg -P gpushare libgpushare-dev libgpushare1 >"$work/dpkg.out" 2>&1
    nothing_left "Debian package with a stub"
    dpkg -i "$kit"/*.deb >"$work/dpkg.out" 2>&1
    gpushare-patch -q "$work/patched"
    leave_stub "Debian package, list unreadable" "$library" dpkg -r gpushare libgpushare-dev libgpushare1
    dpkg -P gpushare libgpushare-dev libgpushare1 >"$work/dpkg.out" 2>&1
    nothing_left "Debian package with a list that could not be read"
    dpkg -i "$kit"/*.deb >"$work/dpkg.out" 2>&1
    gpushare-patch -q "$work/patched"
    leave_stub "Debian package, purged at once" "$library" dpkg -P gpushare libgpushare-dev libgpushare1
    nothing_left "Debian package that was purged at once"
    check_neighbour "$library"
}

# The stub of a tarball, and the list and the library of a wheel, are not the package's.
check_neighbour() { # LIBRARY of the package
    local unpacked
    mkdir "$work/neighbour"
    tar -xzf "$kit"/gpushare-*-linux-*.tar.gz -C "$work/neighbour"
    unpacked=$(echo "$work"/neighbour/*)
    "$unpacked/install.sh" /usr/local >"$work/install.out"
    /usr/local/bin/gpushare-patch -q "$work/patched"
    cp "$work/patched" "$work/kept"
    damage "$work/patched"
    /usr/local/share/gpushare/uninstall.sh >"$work/uninstall.out" 2>&1
    mkdir -p "$state/lib"
    echo kept >"$state/lib/libgpushare.so.1"
    cp "$kit/program" "$work/second"
    dpkg -i "$kit"/*.deb >"$work/dpkg.out" 2>&1 || die "dpkg -i failed"
    hash -r
    must_say "gpushare was removed" run "$work/patched"
    gpushare-patch -q "$work/second"
    dpkg -P gpushare libgpushare-dev libgpushare1 >"$work/dpkg.out" 2>&1 || die "dpkg -P failed"
    cmp -s "$work/second" "$kit/program" || die "removal did not restore the package's own file"
    must_say "gpushare was removed" run "$work/patched"
    [ -e "$state/lib/libgpushare.so.1" ] || die "purge took away the library that a wheel keeps"
    [ ! -e "$1" ] || die "$1 stayed"
    rm -r "${state:?}/lib"
    cat "$work/kept" >"$work/patched"
    "$state/gpushare-patch" --restore-all >"$work/restore.out" 2>&1 || die "the kept tool could not restore"
    cmp -s "$work/patched" "$kit/program" || die "restored, but not the same"
    nothing_left "Debian package beside others"
}

check_musl() {
    local env=$work/musl
    mkdir "$env"
    tar -xzf "$kit"/gpushare-*-linux-*.tar.gz -C "$env"
    must_say musl "$env"/*/files/bin/gpushare-patch "$kit/program-musl"
    say "a program for musl is refused: $(head -1 "$work/said.out" | cut -c1-150)"
}

for part in ${GS_PARTS:-tarball wheel deb musl}; do
    [ "$part" = deb ] && [ -n "$short" ] || "check_$part"
done
