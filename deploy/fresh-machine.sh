#!/bin/bash
# Tries the project as on a machine where nothing is installed: a bare root, a clone of HEAD, and the
# commands given, or `make demo` and `make test`. Needs root and debootstrap.
#   [BLASD_FRESH_RELEASE=trixie] deploy/fresh-machine.sh ['make demo' …]
# The root is of this machine's own release, or of the one that BLASD_FRESH_RELEASE names (of the same distribution).
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/install-packages.sh image
. deploy/bare-roots.sh
[ $# -gt 0 ] || set -- "make demo" "make test"
release=${BLASD_FRESH_RELEASE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
open_root "$release"
clone_into_root
for command in "$@"; do
    echo "== fresh machine, $release: $command"
    # `make` itself is what a user of a bare machine installs by hand
    inside /bin/bash -c "command -v make >/dev/null || { apt-get update && apt-get install -y --no-install-recommends make; } >/dev/null 2>&1
                         cd /root/blasd && $command"
done
