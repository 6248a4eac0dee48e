#!/bin/bash
# The service on the card under mixed small jobs, from what pack.sh made; prints a line of JSON: jobs a second, the share of
# time in which multiprocessors worked (dmon's GPM metric, where this driver has it) and that in which any kernel ran.
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
gpm=""
! nvidia-smi dmon -s u --gpm-metrics 2 -c 1 >/dev/null 2>&1 || gpm="--gpm-metrics 2"
nvidia-smi dmon -s u $gpm -d 1 >"$work/busy" & # gpu sm mem … and, with it, SM utilisation
sampler=$!
load "$work/load.json" >"$work/result"
kill $sampler 2>/dev/null || true
# the mean of a column, begin and end left out
mean() {
    awk -v at="$1" '!/^#/ && $(at < 0 ? NF : at) ~ /^[0-9.]+$/ { list[n++] = $(at < 0 ? NF : at) }
         END { for (i = int(n / 10); i < n - int(n / 10); i++) { sum += list[i]; m++ } if (m) printf "%.1f", sum / m; else printf "unknown" }' "$work/busy"
}
active=unknown
[ -z "$gpm" ] || active=$(mean -1)
figure() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" "$work/result" | head -n 1; }
printf '{"op":"service","case":"mixed small jobs, %s s","method":"jobs a second %s, wrong %s, errors %s; multiprocessors worked %s per cent, kernels ran %s"}\n' \
    "$seconds" "$(figure rate)" "$(figure wrong)" "$(figure errors)" "$active" "$(mean 2)"
[ "$(figure wrong)" = 0 ] && [ "$(figure errors)" = 0 ]
