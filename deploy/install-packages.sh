#!/bin/sh
# Installs the Debian or Ubuntu packages that a part of the project needs, where any is missing.
#   deploy/install-packages.sh build|demo|test|lint|fuzz|analyze|bench|image|package …
# The Dockerfile, `make demo` and `make test` all call this file: package names stand here and nowhere else.
set -eu

build="gcc g++ make pkg-config libc6-dev libmicrohttpd-dev libgnutls28-dev libjansson-dev libhiredis-dev libsodium-dev libssl-dev
    librhonabwy-dev libopenblas-dev liblapacke-dev libcurl4-openssl-dev libseccomp-dev zlib1g-dev redis-server ca-certificates"
demo="curl python3 python3-numpy"
test="libcmocka-dev curl python3 python3-numpy python3-pytest python3-pytest-xdist python3-yaml python3-jsonschema python3-scipy
    python3-pandas python3-sklearn python3-hypothesis python3-mpmath python3-pip python3-venv python3-setuptools
    python3-wheel procps strace valgrind cmake openssl man-db zsh
    python3-jwt python3-cryptography python3-redis nginx-light"
# what perf_analyzer needs that is for a C library of before 2023; the newer one has it inside
if [ "$(getconf GNU_LIBC_VERSION | sed 's/.*[.]//')" -lt 38 ]; then test="$test libb64-0d"; fi
# a browser for the tests of the page; Ubuntu has it as a snap alone, and there they are skipped
if grep -qsx 'ID=debian' /etc/os-release; then test="$test chromium chromium-driver fonts-dejavu-core"; fi
lint="clang clang-format python3 python3-numpy mypy git"
fuzz="clang llvm"
analyze="clang-tidy cppcheck"
bench="python3 python3-numpy python3-venv python3-pip redis-tools git openssl"
image="buildah debootstrap docker-compose"
package="dpkg-dev"

say() { printf 'blasd: %s\n' "$*" >&2; }

wanted=""
for group in "$@"; do
    case $group in
        build|demo|test|lint|fuzz|analyze|bench|image|package) eval "wanted=\"\$wanted \$$group\"" ;;
        *) say "usage: $0 build|demo|test|lint|fuzz|analyze|bench|image|package …"; exit 2 ;;
    esac
done

lacking=""
for package in $wanted; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || lacking="$lacking $package"
done
[ -n "$lacking" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    say "this machine has no apt-get; install by hand:$lacking"; exit 1
fi
run=""
if [ "$(id -u)" -ne 0 ]; then
    run="sudo"
    if ! command -v sudo >/dev/null 2>&1; then
        say "these packages are missing, and there is neither root nor sudo to install them:$lacking"
        say "ask an administrator to run: apt-get install$lacking"
        exit 1
    fi
fi
say "installing$lacking"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $run apt-get update && $run env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y --no-install-recommends $lacking; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    say "apt-get could not install:$lacking"
    exit 1
fi
