#!/usr/bin/env bash
# Seven requests against a limit of five per minute: the last two are refused.
source "$(dirname "$0")/../common.sh"

start_upstream
start gateway sluice run -c sluice.yaml
wait_for "$PORT"

for _ in 1 2 3 4 5 6 7; do
    ask "http://127.0.0.1:$PORT/"
done
