#!/bin/bash
# The operations on the CPU beside their peers, one after the other; what `make bench-kernels` prints.
#   bench/kernels/run.sh BUILD PYTHON
set -euo pipefail
build=$1 python=$2
cd "$(dirname "$0")/../.."
echo "load average before: $(cut -d' ' -f1-3 /proc/loadavg); $("$python" -c 'import numpy, scipy, sklearn
print("NumPy", numpy.__version__, "SciPy", scipy.__version__, "scikit-learn", sklearn.__version__)')"
"$build/bench/kernels/bench_matmul"
"$python" bench/kernels/bench_solve_numpy.py "$build/bench/kernels/bench_solve"
"$python" bench/kernels/bench_distance_scipy.py "$build/bench/kernels/bench_distance"
"$python" bench/kernels/bench_regression_peers.py "$build/bench/kernels/bench_regression"
BLASD=$build/blasd "$python" bench/kernels/bench_groups.py
