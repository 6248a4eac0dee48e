#!/bin/bash
# The service on the card under mixed small jobs, from what pack.sh made; prints a line of JSON. The share of time in which
# multiprocessors worked is NVIDIA's `gpu` of dmon's GPM metrics where this driver has them, else the share in which any
# kernel ran.
#   tests/gpu/service.sh FOLDER [SECONDS]
set -euo pipefail
cd "${1:?FOLDER}"
seconds=${2:-60}
export PATH="$PWD/bin:$PATH" LD_LIBRARY_PATH="$PWD/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}"
work=$(mktemp -d)
service="" sampler=""
end() {
    for one in $sampler $service; do kill -TERM "$one" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
blasd up --listen 127.0.0.1:0 --data "$work/data" >"$work/ready" 2>"$work/log" &
service=$!
for _ in $(seq 1200); do
    grep -q '^ready ' "$work/ready" && break
    kill -0 $service 2>/dev/null || { cat "$work/log"; exit 1; }
    sleep 0.1
done
url=$(sed -n 's/^ready //p' "$work/ready")
sed -e "s/PORT/${url##*:}/" -e "s/SECONDS/$seconds/" -e "s|FOLDER|$PWD|g" load.json >"$work/load.json"
if nvidia-smi dmon --gpm-metrics 2 -c 1 >/dev/null 2>&1; then
    nvidia-smi dmon --gpm-metrics 2 -d 1 >"$work/busy" & # SM utilisation
else
    nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits -lms 200 >"$work/busy" 2>/dev/null &
fi
sampler=$!
load "$work/load.json" >"$work/result"
kill $sampler 2>/dev/null || true
# the last field of a sample is the figure; begin and end are left out
busy=$(awk '!/^#/ && $NF ~ /^[0-9.]+$/ { list[n++] = $NF }
            END { for (i = int(n / 10); i < n - int(n / 10); i++) { sum += list[i]; m++ } printf "%.1f", m ? sum / m : -1 }' "$work/busy")
figure() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" "$work/result" | head -n 1; }
printf '{"op":"service","case":"mixed small jobs, %s s","method":"jobs a second %s, wrong %s, errors %s, busy %s per cent"}\n' \
    "$seconds" "$(figure rate)" "$(figure wrong)" "$(figure errors)" "$busy"
[ "$(figure wrong)" = 0 ] && [ "$(figure errors)" = 0 ]
