#!/bin/bash
# Makes the two wheels: blasd (the client) and blasd-server (the service with what it needs).
#   deploy/wheels/build.sh BINARY DIRECTORY
# Libraries are copied but for the C library's own, which every machine has: the wheel is for machines whose C library
# is at least as new as this one's (its name says which). The licences of what is copied go along.
set -euo pipefail
binary=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/../.."
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r deploy/wheels/blasd_server deploy/wheels/setup.py VERSION "$work/"
package=$work/blasd_server
mkdir "$package/bin" "$package/lib" "$package/licenses"
install -m 755 "$binary" "$package/bin/blasd"
install -m 755 "$(command -v redis-server)" "$package/bin/redis-server"
strip "$package/bin/blasd"
cp LICENSE "$package/licenses/blasd"

# what the loader would take for a program: "name => path (address)"
libraries() { ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'; }
is_libc() {
    case $(basename "$1") in
        libc.so.*|libm.so.*|libdl.so.*|libpthread.so.*|librt.so.*|libresolv.so.*|ld-linux*) true ;;
        *) false ;;
    esac
}
for program in "$package"/bin/*; do libraries "$program"; done | sort -u | while read -r path; do
    is_libc "$path" && continue
    install -m 644 "$path" "$package/lib/$(basename "$path")"
    owner=$(dpkg-query -S "$(realpath "$path")" 2>/dev/null | cut -d: -f1 | head -n 1) || true
    [ -z "$owner" ] || cp "/usr/share/doc/$owner/copyright" "$package/licenses/$owner"
done
cp "/usr/share/doc/redis-server/copyright" "$package/licenses/redis-server" 2>/dev/null || true

(cd "$work" && "$python" setup.py -q bdist_wheel --dist-dir "$out") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cp -r clients/python "$work/client"
rm -rf "$work/client/build" "$work"/client/*.egg-info
"$python" -m pip wheel -q --no-deps --no-build-isolation --wheel-dir "$out" "$work/client"
ls "$out"/*.whl
