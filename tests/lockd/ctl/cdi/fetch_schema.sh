#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks the JSON schema of the Container Device Interface, from its package in this Debian, into a folder: fetch_schema.sh FOLDER.
# Nothing is installed.
set -euo pipefail
[ $# = 1 ] || { echo "usage: fetch_schema.sh FOLDER" >&2; exit 2; }
[ ! -e "$1/schema.json" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$1"
package=golang-github-container-orchestrated-devices-container-device-interface-dev
(cd "$work" && { apt-get download -qq "$package" 2>/dev/null || { apt-get update -qq && apt-get download -qq "$package"; }; })
dpkg -x "$work"/*.deb "$work/unpacked"
folder=$(dirname "$(find "$work/unpacked" -path '*/schema/schema.json')")
cp "$folder/defs.json" "$1/"
cp "$folder/schema.json" "$1/" # the last: with it the folder is whole
