#!/bin/bash
# `make test-image`: checks docker-compose.yml, builds the Dockerfile with buildah (no container engine is
# needed) on a base made by debootstrap, runs the image's service in a chroot and sends it a job.
# Needs root. The image itself is thrown away.
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/install-packages.sh image
docker-compose config -q
docker-compose --profile gpu config -q
echo "docker-compose.yml: valid"

cache=${BLASD_FRESH_DIR:-/var/tmp/blasd-fresh}
deploy/base-root.sh "$cache/trixie" trixie # the Dockerfile's debian:13-slim
store=$(mktemp -d "$cache/image.XXXXXX")
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah="buildah --root $store/root --runroot $store/run"
container="" service=""
stop() {
    if [ -n "$service" ]; then
        kill -TERM "$service" 2>/dev/null || true
        wait "$service" 2>/dev/null || true
    fi
    $buildah rm --all >/dev/null 2>&1 || true
    rm -rf "$store"
}
trap stop EXIT

base=$($buildah from scratch)
$buildah copy -q "$base" "$cache/trixie" / >/dev/null
$buildah commit -q --format docker "$base" debian:13-slim >/dev/null
$buildah rm "$base" >/dev/null
# a copy without what .gitignore leaves out; the context must not depend on what was built here
mkdir "$store/context"
git ls-files -co --exclude-standard -z | xargs -0 cp --parents -t "$store/context"
$buildah bud --format docker --pull-never -t blasd "$store/context" >"$store/build.log" 2>&1 ||
    { tail -n 40 "$store/build.log"; exit 1; }
echo "Dockerfile: built"

container=$($buildah from --pull-never blasd)
$buildah config --entrypoint '[]' --cmd '' "$container" 2>/dev/null
$buildah run --isolation chroot "$container" -- /bin/sh -c \
    'exec blasd up --listen 127.0.0.1:0 --data "$(mktemp -d)"' >"$store/ready" 2>"$store/log" &
service=$!
for _ in $(seq 300); do
    grep -q '^ready ' "$store/ready" && break
    kill -0 "$service" 2>/dev/null || { cat "$store/log"; exit 1; }
    sleep 0.1
done
url=$(sed -n 's/^ready //p' "$store/ready")
answer=$(curl -sS --max-time 30 "$url/jobs?wait=20" \
    -d '{"op":"matmul","inputs":{"a":[[1,2],[3,4]],"b":[[5,6],[7,8]]}}')
case $answer in
    *'"data":[[19,22],[43,50]]'*) echo "image: its service answered a job" ;;
    *) echo "image: wrong answer: $answer"; cat "$store/log"; exit 1 ;;
esac
