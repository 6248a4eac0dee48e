#!/bin/bash
# Integration tests with every job sent to the card, by what pack.sh made.
#   tests/gpu/answers.sh FOLDER TEST…
set -euo pipefail
folder=$(realpath "${1:?FOLDER}")
shift
cd "$(dirname "$0")/../.."
export PATH="$folder/bin:$PATH" LD_LIBRARY_PATH="$folder/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}"
export BLASD="$folder/bin/blasd" BLASD_TEST_DEVICE=cuda
exec python3 -m pytest -q -p no:cacheprovider --tb=short "$@"
