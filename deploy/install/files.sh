#!/bin/sh
# What `make install` puts where, and what `make uninstall` takes away again.
#   DESTDIR= PREFIX= UNITDIR= INSTALL= files.sh install|uninstall BUILD
set -eu
umask 022 # others use it, whatever its installer keeps to itself
action=$1 build=$2 version=$(cat VERSION)
stage=$build/install root=$DESTDIR$PREFIX

put() {  # put MODE FILE TO
    if [ "$action" = install ]; then $INSTALL -D -m "$1" "$2" "$3"; else rm -f "$3"; fi
}
point() {  # point TO LINK
    if [ "$action" = install ]; then mkdir -p "$(dirname "$2")" && ln -sf "$1" "$2"; else rm -f "$2"; fi
}

put 755 "$build/blasd" "$root/lib/blasd/blasd"
point ../lib/blasd/blasd "$root/bin/blasd"
if [ "$action" = uninstall ] || [ -f "$build/blasd_cuda.so" ]; then
    put 755 "$build/blasd_cuda.so" "$root/lib/blasd/blasd_cuda.so"
fi
put 644 clients/c/blasd.h "$root/include/blasd.h"
put 644 clients/c/blasd_call.h "$root/include/blasd_call.h"
put 644 clients/c/blasd_operations.h "$root/include/blasd_operations.h"
put 644 "$build/libblasd_client.a" "$root/lib/libblasd.a"
put 755 "$build/libblasd.so.$version" "$root/lib/libblasd.so.$version"
point "libblasd.so.$version" "$root/lib/libblasd.so.0"
point libblasd.so.0 "$root/lib/libblasd.so"
put 644 "$stage/blasd.pc" "$root/lib/pkgconfig/blasd.pc"
put 644 "$stage/blasdConfig.cmake" "$root/lib/cmake/blasd/blasdConfig.cmake"
put 644 "$stage/blasdConfigVersion.cmake" "$root/lib/cmake/blasd/blasdConfigVersion.cmake"
for document in docs/*.md; do  # which the manual pages name
    put 644 "$document" "$root/share/doc/blasd/${document##*/}"
done
for page in $(deploy/install/pages.sh); do
    put 644 "$stage/man/man${page##*.}/$page" "$root/share/man/man${page##*.}/$page"
done
put 644 "$stage/blasd.bash" "$root/share/bash-completion/completions/blasd"
put 644 "$stage/_blasd" "$root/share/zsh/site-functions/_blasd"
put 644 "$stage/blasd.service" "$DESTDIR$UNITDIR/blasd.service"
put 644 deploy/install/blasd.sysusers "$root/lib/sysusers.d/blasd.conf"
for folder in lib/blasd lib/cmake/blasd share/doc/blasd; do
    if [ "$action" = uninstall ] && [ -d "$root/$folder" ]; then rmdir "$root/$folder"; fi
done
