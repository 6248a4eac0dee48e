/* TLS on a connection to Redis, where hiredis has it: Debian 12's has not. Read next: route.c,
 * async_link.c. */
#ifndef BLASD_REDIS_TLS_H
#define BLASD_REDIS_TLS_H

#include "base/err.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>

/* Whether this build can. */
bool blasd_redis_tls_known(void);
/* Puts TLS on a context that connects to `host`; the certificate has to be valid for that, by the
 * system's authorities or those in the file that BLASD_REDIS_CA names. queue_unavailable. */
int blasd_redis_tls_start(redisContext *redis, const char *host, struct blasd_err *err);

#endif
