#!/bin/bash
# Makes (once) a bare Debian root in DIR with debootstrap, with this machine's own package sources.
#   deploy/base-root.sh DIR
set -euo pipefail
root=$1
[ -e "$root/.complete" ] && exit 0
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
rm -rf "$root"
mkdir -p "$root"
debootstrap --variant=minbase "$release" "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 20 "$root.log"; exit 1; }
# the same sources, proxies and certificates that work here work there
rm -rf "$root/etc/apt"
cp -a /etc/apt "$root/etc/"
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
mkdir -p "$root/etc/ssl" "$root/usr/share"
cp -a /etc/ssl/certs "$root/etc/ssl/" 2>/dev/null || true
cp -a /usr/share/ca-certificates "$root/usr/share/" 2>/dev/null || true
touch "$root/.complete"
