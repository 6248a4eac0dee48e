#!/bin/sh
# Writes the Redis ACL rules of a worker as a C text:  mk/worker-acl.sh contract.lua FILE.lua …
# They allow the functions and commands in the contract's lines `-- workers call` and `-- workers send`, and each command that the
# functions call, since Redis checks those against the rights of whoever calls the function.
set -eu
rules=$(awk '
    /^#!lua name=/ { library = substr($0, index($0, "=") + 1) }
    /^-- workers call / { for (i = 4; i <= NF; i++) print "0 +fcall|" library "_" $i }
    /^-- workers send / { for (i = 4; i <= NF; i++) print "1 +" tolower($i) }
    { while (match($0, /call(_many)?\(\047[A-Z]+\047(, \047[A-Z]+\047)?/)) {
        words = substr($0, RSTART, RLENGTH)
        $0 = substr($0, RSTART + RLENGTH)
        sub(/^[^\047]*/, "", words); gsub(/\047/, "", words); sub(/, /, "|", words)
        print "1 +" tolower(words) } }' "$@" | sort -u | cut -d' ' -f2 | tr '\n' ' ' | sed 's/ $//')
printf 'static const char worker_acl[] = "-@all %s";\n' "$rules"
