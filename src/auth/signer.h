/* Signs what the service sends of its own accord, as Standard Webhooks say: HMAC-SHA256 of id, time
 * and body, under secrets of the operator's. Read next: signer.c. */
#ifndef BLASD_AUTH_SIGNER_H
#define BLASD_AUTH_SIGNER_H

#include "base/err.h"

#include <stddef.h>

#define BLASD_SIGNATURES 256 /* bytes of a message's signatures with their zero */

struct blasd_signer;

/* Reads a file of lines "[TENANT] whsec_BASE64". A tenant that has lines of its own has these, any
 * other those without a name; up to four each, all of which sign, so that a receiver can change
 * from one to the next. New: free with blasd_signer_free. invalid_field, which names the line. */
int blasd_signer_open(const char *path, struct blasd_signer **ret, struct blasd_err *err);
void blasd_signer_free(struct blasd_signer *signer); /* takes NULL */
/* Reads it again where it is another than it was. Where that fails the secrets stay as they were,
 * and it is tried again with each call, but told once. */
int blasd_signer_refresh(struct blasd_signer *signer, struct blasd_err *err);
/* The value of webhook-signature: "v1,BASE64 v1,BASE64 …". False where the tenant has no secret. */
bool blasd_signer_sign(const struct blasd_signer *signer, const char *tenant, const char *id,
                       const char *timestamp, const void *body, size_t len,
                       char signatures[BLASD_SIGNATURES]);

#endif
