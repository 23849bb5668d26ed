#!/usr/bin/env bash
# Alice spends her three requests; Bob's are untouched; nobody gets in without a key.
source "$(dirname "$0")/../common.sh"

start_upstream
start gateway sluice run -c sluice.yaml
wait_for "$PORT"

for key in alice alice alice alice bob; do
    echo "$key: $(ask -H "X-API-Key: $key" "http://127.0.0.1:$PORT/")"
done
echo "no key: $(ask "http://127.0.0.1:$PORT/")"
