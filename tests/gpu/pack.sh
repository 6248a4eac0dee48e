#!/bin/bash
# Packs what tests/gpu/run.sh needs on a machine that has a card, a toolkit's libraries and nothing else: its programs where
# they are built, and for its parts `answers` and `service` blasd, the load generator, redis-server and the CUDA backend
# (built for one kind of card, so that it is small); and the libraries of all.
#   tests/gpu/pack.sh [FOLDER]      BUILD_GPU=DIR: where the programs and the backend lie (build/gpu)
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/carry} programs=${BUILD_GPU:-build/gpu}
so=$programs/blasd_cuda.so
[ -e "$so" ] || so=build/blasd_cuda.so
for file in build/blasd build/bench/load; do
    [ -x $file ] || { echo "pack: $file is not there: make build/blasd build/bench/load"; exit 1; }
done
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib"
cp build/blasd build/bench/load "$(command -v redis-server)" "$folder/bin/"
if [ -e "$so" ]; then cp "$so" "$folder/bin/blasd_cuda.so" && strip "$folder/bin/blasd_cuda.so"; else echo "pack: without $so"; fi
if [ -d "$programs/gpu" ]; then
    cp -r "$programs/gpu" "$folder/gpu"
    strip "$folder"/gpu/*
    make --no-print-directory -s -f tests/gpu/Makefile "BUILD=$folder" gpu-names >"$folder/gpu/names"
fi
# not the C library, which must be the machine's own, nor the toolkit's libraries, which are there
for file in "$folder"/bin/* "$folder"/gpu/*; do ldd "$file" 2>/dev/null || true; done | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
    grep -v -E '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libstdc\+\+|libgcc_s|libcuda|libcublas|libcublasLt|libcusolver|libcusparse|libnvJitLink|libgpu)\.so' |
    xargs -r -I{} cp -L {} "$folder/lib/"
python3 - "$folder" <<'PY'
import json, random, sys
folder = sys.argv[1]
random.seed(5)
whole = lambda m, n: [[random.randint(1, 8) for _ in range(n)] for _ in range(m)]
well = [[random.random() + (20 if i == j else 0) for j in range(20)] for i in range(20)]
jobs = {"matmul-4": (30, "matmul", {"a": whole(4, 4), "b": whole(4, 4)}), "matmul-16": (10, "matmul", {"a": whole(16, 16), "b": whole(16, 16)}),
        "matmul-64": (15, "matmul", {"a": whole(64, 64), "b": whole(64, 64)}), "solve-20": (15, "solve", {"a": well, "b": whole(20, 1)}),
        "distance-16x3": (15, "distance", {"x": whole(16, 3)}), "regression-50x3": (5, "regression", {"x": whole(50, 3), "y": [random.random() for _ in range(50)]})}
requests = []
for name, (weight, op, inputs) in jobs.items():
    with open(f"{folder}/{name}.json", "w") as body:
        json.dump({"op": op, "inputs": inputs, "device": "cuda"}, body)
    requests.append({"name": name, "weight": weight, "method": "POST", "path": "/jobs?wait=30", "headers": {"Content-Type": "application/json"},
                     "body": f"FOLDER/{name}.json", "status": 200, "contains": '"state":"succeeded"'})
spec = json.dumps({"host": "127.0.0.1", "port": 0, "connections": 256, "seconds": 0, "warmup": 2, "timeout": 60, "requests": requests})
open(f"{folder}/load.json", "w").write(spec.replace('"port": 0', '"port": PORT').replace('"seconds": 0', '"seconds": SECONDS'))
PY
du -sh "$folder"
