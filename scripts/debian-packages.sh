#!/usr/bin/env bash
# Installs what is missing: `scripts/debian-packages.sh COMMAND:PACKAGE...`
#
# COMMAND is looked for in PATH, or is the full path of a file, or is empty for a package that is
# missing for sure. What is there already is left alone. Services that come with a new package are
# started neither now nor at the next boot: the tests start servers of their own.
set -euo pipefail
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

missing=()
for pair in "$@"; do
    command=${pair%%:*}
    if [[ $command == /* ]]; then
        [[ -e $command ]] || missing+=("${pair##*:}")
    elif [[ -z $command ]] || ! command -v "$command" >/dev/null; then
        missing+=("${pair##*:}")
    fi
done
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
    echo "sluice: please install: ${missing[*]}" >&2
    exit 1
fi
as_root=()
if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
        echo "sluice: run as root, or with sudo, to install: ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

# Debian asks this file whether a package may start its service; 101 means no.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi

echo "sluice: installing ${missing[*]}" >&2
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0
    -o Acquire::Retries=5)
"${apt[@]}" update
"${apt[@]}" install --yes --no-install-recommends "${missing[@]}" >/dev/null
if command -v systemctl >/dev/null; then
    for package in "${missing[@]}"; do
        "${as_root[@]}" systemctl disable --quiet "$package" 2>/dev/null || true
    done
fi
