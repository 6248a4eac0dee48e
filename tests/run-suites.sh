#!/bin/bash
# run-suites.sh SUITE… [--beside SUITE…]: runs suites of tests, each a target of make, one after the other, whatever
# became of the one before; and beside them, with what they leave of the machine, the others, which are heard at their end.
# What failed is said again at last, so that the last lines of a long run say what is wrong; or else the last suite's own.
set -uo pipefail
logs=$(mktemp -d)
failed=() suites=() beside=()
while [ $# -gt 0 ] && [ "$1" != --beside ]; do suites+=("$1"); shift; done
[ $# -eq 0 ] || beside=("${@:2}")

started=()
trap '[ ${#started[@]} -eq 0 ] || kill "${started[@]}" 2>/dev/null; rm -rf "$logs"' EXIT
for suite in "${beside[@]}"; do
    nice "${MAKE:-make}" --no-print-directory -s "$suite" >"$logs/$suite" 2>&1 &
    started+=($!)
done
for suite in "${suites[@]}"; do
    "${MAKE:-make}" --no-print-directory -s "$suite" 2>&1 | tee "$logs/$suite" || failed+=("$suite")
done
for i in "${!beside[@]}"; do
    wait "${started[$i]}" || failed+=("${beside[$i]}")
    cat "$logs/${beside[$i]}"
done
started=()
for suite in "${failed[@]}"; do
    echo "=== $suite failed; its end was"
    tail -n 150 "$logs/$suite"
done
[ ${#failed[@]} -eq 0 ] || { echo "make test: failed: ${failed[*]}"; exit 1; }
[ ${#beside[@]} -eq 0 ] || tail -n 1 "$logs/${suites[-1]}"
