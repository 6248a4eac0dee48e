/* Signed tokens (JWT) of an identity provider, in place of a key: RS256, ES256 and EdDSA, by
 * rhonabwy. Which keys may sign comes from a file; whom a token is from and for has
 * to be what the options say. Private to this folder. Read next: auth.c. */
#ifndef BLASD_AUTH_TOKEN_H
#define BLASD_AUTH_TOKEN_H

#include "auth/auth.h"
#include "auth/key.h"

struct auth_tokens;

/* `options` is borrowed. */
int auth_tokens_open(const struct blasd_token_options *options, struct auth_tokens **ret,
                     struct blasd_err *err);
void auth_tokens_free(struct auth_tokens *tokens); /* takes NULL */
/* Once a second: 1: the file has changed and was read; 0: not; negative: it cannot be read, told
 * once, and the keys stay. */
int auth_tokens_refresh(struct auth_tokens *tokens, struct blasd_err *err);
/* Whether a text has the form of a token. */
bool auth_token_like(const char *text);
/* Fills in caller and expires_s, the rest of *key with zeros. unauthorized. */
int auth_tokens_check(struct auth_tokens *tokens, const char *text, struct blasd_auth_key *key,
                      struct blasd_err *err);

#endif
