#!/usr/bin/env bash
# Makes .venv and keeps it at what the lock says: `scripts/venv.sh runtime` or `... dev`.
#
# Needs a Python of at least 3.11 with pip, and nothing else: where Debian's python3 lacks
# ensurepip (its package python3-venv), pip puts itself into the new environment. PYTHON names
# the interpreter to use. A second call finds the stamp and is done.
set -euo pipefail
cd "$(dirname "$0")/.."

want=${1:?runtime or dev}
stamp=.venv/sluice-stamp

say() { printf 'sluice: %s\n' "$*" >&2; }

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local name
    for name in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
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
[[ $want == dev ]] && locks=(requirements/dev.txt)

# What .venv was made from: this folder (scripts in it hold its path), the locks, the metadata.
key=$({ pwd; cat requirements/*.txt pyproject.toml; } | sha256sum | cut -c1-16)
[[ -n ${PYTHON:-} ]] && python=$(find_python)
if .venv/bin/python -c '' 2>/dev/null && [[ -f $stamp ]]; then
    read -r had_key had_want had_python <"$stamp"
    # "dev" holds all of "runtime".
    if [[ $had_key == "$key" && ($had_want == "$want" || $had_want == dev) &&
        ${python:-$had_python} == "$had_python" ]]; then
        exit 0
    fi
    [[ $had_want == dev ]] && locks=(requirements/dev.txt) && want=dev
fi

[[ -n ${python:-} ]] || python=$(find_python)
say "setting up .venv ($want) with $("$python" --version)"
make_environment "$python"
pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet --no-input)
requirements=()
for lock in "${locks[@]}"; do requirements+=(-r "$lock"); done
"${pip[@]}" install --use-pep517 --require-hashes "${requirements[@]}"
"${pip[@]}" install --no-deps --no-build-isolation --editable .
echo "$key $want $python" >"$stamp"
