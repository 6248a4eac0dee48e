#!/bin/bash
# Tries the project as on a machine where nothing is installed: a bare root, a clone of HEAD, and the
# commands given, or `make demo` and `make test`. Needs root and debootstrap.
#   [BLASD_FRESH_RELEASE=trixie] deploy/fresh-machine.sh ['make demo' …]
# The root is of this machine's own release, or of the one that BLASD_FRESH_RELEASE names (of the same distribution).
# Bare roots are kept in BLASD_FRESH_DIR, by default /var/tmp/blasd-fresh.
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/install-packages.sh image
[ $# -gt 0 ] || set -- "make demo" "make test"
cache=${BLASD_FRESH_DIR:-/var/tmp/blasd-fresh}
release=${BLASD_FRESH_RELEASE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
deploy/base-root.sh "$cache/$release" "$release"
root=$(mktemp -d "$cache/root.XXXXXX")
stop() {
    umount "$root/dev/shm" "$root/dev/pts" "$root/dev" "$root/proc" 2>/dev/null || true
    mountpoint -q "$root/dev" || rm -rf "$root"
}
trap stop EXIT
cp -a "$cache/$release/." "$root/"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/zero" c 1 5
mknod -m 666 "$root/dev/full" c 1 7
mknod -m 666 "$root/dev/random" c 1 8
mknod -m 666 "$root/dev/urandom" c 1 9
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
git clone -q --no-hardlinks . "$root/root/blasd"
rm -rf "$root/root/blasd/.git/hooks"
for command in "$@"; do
    echo "== fresh machine, $release: $command"
    # `make` itself is what a user of a bare machine installs by hand
    chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        /bin/bash -c "command -v make >/dev/null || { apt-get update && apt-get install -y --no-install-recommends make; } >/dev/null 2>&1
                      cd /root/blasd && $command"
done
