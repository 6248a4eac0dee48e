#!/bin/bash
# `make deb`: Debian packages of what `make install` puts in place, for the release that they are made on:
#   blasd           the program, its manual pages, completion, systemd unit
#   blasd-cuda      the CUDA backend, where one was built
#   libblasd0       the C client's shared library
#   libblasd-dev    its header, static library, pkg-config and CMake files, manual pages
#   deploy/deb/build.sh BUILD TO
set -euo pipefail
umask 022 # dpkg-deb takes nothing narrower
cd "$(dirname "$0")/../.."
build=$1 to=$2
version=$(cat VERSION)
arch=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
all=$stage/all
DESTDIR=$all PREFIX=/usr UNITDIR=/usr/lib/systemd/system INSTALL=install deploy/install/files.sh install "$build"
find "$all/usr/share/man" -type f -exec gzip -9n {} +

# take PACKAGE PATH…: moves files, below /usr, into a package
take() {
    local package=$1 path
    shift
    for path in "$@"; do
        mkdir -p "$stage/$package/usr/$(dirname "$path")"
        mv "$all/usr/$path" "$stage/$package/usr/$path"
    done
}

# libraries of FILE…: the packages that these need, as apt writes them
libraries() {
    mkdir -p "$stage/debian"
    : >"$stage/debian/control"
    (cd "$stage" && dpkg-shlibdeps -O "$@" 2>"$stage/shlibdeps.log") | sed -n 's/^shlibs:Depends=//p'
}

# pack PACKAGE SECTION DEPENDS SUMMARY TEXT
pack() {
    local package=$1 root=$stage/$1 doc=$stage/$1/usr/share/doc/$1
    mkdir -p "$root/DEBIAN" "$doc"
    cp deploy/deb/copyright "$doc/copyright"
    gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\n' "$package" "$version" "$arch"
        printf 'Section: %s\nPriority: optional\nMaintainer: blasd <blasd@localhost>\n' "$2"
        printf 'Installed-Size: %s\n' "$(du -sk "$root/usr" | cut -f1)"
        [ -z "$3" ] || printf 'Depends: %s\n' "$3"
        printf 'Description: %s\n %s\n' "$4" "$5"
    } >"$root/DEBIAN/control"
    for script in postinst prerm postrm; do
        [ ! -f "deploy/deb/$package.$script" ] || install -m 755 "deploy/deb/$package.$script" "$root/DEBIAN/$script"
    done
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    dpkg-deb --root-owner-group --build "$root" "$to/${package}_${version}_$arch.deb" >/dev/null
    echo "$to/${package}_${version}_$arch.deb"
}

rm -rf "$to"
mkdir -p "$to"
if [ -f "$all/usr/lib/blasd/blasd_cuda.so" ]; then
    take blasd-cuda lib/blasd/blasd_cuda.so
    pack blasd-cuda science "blasd (= $version)" "BLAS daemon, CUDA backend" \
        "Jobs on NVIDIA GPUs. Needs the driver, and cuBLAS and cuSOLVER of the CUDA toolkit that it was built with."
fi
take blasd lib/blasd/blasd bin/blasd lib/systemd/system/blasd.service lib/sysusers.d/blasd.conf share/man/man1 share/doc/blasd \
    share/bash-completion/completions/blasd share/zsh/site-functions/_blasd
# zsh of Debian looks here
mkdir -p "$stage/blasd/usr/share/zsh"
mv "$stage/blasd/usr/share/zsh/site-functions" "$stage/blasd/usr/share/zsh/vendor-completions"
pack blasd science "$(libraries blasd/usr/lib/blasd/blasd), redis-server (>= 5:7.0), passwd" "BLAS daemon: linear algebra over HTTP" \
    "A REST service for matrix products, linear systems, distances, regression and decompositions, with its command line."
take libblasd0 "lib/libblasd.so.$version" lib/libblasd.so.0
mkdir -p "$stage/libblasd0/DEBIAN"
echo "activate-noawait ldconfig" >"$stage/libblasd0/DEBIAN/triggers"
echo "libblasd 0 libblasd0 (>= $version)" >"$stage/libblasd0/DEBIAN/shlibs"
pack libblasd0 libs "$(libraries "libblasd0/usr/lib/libblasd.so.$version")" "C client of the BLAS daemon" \
    "The shared library of blasd's C client."
take libblasd-dev lib/libblasd.so lib/libblasd.a include/blasd.h include/blasd_call.h include/blasd_operations.h lib/pkgconfig lib/cmake share/man/man3
pack libblasd-dev libdevel "libblasd0 (= $version), libcurl4-openssl-dev | libcurl4-gnutls-dev, libjansson-dev" \
    "C client of the BLAS daemon, to build with" "Header, static library, pkg-config and CMake files, manual pages."
left=$(find "$all" -type f -o -type l)
[ -z "$left" ] || { echo "deb: in no package: $left" >&2; exit 1; }
