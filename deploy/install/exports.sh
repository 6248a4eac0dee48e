#!/bin/sh
# What the client library shows: the functions that the public header declares, and no more, as the
# linker's version script or, with `names`, as a list.
#   exports.sh HEADER [names]
set -eu
functions=$(grep -v '^typedef' "$1" | sed -n 's/^[a-z].*[ *]\(blasd_[a-z_]*\)(.*/\1/p')
if [ "${2:-}" = names ]; then
    printf '%s\n' $functions
else
    echo 'BLASD_0 {'
    echo '    global:'
    printf '        %s;\n' $functions
    echo '    local: *;'
    echo '};'
fi
