#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks NVIDIA's CUDA runtimes of PyPI's wheels, for test_cudarts.py and scripts/check_table.py:
# fetch_cudarts.sh FOLDER [SERIES...]. SERIES is a version such as 13.2, or "newest"; default: 13.1 to 13.5.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: fetch_cudarts.sh FOLDER [SERIES...]" >&2; exit 2; }
mkdir -p "$1"
folder=$(realpath "$1")
shift
[ $# != 0 ] || set -- 13.1 13.2 13.3 13.4 13.5
for series; do
    [ "$series" = newest ] || [ ! -d "$folder/$series" ] || continue
    rm -rf "$folder/new"
    mkdir -p "$folder/new"
    wanted=nvidia-cuda-runtime
    [ "$series" = newest ] || wanted="$wanted==$series.*"
    python3 -m pip download -q --no-deps --disable-pip-version-check --dest "$folder/new" "$wanted"
    python3 -m zipfile -e "$folder"/new/*.whl "$folder/new"
    rm -f "$folder"/new/*.whl
    rm -rf "${folder:?}/$series"
    mv "$folder/new/nvidia"/cu* "$folder/$series"
    rm -rf "$folder/new"
done
