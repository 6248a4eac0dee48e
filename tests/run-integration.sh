#!/bin/bash
# run-integration.sh PYTEST-ARGUMENTS…: runs tests several at a time. A few that fail run once more with nothing beside
# them, for most of what fails beside others is a wait that a busy machine made too long. The closing line names those
# that passed at the second try only: each is a defect of the test or of the service, and is to be mended.
set -uo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pytest=("${PYTHON:-python3}" -m pytest -q --tb=short -p no:cacheprovider --disable-warnings -rs)
most=5 # that run again: more is no accident

BLASD_TEST_FAILED=$folder/failed "${pytest[@]}" -n "${TEST_JOBS:-8}" --dist loadgroup --maxfail=20 "$@" |
    tee "$folder/first"
status=${PIPESTATUS[0]}
[ "$status" -eq 1 ] && [ -s "$folder/failed" ] || exit "$status"
mapfile -t failed <"$folder/failed"
[ "${#failed[@]}" -le "$most" ] || exit 1

echo "=== these failed beside others and run once more, alone: ${failed[*]}"
"${pytest[@]}" "${failed[@]}" || exit 1
passed=$(sed -n 's/.* \([0-9]*\) passed.*/\1/p' "$folder/first" | tail -n 1)
echo "$((${passed:-0} + ${#failed[@]})) passed, of which ${#failed[@]} at the second try, alone: ${failed[*]}"
