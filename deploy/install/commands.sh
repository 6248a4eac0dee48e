#!/bin/sh
# The commands of a blasd, one a line with what each does, from its table of them.
set -eu
"$1" help | sed -n 's/^  \([a-z][a-z-]*\)  *\(.*\)$/\1 \2/p'
