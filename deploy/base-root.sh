#!/bin/bash
# Makes (once) a bare root of a Debian RELEASE (bookworm, trixie, …) in DIR with debootstrap. Its packages come from where this
# machine's own come from, through the same proxies; sources that are not the distribution's are left out.
#   deploy/base-root.sh DIR RELEASE
set -euo pipefail
root=$1 release=$2
[ -e "$root/.complete" ] && exit 0
. /etc/os-release
# "deb URI SUITE COMPONENT", a line each: this machine's bookworm, bookworm-updates and bookworm-security, as RELEASE's
list_sources() {
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
        sed -nE "s/^(deb [^ ]+ )$VERSION_CODENAME(-updates|-security)? ([^ ]+) $ID\$/\1$release\2 \3/Ip" | sort -u
}
sources=$(list_sources)
[ -n "$sources" ] || { apt-get update >/dev/null && sources=$(list_sources); }
mirror=$(echo "$sources" | awk -v suite="$release" '$3 == suite { print $2; exit }')
if [ -z "$mirror" ]; then
    echo "base-root: apt has no source of this machine's own release, $ID $VERSION_CODENAME, to take $release from" >&2
    exit 1
fi
rm -rf "$root"
mkdir -p "$root"
debootstrap --variant=minbase "$release" "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 20 "$root.log"; exit 1; }
# the settings, keys and certificates that work here work there
for part in apt.conf apt.conf.d auth.conf auth.conf.d keyrings trusted.gpg.d; do
    [ ! -e "/etc/apt/$part" ] || cp -a "/etc/apt/$part" "$root/etc/apt/"
done
echo "$sources" >"$root/etc/apt/sources.list"
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
mkdir -p "$root/etc/ssl" "$root/usr/share" "$root/usr/local/share"
cp -a /etc/ssl/certs "$root/etc/ssl/" 2>/dev/null || true
cp -a /usr/share/ca-certificates "$root/usr/share/" 2>/dev/null || true
# the machine's own authorities: without these the list is made anew of Debian's alone
cp -a /usr/local/share/ca-certificates "$root/usr/local/share/" 2>/dev/null || true
touch "$root/.complete"
