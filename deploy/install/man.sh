#!/bin/sh
# The manual pages, into a folder: of the commands from what they say of themselves, of the C client
# from its header.
#   man.sh BLASD HEADER FOLDER DOCS
# DOCS: where the documents will lie that the texts name as docs/NAME.md.
set -eu
blasd=$1 header=$2 out=$3 docs=$4 here=$(dirname "$0")
version=$("$blasd" --version | cut -d' ' -f2)
rm -rf "$out/man1" "$out/man3"
mkdir -p "$out/man1" "$out/man3"

"$here/commands.sh" "$blasd" | while read -r command summary; do
    case $command in version|help) continue ;; esac
    "$blasd" "$command" --help 2>&1 |
        awk -f "$here/command-man.awk" -v name="blasd-$command" -v version="$version" -v summary="$summary" \
            >"$out/man1/blasd-$command.1"
done
{
    printf '.TH BLASD 1 "" "blasd %s" "User Commands"\n.SH NAME\nblasd \\(em linear algebra behind an HTTP API\n' "$version"
    printf '.SH SYNOPSIS\n.B blasd\n.I COMMAND\n[options]\n.SH COMMANDS\n'
    "$here/commands.sh" "$blasd" | while read -r command summary; do
        printf '.TP\n.B %s\n%s\n' "$command" "$summary"
    done
    printf '.SH SEE ALSO\n'
    "$here/commands.sh" "$blasd" | while read -r command _; do
        case $command in version|help) ;; *) printf '.BR blasd-%s (1),\n' "$command" ;; esac
    done
    printf '.BR libblasd (3)\n'
} >"$out/man1/blasd.1"
awk -f "$here/header-man.awk" -v version="$version" -v out="$out/man3" "$header"
sed -i "s|docs/\\([a-z-]*\\.md\\)|$docs/\\1|g" "$out"/man[13]/*
