# Sourced by each example's run.sh: starts servers in the background and ends them with the script.
#
# PORT and UPSTREAM_PORT may be set where the usual ones are taken.
set -euo pipefail
cd "$(dirname "$0")"

export PORT=${PORT:-8080} UPSTREAM_PORT=${UPSTREAM_PORT:-9000}
if [[ -x ../../.venv/bin/sluice ]]; then
    PATH=$(cd ../../.venv/bin && pwd):$PATH
fi
log=$(mktemp -d)
started=()

finish() {
    status=$?
    ((${#started[@]} == 0)) || kill "${started[@]}" 2>/dev/null || true
    wait
    ((status == 0)) || cat "$log"/* >&2
    rm -rf "$log"
}
trap finish EXIT

# start NAME COMMAND...: run it in the background.
start() {
    local name=$1
    shift
    "$@" >"$log/$name" 2>&1 &
    started+=($!)
}

# wait_for PORT: until something listens there.
wait_for() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        if (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
            return
        fi
        sleep 0.05
    done
    echo "nothing listens on port $1" >&2
    return 1
}

# ask CURL-ARGUMENTS...: print the status of the answer and the time after which to try again.
ask() {
    curl --silent --show-error --output /dev/null \
        --write-out '%{http_code} retry-after=%header{retry-after}\n' "$@" |
        sed 's/ retry-after=$//'
}

start_upstream() {
    start upstream python3 -m http.server --bind 127.0.0.1 --directory ../site "$UPSTREAM_PORT"
    wait_for "$UPSTREAM_PORT"
}
