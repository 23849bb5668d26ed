#!/usr/bin/env bash
# Runs the tests of all that builds on aiohttp with its newest release, pre-releases included:
# `scripts/next-aiohttp.sh [ARGUMENTS OF PYTEST]`.
#
# It is installed into `.venv-next-aiohttp`, which has everything else as the lock says. AIOHTTP
# names what to install instead: a requirement such as `aiohttp==3.15.0`, a wheel, or a folder.
# Needs `make dev`, which has the Python and the programs that tests start.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-next-aiohttp
wanted=${AIOHTTP:-aiohttp}
key=$(cat requirements/dev.txt pyproject.toml | sha256sum | cut -c1-16)$PWD

say() { printf 'sluice: %s\n' "$*" >&2; }

pip=(.venv/bin/python -m pip --python "$venv/bin/python" --disable-pip-version-check --quiet --no-input)
if [[ $(cat "$venv/sluice-stamp" 2>/dev/null) != "$key" ]]; then
    say "making $venv"
    rm -rf "$venv"
    .venv/bin/python -m venv --without-pip "$venv"
    "${pip[@]}" install --use-pep517 --require-hashes -r requirements/dev.txt
    "${pip[@]}" install --no-deps --no-build-isolation --editable .
    printf '%s' "$key" >"$venv/sluice-stamp"
fi
# The bound in pyproject.toml is what is put to the test; the rest of the lock stays.
"${pip[@]}" install --pre --upgrade --upgrade-strategy only-if-needed "$wanted"
say "with aiohttp $("$venv/bin/python" -c 'import aiohttp; print(aiohttp.__version__)')"
exec "$venv/bin/python" -m pytest --numprocesses="${JOBS:-3}" --dist=loadfile --no-loadscope-reorder \
    tests/wire tests/proxy tests/net tests/http tests/admin tests/library \
    tests/e2e/test_{backpressure,bodies,flood,leaving,messages,slow_clients,tls,too_many}.py \
    tests/e2e/test_websocket_suite.py "$@"
