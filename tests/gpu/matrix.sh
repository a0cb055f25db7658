#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# matrix.sh [options of matrix.py]: which programs work patched, on a machine with a card. Makes docs/compatibility.md from what
# it measures. The programs under test are those of the Python that runs it (GS_MATRIX_PYTHON; else python3): packages that are
# missing there leave their rows untested.
set -eu
cd "$(dirname "$0")/../.."
exec "${GS_MATRIX_PYTHON:-python3}" -B tests/gpu/matrix.py "$@"
