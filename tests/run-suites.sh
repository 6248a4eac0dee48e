#!/bin/bash
# Runs suites of tests, each a target of make, one after the other, whatever became of the one before; at the
# end says again how those ended that failed, so that the last lines of a long run say what is wrong.
set -uo pipefail
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=()
for suite in "$@"; do
    "${MAKE:-make}" --no-print-directory -s "$suite" 2>&1 | tee "$logs/$suite" || failed+=("$suite")
done
for suite in "${failed[@]}"; do
    echo "=== $suite failed; its end was"
    tail -n 150 "$logs/$suite"
done
[ ${#failed[@]} -eq 0 ] || { echo "make test: failed: ${failed[*]}"; exit 1; }
