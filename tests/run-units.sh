#!/bin/bash
# Runs unit test programs, as many at a time as there are processors; prints one line in all, and the output of those that failed.
set -uo pipefail
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export logs

one() {  # one PROGRAM: its output, and behind it "status N", in a file of its own
    local log=$logs/${1//\//_}
    "$1" >"$log" 2>&1
    echo "status $?" >>"$log"
}
export -f one
printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -n 1 bash -c 'one "$0"'

failed=0 tests=0
for program in "$@"; do
    log=$logs/${program//\//_}
    if [ "$(tail -n 1 "$log")" = "status 0" ]; then
        tests=$((tests + $(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')))
    else
        failed=$((failed + 1))
        echo "=== $program failed ($(tail -n 1 "$log"))"
        # first what failed: a sanitizer's report of what it left behind may be long
        grep -E '^\[ *(ERROR|LINE|FAILED) ' "$log" | head -n 40
        grep -v -E '^\[( RUN      |       OK )\]' "$log" | tail -n 100
    fi
done
echo "unit: $tests tests in $# programs, $failed programs failed"
[ $failed -eq 0 ]
