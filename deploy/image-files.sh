#!/bin/sh
# Lays out in DIR what an image takes from a built tree: DIR/root, to be copied to /, and DIR/runtime-packages, the
# packages that own the shared libraries it needs, so that the image holds those and no compiler.
# Libraries below /usr/local belong to no package of the image's distribution: a CUDA toolkit's, which are copied.
#   deploy/image-files.sh DIR
set -eu
dir=$1
rm -rf "$dir"
install -d "$dir/root/usr/local/bin" "$dir/root/usr/local/lib"
install build/blasd "$dir/root/usr/local/bin/"
if [ -e build/blasd_cuda.so ]; then
    install -m 0644 build/blasd_cuda.so "$dir/root/usr/local/bin/"
fi
# "NAME PATH" of every library
for file in "$dir"/root/usr/local/bin/*; do ldd "$file"; done >"$dir/needed"
if grep 'not found' "$dir/needed" >&2; then
    echo "image-files: libraries are missing" >&2
    exit 1
fi
sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' "$dir/needed" | sort -u |
    while read -r name path; do
        file=$(readlink -f "$path")
        case $file in
            /usr/local/*)
                install -m 0644 "$file" "$dir/root/usr/local/lib/$name"
                case $name in
                    libcublasLt.so.*) # opens these by name when it makes kernels itself
                        for more in "${path%/*}"/libnvrtc.so.?? "${path%/*}"/libnvrtc-builtins.so.??.?; do
                            [ ! -e "$more" ] || install -m 0644 "$more" "$dir/root/usr/local/lib/"
                        done ;;
                esac ;;
            # on a merged /usr dpkg may know the file under either name
            *) dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "${file#/usr}" 2>/dev/null || true ;;
        esac
    done | cut -d: -f1 | sort -u >"$dir/runtime-packages"
install deploy/healthcheck.sh "$dir/root/usr/local/bin/blasd-healthcheck"
