#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The commands of the DaemonSet's containers (cluster/deploy/base/daemonset.yaml):
#   node.sh install    puts the door on the node, and gives the sockets' folder to the group; GPUSHARE_HOST (/host) is where the
#                      node's folder is mounted
#   node.sh plugin     writes the specification for the container runtime, and becomes the device plugin; GPUSHARE_ANSWER: cdi or
#                      mounts; GPUSHARE_CDI_VERSION; GPUSHARE_PER_GPU
#   node.sh exporter   serves /metrics on port 9745; /etc/gpushare-token/token: the token that Prometheus shows
set -eu
host=${GPUSHARE_HOST:-/host} door=${GPUSHARE_DOOR:-/usr/local/lib/gpushare/door} sockets=/run/gpushare spec=${GPUSHARE_SPEC:-/var/run/cdi/gpushare.json}
answer=${GPUSHARE_ANSWER:-cdi}

install_door() {
    mkdir -p "$host$door"
    for file in "$door"/*; do # a program that runs keeps the file that it has
        cp -P "$file" "$host$door/.new"
        mv -f "$host$door/.new" "$host$door/${file##*/}"
    done
    chgrp gpushare "$sockets"
    chmod 0750 "$sockets"
}

case ${1:-} in
install) install_door ;;
plugin)
    if [ "$answer" = mounts ]; then # hooks, which nvidia-ctk writes, cannot be said as mounts
        set -- --nvidia none
    else
        set --
    fi
    gpusharectl cdi generate --root "$host" --door "$door" --cdi-version "${GPUSHARE_CDI_VERSION:-0.7.0}" --output "$spec" "$@"
    nvml=$(for file in "$host"/usr/lib/*-linux-gnu/libnvidia-ml.so.1 "$host"/usr/lib64/libnvidia-ml.so.1; do
        [ ! -e "$file" ] || { echo "$file"; break; }
    done)
    exec gpushare-device-plugin --cdi "$spec" --answer "$answer" --per-gpu "${GPUSHARE_PER_GPU:-10}" ${nvml:+--nvml "$nvml"}
    ;;
exporter)
    token=/etc/gpushare-token/token
    if [ -e "$token" ]; then
        exec gpusharectl serve --listen 0.0.0.0:9745 --host "${POD_IP:-localhost}" --token-file "$token"
    fi
    exec gpusharectl serve --listen 0.0.0.0:9745 --host "${POD_IP:-localhost}" # the token is in the log
    ;;
*)
    echo "usage: node.sh install|plugin|exporter" >&2
    exit 2
    ;;
esac
