#!/bin/sh
# Writes the page as one document, with its styles, modules and picture in it, and the policy that lets in these alone:
# mk/console.sh FOLDER
set -eu
at=$(dirname "$0")
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

# a source of a Content-Security-Policy: what has this hash
hash_of() {
    octal=$(sha256sum <"$1" | awk '{ for (i = 1; i <= 64; i += 2)
        printf "\\%03o", (index("0123456789abcdef", substr($1, i, 1)) - 1) * 16 + index("0123456789abcdef", substr($1, i + 1, 1)) - 1 }')
    # shellcheck disable=SC2059 # the escapes are what is wanted of it
    printf "'sha256-%s'" "$(printf "$octal" | base64)"
}

awk -v folder="$1" -f "$at/console.awk" >"$made/script"
cp "$1/style.css" "$made/style"
icon="data:image/svg+xml;base64,$(base64 -w 0 <"$1/icon.svg")"
sed "s|\"icon.svg\"|\"$icon\"|" "$1/index.html" | awk -v made="$made" '
    function all(file, before, after, line) {
        printf "%s", before
        while ((getline line <(made "/" file)) > 0) print line
        print after
    }
    /<link rel="stylesheet" href="style.css">/ { all("style", "<style>", "</style>"); next }
    /<script type="module" src="app.js">/ { all("script", "<script type=\"module\">", "</script>"); next }
    { print }' >"$made/page"
"$at/page.sh" console_html "$made/page"
cat <<END
#define CONSOLE_POLICY                                                                                                  \\
    "default-src 'none'; script-src $(hash_of "$made/script"); style-src $(hash_of "$made/style"); img-src data:; "    \\
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
END
