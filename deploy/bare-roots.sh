# shellcheck shell=bash
# Machines where nothing is installed, as roots to change into; sourced by what tries the project there. Needs root
# and debootstrap. Bare roots are kept in BLASD_FRESH_DIR, by default /var/tmp/blasd-fresh.
#   open_root RELEASE   makes one, $root
#   inside COMMAND …    runs a command there, with a bare environment
#   close_root          takes it away; what a script leaves open is closed at its end
cache=${BLASD_FRESH_DIR:-/var/tmp/blasd-fresh}
root=

close_root() {
    [ -n "$root" ] || return 0
    umount "$root/dev/shm" "$root/dev/pts" "$root/dev" "$root/proc" 2>/dev/null || true
    mountpoint -q "$root/dev" || rm -rf "$root"
    root=
}
trap close_root EXIT

open_root() {
    local device
    deploy/base-root.sh "$cache/$1" "$1"
    root=$(mktemp -d "$cache/root.XXXXXX")
    cp -a "$cache/$1/." "$root/"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/dev"
    for device in null:3 zero:5 full:7 random:8 urandom:9; do
        mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
    done
    ln -s /proc/self/fd "$root/dev/fd"
    [ -s "$root/etc/hosts" ] || printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
    mkdir "$root/dev/shm" "$root/dev/pts"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    mount -t tmpfs tmpfs "$root/dev/shm"
}

inside() {
    chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# the project's committed state, as a user clones it
clone_into_root() {
    git clone -q --no-hardlinks . "$root/root/blasd"
    rm -rf "$root/root/blasd/.git/hooks"
}
