#!/usr/bin/env bash
# Two reports at once: one is made, the other refused. Then the user's own limit is reached.
source "$(dirname "$0")/../common.sh"

start app python3 app.py
wait_for "$PORT"

url=http://127.0.0.1:$PORT/report
first=$(mktemp -p "$log")
ask -H "X-User: alice" "$url" >"$first" &
asking=$!
sleep 0.2
echo "second, meanwhile: $(ask -H "X-User: alice" "$url")"
wait "$asking"
echo "first: $(<"$first")"
for number in third fourth fifth; do
    echo "$number: $(ask -H "X-User: alice" "$url")"
done
