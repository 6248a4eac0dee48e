#!/bin/bash
# Tries `make deb` as an operator would: the packages are made in one bare root and used in another, where they are
# installed, started without systemd, asked, built against, removed and purged. Needs root, debootstrap, a network.
#   deploy/test-deb.sh [RELEASE …]
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/install-packages.sh image
. deploy/bare-roots.sh
[ $# -gt 0 ] || set -- bookworm trixie
packages=$(mktemp -d)
trap 'close_root; rm -rf "$packages"' EXIT

make_packages() {
    open_root "$1"
    clone_into_root
    inside sh -c 'apt-get update && apt-get install -y --no-install-recommends make' >/dev/null 2>&1
    inside make -C /root/blasd -s -j2 deb >"$packages/log" 2>&1 || { tail -n 40 "$packages/log"; exit 1; }
    cp "$root"/root/blasd/build/deb/*.deb "$packages/"
    close_root
}

# what an operator does with them, in the root
use_packages() {
    inside sh -c 'apt-get update && apt-get install -y --no-install-recommends /packages/*.deb curl gcc pkg-config libc6-dev' \
        >"$packages/log" 2>&1 || { tail -n 40 "$packages/log"; exit 1; }
    inside sh -euc '
        dpkg --verify blasd libblasd0 libblasd-dev
        blasd --version
        test -s /usr/lib/systemd/system/blasd.service && test -s /usr/share/man/man1/blasd.1.gz
        useradd --system --home-dir /var/lib/blasd blasd-user
        install -d -o blasd-user -m 0700 /var/lib/blasd
        setpriv --reuid blasd-user --regid blasd-user --clear-groups \
            blasd up --listen 127.0.0.1:0 --data /var/lib/blasd >/tmp/ready 2>/tmp/log &
        service=$!
        for i in $(seq 300); do grep -q "^ready " /tmp/ready && break; sleep 0.1; done
        url=$(sed -n "s/^ready //p" /tmp/ready)
        curl -fsS "$url/jobs?wait=30" -d "{\"op\":\"matmul\",\"inputs\":{\"a\":[[1,2],[3,4]],\"b\":[[5,6],[7,8]]}}" |
            grep -F "[[19,22],[43,50]]"
        sed "s|\"clients/c/blasd.h\"|<blasd.h>|" /packages/client_example.c >/tmp/example.c
        gcc -o /tmp/example /tmp/example.c $(pkg-config --cflags --libs blasd)
        /tmp/example "$url"
        kill -TERM $service
        wait $service
        instance=$(cat /var/lib/blasd/instance)
        apt-get remove -y blasd libblasd-dev >/dev/null
        test ! -e /usr/bin/blasd && test ! -e /usr/include/blasd.h
        test -e "/var/lib/blasd/instance" # jobs and results are still there
        apt-get purge -y blasd >/dev/null
        test ! -e /var/lib/blasd && test ! -e "/dev/shm/blasd-$instance"
        ! dpkg -l blasd 2>/dev/null | grep -q "^[ir]"
    ' >"$packages/log" 2>&1 || { tail -n 40 "$packages/log"; exit 1; }
}

for release in "$@"; do
    make_packages "$release"
    open_root "$release"
    mkdir "$root/packages"
    cp "$packages"/*.deb clients/c/examples/client_example.c "$root/packages/"
    use_packages
    close_root
    rm "$packages"/*.deb
    echo "$release: installed, started, asked, built against, removed, purged"
done
