#!/bin/sh
# Prints what an image holds as SPDX 2.3 in JSON: blasd, each package of the distribution, and each library that was
# copied from a CUDA toolkit. It runs in the image.
#   deploy/sbom.sh VERSION
set -eu
version=$1
{
    printf 'blasd\t%s\tApache-2.0\n' "$version"
    dpkg-query -W -f='${Package}\t${Version}\tNOASSERTION\n'
    for library in /usr/local/lib/lib*.so.*; do
        [ ! -e "$library" ] || printf '%s\t%s\tNOASSERTION\n' "${library##*/}" "${library##*.so.}"
    done
} | awk -F '\t' -v version="$version" -v made="$(date -u +%Y-%m-%dT%H:%M:%SZ)" -v id="$(cat /proc/sys/kernel/random/uuid)" '
    BEGIN {
        printf "{\"spdxVersion\":\"SPDX-2.3\",\"dataLicense\":\"CC0-1.0\",\"SPDXID\":\"SPDXRef-DOCUMENT\",\"name\":\"blasd-%s\",", version
        printf "\"documentNamespace\":\"urn:uuid:%s\",\"creationInfo\":{\"created\":\"%s\",\"creators\":[\"Tool: blasd-sbom\"]},", id, made
        printf "\"documentDescribes\":[\"SPDXRef-Package-1\"],\"packages\":["
    }
    {
        printf "%s{\"SPDXID\":\"SPDXRef-Package-%d\",\"name\":\"%s\",\"versionInfo\":\"%s\",", (NR > 1 ? "," : ""), NR, $1, $2
        printf "\"downloadLocation\":\"NOASSERTION\",\"filesAnalyzed\":false,\"licenseConcluded\":\"NOASSERTION\","
        printf "\"licenseDeclared\":\"%s\",\"copyrightText\":\"NOASSERTION\"}", $3
    }
    END {
        printf "],\"relationships\":["
        for (i = 2; i <= NR; i++)
            printf "%s{\"spdxElementId\":\"SPDXRef-Package-1\",\"relationshipType\":\"DEPENDS_ON\",\"relatedSpdxElement\":\"SPDXRef-Package-%d\"}", (i > 2 ? "," : ""), i
        print "]}"
    }'
