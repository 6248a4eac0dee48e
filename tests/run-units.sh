#!/bin/bash
# Runs unit test programs one after the other; prints one line in all, or the output of those that failed.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0 tests=0
for program in "$@"; do
    if "$program" >"$log" 2>&1; then
        count=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
        tests=$((tests + ${count:-0}))
    else
        failed=$((failed + 1))
        echo "=== $program failed (exit $?)"
        grep -v -E '^\[( RUN      |       OK )\]' "$log" | tail -n 100
    fi
done
echo "unit: $tests tests in $# programs, $failed programs failed"
[ $failed -eq 0 ]
