#!/usr/bin/env bash
# Alice's password is guessed three times, from wherever; Bob can still log in.
source "$(dirname "$0")/../common.sh"

start gateway sluice run -c sluice.yaml
wait_for "$PORT"

login() {
    ask -H 'Content-Type: application/json' --data "$1" "http://127.0.0.1:$PORT/login"
}

for body in '{"user": "alice", "password": "1"}' '{"password": "2", "user": "\u0061lice"}' \
    '{"user": "alice", "password": "3"}' '{"user": "alice", "password": "4"}' \
    '{"user": "bob", "password": "1"}' '{"user": "bob", "user": "alice"}' '{"password": "5"}'; do
    echo "$body: $(login "$body")"
done
