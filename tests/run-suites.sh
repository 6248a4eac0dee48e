#!/bin/bash
# run-suites.sh SUITE… [--beside SUITE…]: runs suites of tests, each a target of make, one after the other, whatever
# became of the one before; and beside them, with what they leave of the machine, the others. Says one line of each suite;
# the ends of those that failed, and which they were, come last. Where all is well the last line is the closing one of the
# last suite that ran not beside, as its own runner wrote it.
set -uo pipefail
logs=$(mktemp -d)
failed=() suites=() beside=()
while [ $# -gt 0 ] && [ "$1" != --beside ]; do suites+=("$1"); shift; done
[ $# -eq 0 ] || beside=("${@:2}")

started=()
trap '[ ${#started[@]} -eq 0 ] || kill "${started[@]}" 2>/dev/null; rm -rf "$logs"' EXIT

told() {  # told SUITE STATUS: one line of how it went
    if [ "$2" -eq 0 ]; then
        echo "$1: ok: $(tail -n 1 "$logs/$1")"
    else
        failed+=("$1")
        echo "$1: FAILED (exit $2)"
    fi
}
start() { exec "${MAKE:-make}" --no-print-directory -s "$1" >"$logs/$1" 2>&1; }

for suite in "${beside[@]}"; do
    (renice -n 10 $BASHPID >/dev/null 2>&1; start "$suite") &
    started+=($!)
done
for suite in "${suites[@]}"; do
    [ ! -t 1 ] || echo "$suite …"
    (start "$suite")
    told "$suite" $?
done
for i in "${!beside[@]}"; do
    wait "${started[$i]}"
    told "${beside[$i]}" $?
done
started=()
for suite in "${failed[@]}"; do
    echo "=== $suite failed; its end was"
    tail -n 150 "$logs/$suite"
done
[ ${#failed[@]} -eq 0 ] || { echo "${TESTED:-make test}: failed: ${failed[*]}"; exit 1; }
tail -n 1 "$logs/${suites[-1]}"
