#!/bin/bash
# `make test-gpu`: conformance, leaks and benchmarks on a machine that has nvcc, make, a C compiler and a
# GPU; nothing else is needed, and nothing is asked. Results: bench/results/gpu-NAME.json and .txt.
#   BLASD_GPU_QUICK=1      conformance and a short search for leaks, no benchmarks
#   BLASD_GPU_SANITIZER=1  the conformance tests once more under compute-sanitizer (memcheck, racecheck)
# Exit: 0 all passed; 1 something failed; 3 there is no GPU, or no nvcc to build with.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build/gpu}
make=(make --no-print-directory -s -f tests/gpu/Makefile "BUILD=$build")

if [ -z "$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)" ]; then
    echo "test-gpu: no nvcc found (looked in PATH and /usr/local/cuda/bin); install a CUDA toolkit, 12.5 or later"
    exit 3
fi
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    echo "test-gpu: no NVIDIA GPU on this machine (no /dev/nvidiactl); nothing was built or run"
    exit 3
fi
"${make[@]}" -j"$(nproc)" gpu-programs || { echo "test-gpu: the build failed"; exit 1; }
facts=$("$build/gpu/gpu_probe") || exit $?
fact() { sed -n "s/^$1=//p" <<<"$facts"; }
name=$(fact name)
echo "test-gpu: on $name, $(fact units) multiprocessors, $(fact memory_gb) GB"

failed=0
log=$(mktemp)
rows=$(mktemp)
trap 'rm -f "$log" "$rows"' EXIT
step() {  # step NAME COMMAND...
    local what=$1 start=$SECONDS status
    shift
    timeout "${BLASD_GPU_LIMIT:-1200}" "$@" >"$log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        echo "$what: ok ($((SECONDS - start)) s; $(grep -E ' failed$' "$log" | tail -n 1))"
    else
        failed=1
        tail -n 30 "$log"
        echo "$what: FAILED (exit $status)"
    fi
}
tests=$("${make[@]}" gpu-names)
for program in $tests; do step "conformance: $(basename "$program")" "$program"; done
if [ "${BLASD_GPU_SANITIZER:-0}" = 1 ]; then
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    [ -n "$sanitizer" ] || { echo "test-gpu: no compute-sanitizer here"; failed=1; }
    for program in $tests; do
        for tool in memcheck racecheck; do
            [ -n "$sanitizer" ] && step "$tool: $(basename "$program")" \
                "$sanitizer" --tool "$tool" --error-exitcode 9 "$program"
        done
    done
fi
if [ "${BLASD_GPU_QUICK:-0}" = 1 ]; then
    step "leaks over 1000 batches" "$build/gpu/gpu_leaks" 1000
    exit $failed
fi
step "leaks over 10000 batches" "$build/gpu/gpu_leaks"

for program in "$build"/gpu/gpu_bench_*; do
    case $program in *.d | *.o) continue ;; esac
    step "measured: $(basename "$program")" "$program"
    grep '^{' "$log" >>"$rows"
done
# what PyTorch and CuPy take for the same, where this machine has them
step "peers" python3 tests/gpu/peers.py
grep '^{' "$log" >>"$rows"

mkdir -p bench/results
out=bench/results/gpu-$(tr -cs 'A-Za-z0-9\n' '-' <<<"$name" | tr A-Z a-z | sed 's/-*$//')
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
toolkit=$( (command -v nvcc >/dev/null && nvcc --version || /usr/local/cuda/bin/nvcc --version) | sed -n 's/.*release \([0-9.]*\).*/\1/p')
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
{
    printf '{"gpu":"%s","driver":"%s","toolkit":"%s","commit":"%s","date":"%s","copy_gbytes_s":%s,"rows":[\n' \
        "$name" "$driver" "$toolkit" "$commit" "$(date -u +%FT%TZ)" "$(fact copy_gbytes_s)"
    sed '$!s/$/,/' "$rows"
    echo ']}'
} >"$out.json"
{
    echo "$name, driver $driver, CUDA $toolkit, commit $commit, $(date -u +%F)"
    echo "Compute: between the arrival of the inputs and the outputs' being there, by the device's clock; wall: copies included."
    echo "direct/ours above 1: ours is faster. Medians."
    echo
    awk 'function get(key,    text) {
             if (match($0, "\"" key "\":\"[^\"]*\"")) {
                 text = substr($0, RSTART, RLENGTH); sub(/^"[^"]*":"/, "", text); sub(/"$/, "", text); return text
             }
             if (match($0, "\"" key "\":[-0-9.e+]*")) {
                 text = substr($0, RSTART, RLENGTH); sub(/^"[^"]*":/, "", text); return text
             }
             return "-"
         }
         BEGIN { printf "%-10s %-52s %-22s %12s %12s %9s %-28s %12s %11s\n", "op", "case", "method", "compute us", "wall us", "TFLOP/s", "beside", "its us", "direct/ours" }
         { printf "%-10s %-52s %-22s %12s %12s %9s %-28s %12s %11s\n", get("op"), get("case"), get("method"), get("compute_us"), get("wall_us"), get("tflops"), get("direct"), get("direct_us"), get("direct_over_ours") }' "$rows"
} >"$out.txt"
cat "$out.txt"
echo "test-gpu: $out.json and $out.txt written"
exit $failed
