/* Who may come in: keys from a file, or tokens that somebody trusted has signed, shown as
 * `Authorization: Bearer KEY`.
 *
 * One object serves every thread. The keys of the file are read without a lock. A token, or a key
 * with a slow hash, is proved once; after that a keyed hash of what was shown finds its caller
 * again, until the file changes. Who shows wrong keys has to wait; others
 * behind the same address need not (place_of() in auth.c). Read next: key.h, for the file. */
#ifndef BLASD_AUTH_AUTH_H
#define BLASD_AUTH_AUTH_H

#include "auth/identity.h"
#include "base/err.h"

struct blasd_auth;

/* Tokens (JWT) that are taken beside keys; texts are borrowed. */
struct blasd_token_options {
    const char *keys;              /* a file of the keys that sign them */
    const char *issuer, *audience; /* what their claims `iss` and `aud` have to be */
};

/* Reads the keys of the file at `path`, NULL: none; `tokens` may be NULL. Both are borrowed, the
 * tokens' as long as the process lives; *ret is freed by blasd_auth_free. */
int blasd_auth_open(const char *path, const struct blasd_token_options *tokens,
                    struct blasd_auth **ret, struct blasd_err *err);
void blasd_auth_free(struct blasd_auth *auth); /* takes NULL */
/* To be called about once a second: reads files anew where they have changed. 1: it has, and was
 * read; 0: it has not; negative: it cannot be read, told once for each change. The keys stay as
 * they were then, but for a file that is gone: none is valid any more. */
int blasd_auth_refresh(struct blasd_auth *auth, struct blasd_err *err);
/* Is told of each key that a refresh found "added", "revoked" or "changed" (static). `caller` is
 * borrowed. It holds no lock, and is to be set before other threads use the object. */
typedef void (*blasd_auth_change_fn)(void *arg, const char *what,
                                     const struct blasd_identity *caller);
void blasd_auth_on_change(struct blasd_auth *auth, blasd_auth_change_fn told, void *arg);
/* How many keys there are. */
size_t blasd_auth_keys(struct blasd_auth *auth);

/* What a request shows of who sent it. Borrowed texts. */
struct blasd_credentials {
    const char *authorization; /* the header; NULL: none */
    const char *certificate;   /* whose the client has shown, verified; NULL: none */
    uint64_t from;             /* the address, or the part of it that is one client's; 0: none */
};
/* Fills in *caller. Errors: unauthorized, too_many_failures (then *retry_s says when it may come
 * again). */
int blasd_auth_check(struct blasd_auth *auth, const struct blasd_credentials *shown,
                     struct blasd_identity *caller, unsigned *retry_s, struct blasd_err *err);

/* Finds the tenant of a key for which `is` says so, and tells it in *ret; false: none. */
bool blasd_auth_find_tenant(struct blasd_auth *auth,
                            bool (*is)(void *arg, const struct blasd_principal *tenant), void *arg,
                            struct blasd_principal *ret);

/* Of the jobs a second that a key may submit; limit 0: any number. */
struct blasd_rate_view {
    uint64_t limit, remaining;
};
/* Counts a job of the caller; rate_limited where it is one too many. */
int blasd_auth_take_job(struct blasd_auth *auth, const struct blasd_identity *caller,
                        struct blasd_rate_view *view, struct blasd_err *err);

#endif
