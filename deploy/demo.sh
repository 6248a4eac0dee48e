#!/bin/bash
# What `make demo` runs once everything is built: starts the service, sends a job of four operations each over
# HTTP with curl, checks every answer against known values, shows where the time went, stops the service.
set -euo pipefail
cd "$(dirname "$0")/.."
blasd=${BLASD:-build/blasd}
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d "${TMPDIR:-/tmp}/blasd-demo.XXXXXX")
server=""
stop() {
    status=$?
    if [ -n "$server" ]; then
        kill -TERM "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    if [ $status -ne 0 ]; then
        echo "demo: FAILED; the service's log:" >&2
        tail -n 40 "$work/log" >&2 || true
    fi
    rm -rf "$work"
}
trap stop EXIT

"$blasd" up --listen 127.0.0.1:0 --data "$work/data" >"$work/ready" 2>"$work/log" &
server=$!
for _ in $(seq 1200); do
    grep -q '^ready ' "$work/ready" && break
    kill -0 "$server" 2>/dev/null || { echo "demo: the service did not start" >&2; exit 1; }
    sleep 0.1
done
url=$(sed -n 's/^ready //p' "$work/ready")
[ -n "$url" ] || { echo "demo: the service was not ready within two minutes" >&2; exit 1; }
echo "blasd is ready at $url"
echo

send() { curl --noproxy '*' --silent --show-error --fail-with-body --max-time 60 "$@"; }

# 1. JSON
send "$url/jobs?wait=30" -H 'Content-Type: application/json' \
    -d '{"op":"matmul","inputs":{"a":[[1,2],[3,4]],"b":[[5,6],[7,8]]}}' >"$work/matmul.json"
# 2. .npy files in a form
"$python" deploy/demo_data.py make "$work"
send "$url/jobs?wait=30" -F op=solve -F a=@"$work/a.npy" -F b=@"$work/b.npy" >"$work/solve.json"
# 3. one safetensors blob
send "$url/jobs?wait=30" -H 'Content-Type: application/x-safetensors' \
    --data-binary @"$work/distance.safetensors" >"$work/distance.json"
# 4. JSON again, with a parameter left to its default
send "$url/jobs?wait=30" -H 'Content-Type: application/json' --data-binary @"$work/regression.json.in" \
    >"$work/regression.json"

"$python" deploy/demo_data.py check "$work"
