#!/bin/bash
# Sends mutated requests to a service for so many seconds, each round by another seed, which a failure names.
#   tests/fuzz/front_end.sh BLASD SECONDS
set -euo pipefail
cd "$(dirname "$0")/../.."
end=$((SECONDS + $2)) rounds=0
while [ $SECONDS -lt $end ]; do
    BLASD=$(realpath "$1") BLASD_ATTACK_SEED=$RANDOM$RANDOM BLASD_ATTACK_SCALE=10 BLASD_NO_CONFINE=1 \
        ASAN_OPTIONS=detect_stack_use_after_return=0 \
        "${PYTHON:-/usr/bin/python3}" -m pytest -q -p no:cacheprovider --disable-warnings tests/attack/test_mutants.py >build/fuzz/front_end.log 2>&1 \
        || { tail -n 80 build/fuzz/front_end.log; exit 1; }
    rounds=$((rounds + 1))
done
echo "fuzz front end: $rounds rounds of 7,500 requests"
