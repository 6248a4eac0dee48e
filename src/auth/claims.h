/* What a key or a token says its holder may do, as JSON. Pure. Private to this folder. */
#ifndef BLASD_AUTH_CLAIMS_H
#define BLASD_AUTH_CLAIMS_H

#include "auth/identity.h"
#include "base/err.h"

#include <jansson.h>

/* Reads "tenant", "role", "ops" and "limits" of `object`, each of which may be missing, into
 * *caller, which has the defaults. What is there and cannot be read is an error: a limit that is
 * passed over would be none. */
int auth_claims_read(const json_t *object, struct blasd_identity *caller, struct blasd_err *err);
/* Sets them in `object`. 0, or -1: no memory. */
int auth_claims_write(const struct blasd_identity *caller, json_t *object);
/* Whether `object` has only members that `known`, ended by NULL, and the four names; else an error
 * that names the first. */
int auth_claims_only(const json_t *object, const char *const *known, struct blasd_err *err);

#endif
