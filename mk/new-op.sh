#!/bin/sh
# Writes the folder of a new operation, which builds and passes its tests as it is:  mk/new-op.sh NAME
# Nothing else is edited: make finds it. kernels/README.md says what to do next.
set -eu
name=${1:-}
case $name in
    ''|*[!a-z0-9_]*|[!a-z]*)
        echo "make new-op NAME=name: lower-case letters, digits and _, a letter first" >&2
        exit 2
        ;;
esac
if [ ${#name} -gt 31 ]; then echo "new-op: $name is longer than 31 characters" >&2; exit 2; fi
if [ -e "kernels/$name" ]; then echo "new-op: kernels/$name is there" >&2; exit 1; fi
upper=$(echo "$name" | tr a-z A-Z)
mkdir "kernels/$name"
for file in NAME.def op_NAME.c NAME.h cpu_NAME.c ref_NAME.c README.md test_NAME.c; do
    to=kernels/$name/$(echo "$file" | sed "s/NAME/$name/")
    case $file in test_*) to=tests/unit/kernels/test_$name.c ;; esac
    sed "s/\(BLASD_[A-Z_]*\)NAME/\1$upper/g; s/NAME/$name/g" "mk/new-op/$file" >"$to"
    echo "$to"
done
