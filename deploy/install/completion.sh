#!/bin/sh
# Completion for a shell, from what the commands say of their options.
#   completion.sh bash|zsh BLASD
set -eu
shell=$1 blasd=$2 here=$(dirname "$0")
# several may stand in a line, before the two spaces behind which it says what they are for
options() {
    "$blasd" "$1" --help 2>&1 | sed -n -E "s/^ +(-[a-z], +)?(--[a-z])/\\2/; /^--/{ s/  .*//; p }" |
        grep -o -E -e '(^|, )--[a-z0-9-]+' | sed 's/^, //' | sort -u | tr '\n' ' '
}
# words behind the command, of one that has several ways, "blasd keys add NAME", and of jobs the operations
verbs() {
    case $1 in
        run|submit) ls "$here"/../../kernels/*/op_*.c | sed 's|.*/op_||; s|\.c$||' | sort | tr '\n' ' ' ;;
        *) usages "$1" ;;
    esac
}
usages() { "$blasd" "$1" --help 2>&1 | sed -n "s/^\\(usage:\\|      \\) blasd $1 \\([a-z]*\\)\\( .*\\|\\)\$/\\2/p" | tr '\n' ' '; }
names=$("$here/commands.sh" "$blasd" | cut -d' ' -f1 | tr '\n' ' ')
if [ "$shell" = zsh ]; then
    echo '#compdef blasd'
    echo 'local -a commands'
    echo 'if (( CURRENT == 2 )); then'
    echo '    commands=('
    "$here/commands.sh" "$blasd" | sed "s/'/'\\\\''/g; s/^\([a-z-]*\) \(.*\)/        '\1:\2'/"
    echo '    )'
    echo '    _describe command commands'
    echo '    return'
    echo 'fi'
    echo 'case $words[2] in'
else
    echo '_blasd() {'
    echo '    local word=${COMP_WORDS[COMP_CWORD]} words'
    echo '    case ${COMP_WORDS[1]} in'
fi
for command in $names; do
    case $command in version|help) continue ;; esac
    if [ "$shell" = zsh ]; then
        echo "$command) compadd -- $(verbs "$command")$(options "$command");;"
    else
        echo "    $command) words='$(verbs "$command")$(options "$command")' ;;"
    fi
done
if [ "$shell" = zsh ]; then
    echo 'esac'
    echo '_files'
else
    echo "    *) words='' ;;"
    echo '    esac'
    echo "    [ \"\$COMP_CWORD\" -eq 1 ] && words='$names'"
    echo '    COMPREPLY=($(compgen -W "$words" -- "$word"))'
    echo '    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))'
    echo '}'
    echo 'complete -o filenames -F _blasd blasd'
fi
