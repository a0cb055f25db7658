#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# podman.sh BUILD: an unpatched program in a container of podman, with a specification of `gpusharectl cdi generate`, on the
# simulated card; and two services of a compose file that share it, by podman-compose where that is installed. The container's root
# is made of this machine's own files. Exit 77, with the reason, where podman cannot run.
set -euo pipefail
build=$(realpath "${1:?podman.sh BUILD}")
work=$(mktemp -d /tmp/gs-podman-XXXXXX)
pids=()
finish() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    umount "$work/storage/overlay" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap finish EXIT
die() { echo "podman.sh: $*" >&2; exit 1; }
skip() { echo "$*"; exit 77; }

put() { # FILE...: the file and the libraries that it needs, at the same places in the container
    local file library
    for file; do
        mkdir -p "$root$(dirname "$file")"
        cp -L "$file" "$root$file"
        { ldd "$file" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | { grep -v libcuda || true; } | while read -r library; do
            mkdir -p "$root$(dirname "$library")"
            [ -e "$root$library" ] || cp -L "$library" "$root$library"
        done
    done
}

root=$work/root
mkdir -p "$root"/{usr/lib,usr/bin,usr/sbin,etc,proc,sys,dev,run,tmp} "$work"/{sockets,card,host,cdi}
for link in lib lib64 bin sbin; do # as on this machine, where they are links as a rule
    [ ! -L /$link ] || { mkdir -p "$root/usr/$link"; ln -s usr/$link "$root/$link"; }
done
put /bin/sh /sbin/ldconfig /bin/grep "$build/samples/driver_api" "$build/lockd/gpusharectl"
cp "$build/samples/driver_standin.so" "$root/standin.so"
folder=/usr/lib/$(uname -m)-linux-gnu
cat >"$work/nvidia.yaml" <<YAML
cdiVersion: 0.5.0
containerEdits:
  mounts:
  - containerPath: $folder/libcuda.so.580.159.04
    hostPath: $build/tests/simcuda/libcuda.so.1
    options:
    - ro
    - bind
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/null
  name: "0"
kind: nvidia.com/gpu
YAML

export SIMCUDA_MEMORY=256MiB GPUSHARE_SOCKET=$work/sockets/lockd.sock
LD_LIBRARY_PATH=$build/tests/simcuda "$build/wrap/gpushare-door" --stage "$work/door"
"$build/lockd/gpusharectl" --socket "$GPUSHARE_SOCKET" cdi generate --nvidia "$work/nvidia.yaml" --door "$work/door" \
    --output "$work/cdi/gpushare.json"
"$build/lockd/gpushare-lockd" --foreground --socket "$GPUSHARE_SOCKET" --log-level info 2>"$work/lockd.log" &
pids+=($!)
for _ in $(seq 600); do
    [ ! -S "$GPUSHARE_SOCKET" ] || break
    sleep 0.1
done
# A program of the host, which the container must not touch. A simulated card is one pid namespace's: each side has its own.
SIMCUDA_CARD=$work/host LD_LIBRARY_PATH=$work/door SIMCUDA_KERNELS=$build/samples/hog_standin.so "$build/samples/hog" --share 0.2 --rounds 100000 \
    --cpu-ms 50 >"$work/hog.out" 2>&1 &
pids+=($!)
host=$!
for _ in $(seq 1200); do
    if "$build/lockd/gpusharectl" status --json 2>/dev/null | grep "\"pid\": $host\b" >/dev/null; then break; fi
    sleep 0.1
done

contained() { # WORDS: a shell's, in the container
    # shellcheck disable=SC2016 # the inner shell expands them
    unshare -m sh -c '
        mkdir -p /run/cdi /etc/cdi && mount -t tmpfs none /etc/cdi && mount --bind "$1/cdi" /run/cdi || exit 125
        exec podman --root "$1/storage" --runroot "$1/run" --storage-driver vfs --runtime runc --cgroup-manager cgroupfs \
            --events-backend none run --rm --network none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --pids-limit -1 \
            --device gpushare.dev/gpu=0 -v "$1/card:/card" -e SIMCUDA_CARD=/card -e SIMCUDA_MEMORY=256MiB \
            -e SIMCUDA_KERNELS=/standin.so -e GPUSHARE_STATS=/card/stats -e GPUSHARE_LOCKD=/nonexistent \
            --rootfs "$1/root" /bin/sh -c "$2"' sh "$work" "$1"
}
contained true >"$work/first.out" 2>&1 || skip "podman runs no container here: $(tail -1 "$work/first.out")"

contained "ldconfig && ldconfig -p | grep libcuda && $build/samples/driver_api --rounds 2" >"$work/out" 2>&1 ||
    die "the program: $(cat "$work/out")"
grep -q "libcuda.so.1.*=> .*$folder/libcuda.so.1" "$work/out" || grep -q 'libcuda.so.1.*=> ' "$work/out" ||
    die "ldconfig: $(cat "$work/out")"
[ "$(grep -c 'libcuda' "$work/out")" = 1 ] || die "ldconfig found another: $(cat "$work/out")"
grep -Eq '"gated_calls": [1-9]' "$work/card/stats" || die "nothing went through the gate: $(cat "$work/card/stats")"
grep -q 'ok' "$work/out" || die "the program: $(cat "$work/out")"

for words in "pause $host" "evict $host" "suspend $host" "set weight $host 1" "set quantum 100" reload "trace --seconds 1"; do
    if contained "$build/lockd/gpusharectl $words" >"$work/out" 2>&1; then
        die "gpusharectl $words was not refused in the container: $(cat "$work/out")"
    fi
    grep -q 'a process in a container' "$work/out" || die "gpusharectl $words: $(cat "$work/out")"
done
contained "$build/lockd/gpusharectl status" >"$work/out" 2>&1 || die "gpusharectl status: $(cat "$work/out")"
"$build/lockd/gpusharectl" pause "$host" >/dev/null || die "the host's root may pause it"
grep -q 'container' "$work/lockd.log" || die "the log has no word of the container: $(cat "$work/lockd.log")"
if command -v podman-compose >/dev/null; then # as packaging/examples/compose.yaml asks for the card
    mkdir -p "$work/project"
    cat >"$work/project/compose.yaml" <<YAML
services:
  one: &service
    image: localhost/gs-test
    devices: ["gpushare.dev/gpu=0"]
    volumes: ["$work/card:/card"]
    environment: &environment {SIMCUDA_CARD: /card, SIMCUDA_MEMORY: 256MiB, SIMCUDA_KERNELS: /standin.so, GPUSHARE_LOCKD: /nonexistent,
      GPUSHARE_STATS: /card/one, GPUSHARE_NAME: one, GPUSHARE_CLASS: interactive}
    command: ["/bin/sh", "-c", "ldconfig && $build/samples/driver_api --rounds 2"]
  two:
    <<: *service
    environment: {<<: *environment, GPUSHARE_STATS: /card/two, GPUSHARE_NAME: two, GPUSHARE_CLASS: batch}
YAML
    cat >"$work/podman" <<EOF
#!/bin/bash
# the storage of this test, and no network: not every machine can make the bridge that podman-compose 1.0 always names
words=(podman --root $work/storage --runroot $work/run --storage-driver vfs --runtime runc --cgroup-manager cgroupfs --events-backend none)
create=
for word; do
    case \$word in
    create) create=1; words+=(create --network none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --pids-limit -1) ;;
    --net | --network | --network-alias) [ -n "\$create" ] && skip=1 || words+=("\$word") ;;
    *) [ -n "\${skip-}" ] || words+=("\$word"); skip= ;;
    esac
done
[ "\$1" != network ] || exit 0
exec "\${words[@]}"
EOF
    chmod 755 "$work/podman"
    tar -C "$root" -c . | "$work/podman" import -q - localhost/gs-test >/dev/null 2>&1 || die "podman import"
    # shellcheck disable=SC2016 # the inner shell expands them
    unshare -m sh -c '
        mkdir -p /run/cdi /etc/cdi && mount -t tmpfs none /etc/cdi && mount --bind "$1/cdi" /run/cdi &&
        cd "$1/project" && podman-compose --podman-path "$1/podman" -f compose.yaml up' sh "$work" >"$work/out" 2>&1 ||
        die "podman-compose: $(cat "$work/out")"
    for name in one two; do
        grep -Eq '"gated_calls": [1-9]' "$work/card/$name" || die "$name: nothing went through the gate: $(cat "$work/out")"
    done
    echo "two services of a compose file share the card"
fi
echo "an unpatched program in a container shares the card, and steers nobody else"
