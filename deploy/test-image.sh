#!/bin/bash
# `make test-image`: checks docker-compose.yml, builds the Dockerfile with buildah (no container engine is
# needed) on a base made by debootstrap, runs the image's service in a chroot and sends it a job. Where this machine
# has a CUDA toolkit the image with the CUDA backend is built too, on the same base with the toolkit's files, and it
# is asserted that the backend is in it and loads. Needs root. The images themselves are thrown away.
#   deploy/test-image.sh [cpu|cuda]    one of the two alone
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/install-packages.sh image
docker-compose config -q
docker-compose --profile gpu config -q
echo "docker-compose.yml: valid"

cache=${BLASD_FRESH_DIR:-/var/tmp/blasd-fresh}
toolkit=${CUDA_HOME:-/usr/local/cuda}
deploy/base-root.sh "$cache/trixie" trixie # the Dockerfile's debian:13-slim
store=$(mktemp -d "$cache/image.XXXXXX")
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah="buildah --root $store/root --runroot $store/run"
container="" service=""
stop() {
    if [ -n "$service" ]; then
        kill -TERM "$service" 2>/dev/null || true
        wait "$service" 2>/dev/null || true
        service=""
    fi
}
clean() {
    stop
    $buildah rm --all >/dev/null 2>&1 || true
    rm -rf "$store"
}
trap clean EXIT

# base_image NAME FROM FOLDER PLACE: an image that is FROM with FOLDER's content at PLACE
base_image() {
    local base
    base=$($buildah from --pull-never "$2")
    $buildah copy -q "$base" "$3" "$4" >/dev/null
    $buildah commit -q --format docker "$base" "$1" >/dev/null
    $buildah rm "$base" >/dev/null
}

# build TAG [OPTION…]: the Dockerfile, and a container of what it makes
build() {
    local tag=$1
    shift
    $buildah bud --format docker --pull-never -t "$tag" "$@" "$store/context" >"$store/build.log" 2>&1 ||
        { tail -n 40 "$store/build.log"; exit 1; }
    echo "Dockerfile: built $tag"
    container=$($buildah from --pull-never "$tag")
    $buildah config --entrypoint '[]' --cmd '' "$container" 2>/dev/null
}
inside() { $buildah run --isolation chroot "$container" -- "$@"; }
# the same in the place of the shell that runs it, so that a signal to that is one to the command
instead() { exec $buildah run --isolation chroot "$container" -- "$@"; }

# read_only COMMAND…: as instead, by the image's user without any right, on a root that nobody can write to, but for its
# volume, /tmp and /dev/shm
read_only() {
    local root state=$store/state
    root=$($buildah mount "$container")
    rm -rf "$state"
    install -d -o 10001 -g 10001 -m 0700 "$state"
    # shellcheck disable=SC2016 # expanded by that shell
    exec unshare --mount sh -euc '
        root=$1 state=$2
        shift 2
        mount --bind "$root" "$root"
        mount -o remount,bind,ro "$root"
        mount --rbind /dev "$root/dev"
        mount -t proc proc "$root/proc"
        mount --bind "$state" "$root/var/lib/blasd"
        for place in tmp dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$root/$place"; done
        exec chroot "$root" setpriv --reuid 10001 --regid 10001 --clear-groups --bounding-set=-all --inh-caps=-all \
            --no-new-privs env -i HOME=/var/lib/blasd PATH=/usr/local/bin:/usr/bin:/bin "$@"' sh "$root" "$state" "$@"
}

# serve TAG COMMAND…: the image's service, started by COMMAND, answers a job
serve() {
    local tag=$1 url answer
    shift
    "$@" >"$store/ready" 2>"$store/log" &
    service=$!
    for _ in $(seq 300); do
        grep -q '^ready ' "$store/ready" && break
        kill -0 "$service" 2>/dev/null || { cat "$store/log"; exit 1; }
        sleep 0.1
    done
    url=$(sed -n 's/^ready //p' "$store/ready")
    answer=$(curl -sS --max-time 120 "$url/jobs?wait=100" \
        -d '{"op":"matmul","inputs":{"a":[[1,2],[3,4]],"b":[[5,6],[7,8]]}}')
    case $answer in
        *'"data":[[19,22],[43,50]]'*) echo "$tag: its service answered a job" ;;
        *) echo "$tag: wrong answer: $answer"; cat "$store/log"; exit 1 ;;
    esac
    inside env "BLASD_HEALTH_PORT=${url##*:}" blasd-healthcheck || { echo "$tag: its healthcheck says that it is ill"; exit 1; }
    stop
    if inside env "BLASD_HEALTH_PORT=${url##*:}" blasd-healthcheck 2>/dev/null; then
        echo "$tag: its healthcheck says that a service is well that has ended"
        exit 1
    fi
}

# lists TAG: the image says what is in it
lists() {
    inside cat /usr/local/share/blasd/sbom.spdx.json >"$store/sbom.json"
    python3 -c 'import json, sys
sbom = json.load(open(sys.argv[1]))
names = {package["name"] for package in sbom["packages"]}
assert sbom["spdxVersion"] == "SPDX-2.3" and {"blasd", "libc6", "redis-server"} <= names, names
ids = {package["SPDXID"] for package in sbom["packages"]}
assert all(one["relatedSpdxElement"] in ids for one in sbom["relationships"])' "$store/sbom.json"
    echo "$1: its SBOM is right"
}

# tries TAG: its service as the image has it, and with nothing that it could write to or do beside its work
tries() {
    # shellcheck disable=SC2016 # expanded by the shell there
    serve "$1" instead /bin/sh -c 'exec blasd up --listen 127.0.0.1:0 --data "$(mktemp -d)"'
    # shellcheck disable=SC2016
    serve "$1, read-only, as its user" read_only /bin/sh -euc '
        [ "$(id -u)" = 10001 ] && ! touch /usr/local/bin/x 2>/dev/null && ! touch /etc/x 2>/dev/null
        exec blasd up --listen 127.0.0.1:0'
    lists "$1"
}

# says TAG WHAT TEXT COMMAND…: COMMAND prints TEXT in the image
says() {
    local tag=$1 what=$2 text=$3 out
    shift 3
    out=$(inside "$@" 2>&1 || true)
    case $out in
        *"$text"*) echo "$tag: $what" ;;
        *) echo "$tag: not so: $what. It says: $out"; exit 1 ;;
    esac
}

# what nvcc needs, and the libraries that blasd_cuda.so is linked with
copy_toolkit() {
    local lib=$toolkit/lib64 name
    mkdir -p "$1/lib64/stubs"
    cp -aL "$toolkit/bin" "$toolkit/nvvm" "$toolkit/include" "$1/"
    for name in cublas cublasLt cusolver cusparse nvJitLink nvrtc nvrtc-builtins; do cp -aL "$lib/lib$name.so"* "$1/lib64/"; done
    cp -aL "$lib"/libcudart_static.a "$lib"/libcudadevrt.a "$lib"/libculibos.a "$1/lib64/"
    cp -aL "$lib/stubs/libcuda.so" "$1/lib64/stubs/libcuda.so.1"
}

# a copy without what .gitignore leaves out; the context must not depend on what was built here
mkdir "$store/context"
git ls-files -co --exclude-standard -z | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | xargs -0 cp --parents -t "$store/context"
base_image debian:13-slim scratch "$cache/trixie" /

if [ "${1:-cpu}" = cpu ]; then
    build blasd
    tries blasd
    says blasd "no card, and nothing missed" "cpu:0" blasd devices --ids
fi

if [ "${1:-cuda}" != cuda ]; then exit 0; fi
if ! [ -x "$toolkit/bin/nvcc" ]; then
    echo "blasd:cuda: not tried, for there is no CUDA toolkit at $toolkit (CUDA_HOME)"
    exit 0
fi
copy_toolkit "$store/toolkit"
base_image toolkit debian:13-slim "$store/toolkit" /usr/local/cuda
# code that a driver would have to finish: it is made in a third of the time
build blasd:cuda --build-arg BUILD_IMAGE=toolkit --build-arg "CUDA_ARCH=-gencode arch=compute_80,code=compute_80"
says blasd:cuda "no toolkit beside its libraries" "no toolkit" \
    /bin/sh -c '[ -e /usr/local/cuda ] || echo no toolkit'
says blasd:cuda "the backend is there, and misses the driver by name" \
    "# cuda: there is no NVIDIA driver on this machine (libcuda.so.1)" blasd devices --ids
# the toolkit's stand-in for a driver does nothing, but with it the backend and all its libraries are loaded
$buildah copy -q "$container" "$store/toolkit/lib64/stubs/libcuda.so.1" /tmp/stub/libcuda.so.1 >/dev/null
says blasd:cuda "the backend loads, and says what the driver is" "libcuda.so.1 is the toolkit's stub" \
    env LD_LIBRARY_PATH=/tmp/stub blasd devices --ids
tries blasd:cuda
