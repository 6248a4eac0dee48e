#!/bin/sh
# Writes the files given, one behind the other, as a C array that ends with a zero:  mk/bytes.sh NAME FILE …
set -eu
name=$1
shift
echo "static const char ${name}[] = {"
cat "$@" | od -An -v -tx1 | sed "s/ \([0-9a-f][0-9a-f]\)/'\\\\x\1',/g"
echo "0};"
