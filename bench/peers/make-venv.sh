#!/bin/sh
# Makes the virtual environments of the Python peers, where they are missing, from PyPI.
#   bench/peers/make-venv.sh fastapi|triton|science DIR
# Exit status 1 and a reason on standard error where one cannot be made: the benchmark then goes on without it.
set -eu
group=$1
dir=$2
case $group in
    fastapi) packages="fastapi uvicorn uvloop httptools orjson numpy celery redis matplotlib" probe="fastapi, uvloop, httptools, orjson, celery, redis, matplotlib" ;;
    science) packages="numpy scipy scikit-learn" probe="numpy, scipy, sklearn" ;;
    triton) packages="nvidia-pytriton" probe="pytriton" ;;
    *) echo "usage: $0 fastapi|triton|science DIR" >&2; exit 2 ;;
esac
if [ -x "$dir/bin/python" ] && "$dir/bin/python" -c "import $probe" >/dev/null 2>&1; then exit 0; fi
rm -rf "$dir"
mkdir -p "$(dirname "$dir")"
log="$dir.log"
if { "${PYTHON:-/usr/bin/python3}" -m venv "$dir" && timeout 900 "$dir/bin/pip" install --quiet --disable-pip-version-check $packages \
        && "$dir/bin/python" -c "import $probe"; } >"$log" 2>&1; then
    rm -f "$log"
    exit 0
fi
tail -n 3 "$log" >&2
rm -rf "$dir"
echo "make-venv: the $group peers cannot be installed here; see $log" >&2
exit 1
