#!/bin/sh
# The names of the manual pages: of the commands, from the table of them, and of the C client's groups and functions,
# from its header.
set -eu
echo blasd.1
sed -n 's/^    {"\([a-z-]*\)", blasd_c[a-z]*_[a-z_]*, ".*/blasd-\1.1/p' src/main/main.c
echo libblasd.3
sed -n 's|^/\* --- \([a-z_]*\): .*|\1.3|p' clients/c/blasd.h
deploy/install/exports.sh clients/c/blasd.h names | sed 's/$/.3/'
