#!/bin/sh
# Prints the packages that own the shared libraries of the programs given, so that an image can hold
# those and no compiler, whatever the distribution calls them.
#   deploy/runtime-packages.sh build/blasd …
set -eu
for program in "$@"; do ldd "$program"; done | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u |
    while read -r library; do
        file=$(readlink -f "$library")
        # on a merged /usr dpkg may know the file under either name
        dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "${file#/usr}" 2>/dev/null || true
    done | cut -d: -f1 | sort -u
