#!/bin/bash
# `make test-gpu`: what only a machine with a GPU can tell, in parts that each end within eight minutes. Needs what blasd
# is built with, nvcc among it, or with --packed what tests/gpu/pack.sh made on another machine; asks nothing.
#   tests/gpu/run.sh [--out DIR] [--packed] [--left] [--dry-run] [PART…]
# Parts, in order of worth; none named: all of them.
#   conformance  the tests of every operation on the device
#   answers      the numeric tests of the whole service, every job sent to the card: needs what tests/gpu/pack.sh made,
#                pytest, hypothesis, NumPy, SciPy and jsonschema
#   launches     solve at the sizes where a launch's shared memory changes, each in a process of its own
#   solve distance regression matmul   benchmarks, each case beside the direct library call
#   peers        PyTorch and CuPy, where this machine has them
#   service      blasd itself under mixed jobs, the card's load sampled: needs what tests/gpu/pack.sh made
#   leaks        10,000 batches
#   memcheck synccheck racecheck   compute-sanitizer over the conformance tests
#   ncu          Nsight Compute on six kernels
# DIR (bench/results/gpu) gets `steps`, a line for each step as it ends; `PART.rows`, a line of JSON for each measured case
# as it comes; `logs`; and after every call `table.json` and `table.txt` of all rows there. A part that is named again
# begins anew; with --left only its steps that have not passed. BLASD_GPU_PART_S: seconds of a part (470); a step that is
# not done by then is ended, and those behind it are left. BLASD_GPU_JOBS: how many tests run side by side (4); benchmarks
# run alone.
# Exit: 0 all passed; 1 something failed or was left; 3 there is no GPU, or no nvcc to build with.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
all="conformance answers launches solve distance regression matmul peers service leaks memcheck synccheck racecheck ncu"
build=${BUILD:-build/gpu} carry=${BLASD_CARRY:-build/carry}
out=bench/results/gpu packed="" left="" dry="" parts=""
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:?--out DIR}; shift ;;
        --packed) packed=1 ;;
        --left) left=1 ;;
        --dry-run) dry=1 ;;
        *) case " $all " in *" $1 "*) parts="$parts $1" ;; *) echo "test-gpu: no part $1; there are: $all"; exit 1 ;; esac ;;
    esac
    shift
done
: "${parts:=$all}"
make=(make --no-print-directory -s -f tests/gpu/Makefile "BUILD=$build")
# a tool of the toolkit, which need not be in PATH
tool() { command -v "$1" || ls "/usr/local/cuda/bin/$1" 2>/dev/null || echo "$1"; }

if [ -n "$packed" ]; then
    [ -x "$carry/gpu/gpu_probe" ] || { echo "test-gpu: no programs in $carry/gpu; tests/gpu/pack.sh puts them there"; exit 1; }
    build=$carry BLASD_GPU_BUILT=1
    for file in "$carry"/lib/*; do # what the machine has itself is nearer to its own Python
        if ldconfig -p 2>/dev/null | grep -q "[[:space:]]${file##*/} "; then rm -f "$file"; fi
    done
    export LD_LIBRARY_PATH="$PWD/$carry/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}"
fi
if [ -z "$dry" ] && [ -z "${BLASD_GPU_BUILT:-}" ]; then # BLASD_GPU_BUILT=1: the programs are there, ask for nothing
    [ -x "$(tool nvcc)" ] || { echo "test-gpu: no nvcc found (looked in PATH and /usr/local/cuda/bin); install a CUDA toolkit, 12.5 or later"; exit 3; }
    if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
        echo "test-gpu: no NVIDIA GPU on this machine (no /dev/nvidiactl); nothing was built or run"
        exit 3
    fi
    "${make[@]}" -j"$(nproc)" gpu-programs || { echo "test-gpu: the build failed"; exit 1; }
fi
[ -n "$dry" ] || mkdir -p "$out/logs"
names=""
case $parts in
    *conformance* | *check*) names=$(if [ -n "$packed" ]; then cat "$build/gpu/names"; else "${make[@]}" gpu-names; fi) ;;
esac
failed=0 deadline=0 part=""

# step NAME COMMAND…: within what is left of the part's time
step() {
    local name=$1 start=$SECONDS status room=$((deadline - SECONDS)) log=$out/logs/$part-$1
    shift
    if [ -n "$dry" ]; then echo "$part $name: $*"; return; fi
    if [ -n "$left" ] && grep -q "^$part $name ok" "$out/steps" 2>/dev/null; then return; fi
    if [ $room -le 0 ]; then
        echo "$part $name left" | tee -a "$out/steps"
        return
    fi
    timeout -k 5 $room "$@" 2>&1 | tee "$log" | grep --line-buffered '^{' >>"$out/$part.rows"
    status=${PIPESTATUS[0]}
    if [ "$status" -eq 0 ]; then
        echo "$part $name ok $((SECONDS - start)) s" | tee -a "$out/steps"
    else
        tail -n 20 "$log"
        echo "$part $name failed exit $status $((SECONDS - start)) s" | tee -a "$out/steps"
    fi
}
# the same, beside others
beside() {
    while [ "$(jobs -rp | wc -l)" -ge "${BLASD_GPU_JOBS:-4}" ]; do wait -n; done
    step "$@" &
}
sanitize() { # TOOL
    local program
    for program in $names; do
        beside "${program##*/}" "$(tool compute-sanitizer)" --tool "$1" --error-exitcode 9 "$program"
    done
}

part_conformance() { for program in $names; do beside "${program##*/}" "$program"; done; }
part_answers() {
    local name
    for name in property_matmul property_solve property_distance property_regression property_decompositions property_routes \
        numerics numerics_regression regression_edges solve_edges decompositions; do
        beside $name tests/gpu/answers.sh "$carry" tests/integration/test_$name.py
    done
    beside card tests/gpu/answers.sh "$carry" tests/gpu/test_card.py
}
part_launches() {
    local n
    for n in 87 88 89 90 91 256 257 1005 1006 1015 1024; do beside "float32-$n" "$build/gpu/gpu_launch" float32 $n; done
    for n in 57 58 59 60 61 256 257 670 671 676 682 683; do beside "float64-$n" "$build/gpu/gpu_launch" float64 $n; done
}
part_solve() { step bench "$build/gpu/gpu_bench_solve"; }
part_distance() { step bench "$build/gpu/gpu_bench_distance"; }
part_regression() { step bench "$build/gpu/gpu_bench_regression"; }
part_matmul() { step bench "$build/gpu/gpu_bench_matmul"; }
part_peers() { step peers python3 tests/gpu/peers.py; }
part_service() { step load tests/gpu/service.sh "$carry"; }
part_leaks() { step batches "$build/gpu/gpu_leaks"; }
part_memcheck() { sanitize memcheck; }
part_synccheck() { sanitize synccheck; }
part_racecheck() { sanitize racecheck; }
part_ncu() {
    local pair
    for pair in solve_small:solve solve_by_blocks:solve solve_step_factor:solve pair_matrix:distance \
        multiply_rows:regression find_singular:regression; do
        step "${pair%:*}" "$(tool ncu)" --set full --kernel-name "regex:${pair%:*}" --launch-count 3 \
            "$build/gpu/gpu_bench_${pair#*:}" 0.1
    done
}

for part in $parts; do
    deadline=$((SECONDS + ${BLASD_GPU_PART_S:-470}))
    if [ -z "$dry$left" ]; then
        rm -f "$out/$part.rows"
        [ ! -e "$out/steps" ] || sed -i "/^$part /d" "$out/steps"
    fi
    "part_$part"
    wait
    # how each step ended last
    [ -n "$dry" ] || awk -v part="$part" '$1 == part { last[$2] = $3 } END { for (i in last) if (last[i] != "ok") exit 1 }' "$out/steps" || failed=1
done
[ -z "$dry" ] || exit 0

facts=$("$build/gpu/gpu_probe") || exit $?
fact() { sed -n "s/^$1=//p" <<<"$facts"; }
smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
toolkit=$("$(tool nvcc)" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
rows=$(cat "$out"/*.rows 2>/dev/null)
{
    printf '{"gpu":"%s","driver":"%s","clocks":"%s","toolkit":"%s","commit":"%s","date":"%s","copy_gbytes_s":%s,"rows":[\n' \
        "$(fact name)" "$(smi driver_version)" "$(smi clocks.max.sm,clocks.max.mem,power.limit)" "$toolkit" "$commit" \
        "$(date -u +%FT%TZ)" "$(fact copy_gbytes_s)"
    [ -z "$rows" ] || sed '$!s/$/,/' <<<"$rows"
    echo ']}'
} >"$out/table.json"
{
    echo "$(fact name), $(fact units) multiprocessors, driver $(smi driver_version), CUDA $toolkit, commit $commit, $(date -u +%F)"
    echo "Clocks at most, power limit: $(smi clocks.max.sm,clocks.max.mem,power.limit)"
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
         /./ { printf "%-10s %-52s %-22s %12s %12s %9s %-28s %12s %11s\n", get("op"), get("case"), get("method"), get("compute_us"), get("wall_us"), get("tflops"), get("direct"), get("direct_us"), get("direct_over_ours") }' <<<"$rows"
} >"$out/table.txt"
cat "$out/table.txt"
echo "test-gpu: $out/table.json and $out/table.txt written; steps that failed or were left: $(grep -c -v ' ok ' "$out/steps")"
exit $failed
