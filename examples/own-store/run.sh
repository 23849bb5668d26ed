#!/usr/bin/env bash
# A store of one's own, installed and named by its URL: its counts outlive the gateway.
source "$(dirname "$0")/../common.sh"

python3 -m pip install --quiet --no-deps --no-index --no-build-isolation \
    --disable-pip-version-check --root-user-action=ignore --target "$log/site" . >"$log/pip" 2>&1
export PYTHONPATH=$log/site COUNTS=$log/counts.db

start_upstream
for round in first second; do
    start "gateway-$round" sluice run -c sluice.yaml
    gateway=$!
    wait_for "$PORT"
    for _ in 1 2; do
        echo "$round gateway: $(ask "http://127.0.0.1:$PORT/")"
    done
    kill "$gateway"
    wait "$gateway"
done
