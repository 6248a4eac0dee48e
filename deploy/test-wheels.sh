#!/bin/bash
# Tries the wheels as a user would: in bare roots of Debian 12 and 13 with nothing but Python, from `pip install` to the
# first answer. Needs root, debootstrap and a network. Where there are none they are built here: `make wheels` on the
# older release makes those that serve for both.
#   deploy/test-wheels.sh [RELEASE …]
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/install-packages.sh image
[ $# -gt 0 ] || set -- bookworm trixie
ls build/wheels/*.whl >/dev/null 2>&1 || ${MAKE:-make} wheels
. deploy/bare-roots.sh
for release in "$@"; do
    open_root "$release"
    mkdir "$root/wheels"
    cp build/wheels/*.whl "$root/wheels/"
    inside sh -c 'apt-get update && apt-get install -y --no-install-recommends python3-venv' >/dev/null 2>&1
    inside python3 -m venv /venv
    # NumPy comes by this machine's pip, which knows its way out
    version=$(inside /venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    python3 -m pip download -q --only-binary=:all: --python-version "$version" --dest "$root/wheels" 'numpy>=1.22'
    begin=$SECONDS
    inside /venv/bin/pip install -q --disable-pip-version-check --no-index --find-links /wheels blasd blasd-server
    inside /venv/bin/python -c '
import blasd, numpy as np
with blasd.serve() as client:
    a = np.random.rand(500, 500)
    assert np.allclose(client.matmul(a, a), a @ a)
    assert np.allclose(a @ client.solve(a, a), a)
    print(client.devices()[0]["class"], client.regression(a[:, :3], a[:, 3])["r2"])'
    inside /venv/bin/blasd --version
    echo "$release: from pip install to answers $((SECONDS - begin)) s"
    close_root
done
