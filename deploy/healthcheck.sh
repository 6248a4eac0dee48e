#!/bin/bash
# Whether the service of this container answers, for the image's HEALTHCHECK: GET /health/live, which wants no key.
# BLASD_HEALTH_PORT: another port than 8080. A service with TLS wants a check of its operator's own.
exec 3<>"/dev/tcp/127.0.0.1/${BLASD_HEALTH_PORT:-8080}" || exit 1
printf 'GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 3 _ status _ <&3
[ "$status" = 200 ]
