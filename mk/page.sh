#!/bin/sh
# Writes a page as C: the array NAME, the same compressed as NAME_gz, and NAME_tag, by which it is known again:
# mk/page.sh NAME FILE
set -eu
at=$(dirname "$0")
"$at/bytes.sh" "$1" "$2"
gzip -9nc "$2" | "$at/bytes.sh" "$1_gz" -
echo "static const char $1_tag[] = \"$(sha256sum <"$2" | cut -c 1-16)\";"
