#!/bin/sh
# The linker's version script of the client library: what the public header declares, and no more.
#   exports.sh HEADER
set -eu
echo 'BLASD_0 {'
echo '    global:'
grep -v '^typedef' "$1" | sed -n 's/^[a-z].*[ *]\(blasd_[a-z_]*\)(.*/        \1;/p'
echo '    local: *;'
echo '};'
