#!/usr/bin/env bash
# Nine requests, in turn to two gateways: six pass, whichever gateway is asked.
source "$(dirname "$0")/../common.sh"
export REDIS_PORT=${REDIS_PORT:-6390}
second=${SECOND_PORT:-8081}

start_upstream
start redis redis-server --port "$REDIS_PORT" --bind 127.0.0.1 --save '' --dir "$log"
wait_for "$REDIS_PORT"
start gateway-1 sluice run -c sluice.yaml
PORT=$second start gateway-2 sluice run -c sluice.yaml
wait_for "$PORT"
wait_for "$second"

for turn in 1 2 3 4 5 6 7 8 9; do
    ((turn % 2)) && port=$PORT || port=$second
    echo "gateway $((2 - turn % 2)): $(ask "http://127.0.0.1:$port/")"
done
