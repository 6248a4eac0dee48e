#!/bin/sh
# Makes virtual environments of Python programs that others wrote, where they are missing, from PyPI: the benchmarks'
# peers, and clients and checkers that the tests run.
#   bench/peers/make-venv.sh fastapi|triton|science|inference|perf|openapi|otlp|kubernetes|browser|tutorial|arrays|objects|checks|webhooks|checkov DIR
# Exit status 1 and a reason on standard error where one cannot be made: what needs it then goes on without it.
set -eu
group=$1
dir=$2
bare=""
case $group in
    fastapi) packages="fastapi uvicorn uvloop httptools orjson numpy celery redis matplotlib" probe="fastapi, uvloop, httptools, orjson, celery, redis, matplotlib" ;;
    science) packages="numpy scipy scikit-learn" probe="numpy, scipy, sklearn" ;;
    inference) packages="tritonclient[http]" probe="tritonclient.http.aio" ;;
    openapi) packages="openapi-spec-validator schemathesis openapi-python-client mypy" probe="openapi_spec_validator, schemathesis, openapi_python_client, mypy" ;;
    tutorial) packages="numpy scipy matplotlib nbclient ipykernel" probe="numpy, scipy, matplotlib, nbclient, nbformat, ipykernel" ;;
    arrays) packages="numpy pyarrow polars" probe="numpy, pyarrow, polars" ;;
    objects) packages="moto[server] boto3" probe="moto.server, boto3" ;;
    webhooks) packages="standardwebhooks" probe="standardwebhooks" ;;
    checks) packages="numpy ruff mypy" probe="numpy, ruff, mypy" ;;
    otlp) packages="opentelemetry-proto" probe="opentelemetry.proto.collector.trace.v1.trace_service_pb2, google.protobuf.json_format" ;;
    checkov) packages="checkov" probe="checkov.main" ;;
    kubernetes) packages="kubernetes-validate" probe="kubernetes_validate, yaml" ;;
    # of the latter axe.min.js alone is wanted, and none of what it needs besides
    browser) packages="selenium" bare="axe-playwright-python" probe="selenium, importlib.util; importlib.util.find_spec('axe_playwright_python').origin" ;;
    # perf_analyzer is a program; from 2.49 on it comes by itself, for machines whose C library is that of 2023 or newer
    perf)
        packages="perf-analyzer>=2 nvidia-cuda-runtime-cu12" probe="perf_analyzer, nvidia.cuda_runtime"
        libc=$(getconf GNU_LIBC_VERSION | sed 's/.*[.]//')
        if [ "$libc" -lt 38 ]; then
            packages="tritonclient==2.48.0 nvidia-cuda-runtime-cu12" probe="tritonclient, nvidia.cuda_runtime"
        fi ;;
    triton) packages="nvidia-pytriton" probe="pytriton" ;;
    *) echo "usage: $0 fastapi|triton|science|inference|perf|openapi|otlp|kubernetes|browser|tutorial|arrays|objects|checks|webhooks|checkov DIR" >&2; exit 2 ;;
esac
# pip before 24.2 trusts its own list of authorities alone, and not that of a proxy which the system trusts; one that was told
# what to trust is left to that
trust_as_the_system() {
    authorities=/etc/ssl/certs/ca-certificates.crt
    if [ -f $authorities ] && ! "$dir/bin/pip" config get global.cert && [ -z "${PIP_CERT:-}" ]; then export PIP_CERT=$authorities; fi
}
mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock"
flock 9  # of several that want it at once one makes it
if [ -x "$dir/bin/python" ] && "$dir/bin/python" -c "import $probe" >/dev/null 2>&1; then exit 0; fi
rm -rf "$dir"
log="$dir.log"
if { "${PYTHON:-/usr/bin/python3}" -m venv "$dir" && trust_as_the_system && timeout 900 "$dir/bin/pip" install --quiet --disable-pip-version-check $packages \
        && { [ -z "$bare" ] || timeout 900 "$dir/bin/pip" install --quiet --disable-pip-version-check --no-deps $bare; } \
        && "$dir/bin/python" -c "import $probe"; } >"$log" 2>&1; then
    rm -f "$log"
    exit 0
fi
tail -n 3 "$log" >&2
rm -rf "$dir"
echo "make-venv: the packages of $group cannot be installed here; see $log" >&2
exit 1
