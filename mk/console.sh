#!/bin/sh
# Writes files as C arrays and a table of them, console_files: mk/console.sh FILE …
set -eu
rows=""
n=0
for file in "$@"; do
    "$(dirname "$0")/bytes.sh" "console_$n" "$file"
    case $file in
        *.html) type="text/html; charset=utf-8" ;;
        *.css) type=text/css ;;
        *.js) type=text/javascript ;;
        *.svg) type=image/svg+xml ;;
        *) echo "mk/console.sh: what is $file?" >&2; exit 1 ;;
    esac
    rows="$rows    {\"$(basename "$file")\", \"$type\", console_$n, sizeof console_$n - 1},
"
    n=$((n + 1))
done
printf 'static const struct { const char *name, *type, *bytes; size_t len; } console_files[] = {\n%s};\n' "$rows"
