#!/bin/sh
# Writes a C table of pointers that ends with NULL, from the names given (none: an empty table):
#   mk/table.sh HEADER OBJECT PREFIX ELEMENT TABLE[=.MEMBER] … -- [NAME …]
# Each NAME is an object PREFIX_NAME of the type OBJECT; a TABLE points at the objects, or at the MEMBER of each,
# both of the type ELEMENT that stands before it.
set -eu
header=$1 object=$2 prefix=$3
shift 3
tables=""
while [ "$1" != -- ]; do
    tables="$tables$1|$2
"
    shift 2
done
shift
echo "#include \"$header\""
for name in "$@"; do echo "extern const $object ${prefix}_$name;"; done
printf '%s' "$tables" | while IFS='|' read -r element table; do
    member=${table#"${table%%=*}"}
    table=${table%%=*}
    echo "extern const $element *const ${table}[];"
    echo "const $element *const ${table}[] = {"
    for name in "$@"; do echo "    &${prefix}_$name${member#=},"; done
    echo "    NULL,"
    echo "};"
done
