/* Verifying tokens, and keeping the keys that sign them. */
#include "auth/token.h"

#include "auth/claims.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"

#include <errno.h>
#include <pthread.h>
#include <rhonabwy.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MOST BLASD_MIB
#define TOKEN_MOST 8192
#define TRIES 8     /* keys that a token is held to which names none: each costs a signature */
#define LEEWAY_S 30 /* that clocks may differ */

/* The keys of a file as it was once; freed with its last user. */
struct key_set {
    jwks_t *keys;
    int users; /* under the lock */
};

struct auth_tokens {
    const struct blasd_token_options *options; /* the owner's; texts live as long as the process */
    struct timespec changed;
    bool unread; /* the file as it is now could not be read, for a reason that may pass */
    pthread_mutex_t lock;
    struct key_set *set; /* under the lock; the owner is one of its users */
};

bool auth_token_like(const char *text) {
    const char *dot = strchr(text, '.');
    return dot != NULL && strchr(dot + 1, '.') != NULL;
}

static int unreadable(const char *source, const char *why, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_internal_error, "",
                      "no keys of tokens can be read from %.100s: %s", source, why);
}

static bool import_pem(jwks_t *keys, int type, const char *text, size_t len) {
    jwk_t *key = NULL;
    bool good = r_jwk_init(&key) == RHN_OK &&
                r_jwk_import_from_pem_der(key, type, R_FORMAT_PEM, (const unsigned char *)text,
                                          len) == RHN_OK;
    /* made up: whatever key a token names, there is but this one */
    if (good) r_jwk_delete_property_str(key, "kid");
    good = good && r_jwks_append_jwk(keys, key) == RHN_OK;
    r_jwk_free(key);
    return good;
}

/* A set of keys as JSON, or one public key or certificate as PEM. Of a set those of a kind that is
 * not known are left out, as RFC 7517 has it: the library tells of them, and takes the others. */
static bool import(jwks_t *keys, const char *text, size_t len) {
    (void)r_jwks_import_from_json_str(keys, text);
    if (r_jwks_size(keys) > 0) return true;
    return import_pem(keys, R_X509_TYPE_PUBKEY, text, len) ||
           import_pem(keys, R_X509_TYPE_CERTIFICATE, text, len);
}

static int load_file(const char *path, jwks_t *keys, struct blasd_err *err) {
    size_t len = 0;
    char *real = realpath(path, NULL);
    char *text = real == NULL ? NULL : blasd_file_read(real, FILE_MOST, &len);
    int rc = text == NULL ? unreadable(path, strerror(errno), err) : 0;
    free(real);
    if (rc == 0 && !import(keys, text, len))
        rc = unreadable(path, "it is neither a set of keys as JSON nor a public key as PEM", err);
    free(text);
    return rc;
}

static void let_go(struct auth_tokens *tokens, struct key_set *set) {
    bool last;
    if (set == NULL) return;
    pthread_mutex_lock(&tokens->lock);
    last = --set->users == 0;
    pthread_mutex_unlock(&tokens->lock);
    if (!last) return;
    r_jwks_free(set->keys);
    free(set);
}

static struct key_set *hold(struct auth_tokens *tokens) {
    struct key_set *set;
    pthread_mutex_lock(&tokens->lock);
    set = tokens->set;
    set->users++;
    pthread_mutex_unlock(&tokens->lock);
    return set;
}

/* Reads the file, whose keys then are those in force. */
static int load(struct auth_tokens *tokens, struct blasd_err *err) {
    struct key_set *set = calloc(1, sizeof *set), *old;
    int rc;
    if (set == NULL || r_jwks_init(&set->keys) != RHN_OK) {
        free(set);
        return unreadable(tokens->options->keys, "memory has run out", err);
    }
    rc = load_file(tokens->options->keys, set->keys, err);
    set->users = 1;
    pthread_mutex_lock(&tokens->lock);
    old = rc == 0 ? tokens->set : set;
    if (rc == 0) tokens->set = set;
    pthread_mutex_unlock(&tokens->lock);
    let_go(tokens, old);
    return rc;
}

int auth_tokens_open(const struct blasd_token_options *options, struct auth_tokens **ret,
                     struct blasd_err *err) {
    struct auth_tokens *tokens;
    struct stat facts;
    int rc;
    if (strstr(options->keys, "://") != NULL)
        return unreadable(options->keys,
                          "URLs are not supported: save the key set to a file and name the file; a "
                          "changed file is read again",
                          err);
    if (r_global_init() != RHN_OK || (tokens = calloc(1, sizeof *tokens)) == NULL)
        return blasd_no_memory(err);
    tokens->options = options;
    pthread_mutex_init(&tokens->lock, NULL);
    if (stat(options->keys, &facts) == 0) tokens->changed = facts.st_ctim;
    rc = load(tokens, err);
    if (rc == 0)
        *ret = tokens;
    else
        auth_tokens_free(tokens);
    return rc;
}

void auth_tokens_free(struct auth_tokens *tokens) {
    if (tokens == NULL) return;
    let_go(tokens, tokens->set);
    pthread_mutex_destroy(&tokens->lock);
    free(tokens);
}

int auth_tokens_refresh(struct auth_tokens *tokens, struct blasd_err *err) {
    struct stat facts;
    bool same;
    int rc;
    if (stat(tokens->options->keys, &facts) != 0) return 0; /* the old ones stay */
    same = facts.st_ctim.tv_sec == tokens->changed.tv_sec &&
           facts.st_ctim.tv_nsec == tokens->changed.tv_nsec;
    if (same && !tokens->unread) return 0;
    tokens->changed = facts.st_ctim;
    rc = load(tokens, err);
    tokens->unread = rc != 0;
    if (rc == 0) return 1;
    return same ? 0 : rc; /* it has been told */
}

/* ---- one token ---- */

static int refuse(struct blasd_err *err, const char *why) {
    return blasd_fail(err, BLASD_E_unauthorized, "Authorization", "the token %s", why);
}

/* Whether a key may have signed what names this algorithm: an HMAC with a public key is none. */
static bool is_for(jwk_t *key, jwa_alg alg) {
    int type = r_jwk_key_type(key, NULL, R_FLAG_IGNORE_REMOTE);
    switch (alg) {
    case R_JWA_ALG_RS256: return (type & R_KEY_TYPE_RSA) != 0;
    case R_JWA_ALG_ES256: return (type & R_KEY_TYPE_EC) != 0;
    case R_JWA_ALG_EDDSA: return (type & R_KEY_TYPE_EDDSA) != 0;
    default: return false;
    }
}

static bool is_signed(jwks_t *keys, jwt_t *token) {
    const char *named = r_jwt_get_header_str_value(token, "kid");
    size_t count = r_jwks_size(keys);
    bool good = false;
    int found = 0;
    for (size_t i = 0; i < count && !good && found < TRIES; i++) {
        jwk_t *key = r_jwks_get_at(keys, i);
        const char *id = r_jwk_get_property_str(key, "kid");
        if ((named == NULL || id == NULL || strcmp(named, id) == 0) &&
            is_for(key, r_jwt_get_sign_alg(token))) {
            found++;
            good = r_jwt_verify_signature(token, key, R_FLAG_IGNORE_REMOTE) == RHN_OK;
        }
        r_jwk_free(key);
    }
    return good;
}

static bool says(const json_t *claim, const char *text) {
    size_t i;
    json_t *one;
    if (json_is_string(claim)) return strcmp(json_string_value(claim), text) == 0;
    json_array_foreach((json_t *)(uintptr_t)claim, i,
                       one) if (json_is_string(one) &&
                                strcmp(json_string_value(one), text) == 0) return true;
    return false;
}

static int check_claims(const struct blasd_token_options *options, const json_t *claims,
                        struct blasd_auth_key *key, struct blasd_err *err) {
    const json_t *from = json_object_get(claims, "nbf"), *until = json_object_get(claims, "exp"),
                 *issuer = json_object_get(claims, "iss");
    double now = (double)blasd_clock_wall_us() * 1e-6, end = json_number_value(until);
    if (!json_is_number(until) || !(end > 0 && end < 1e12))
        return refuse(err, "has no end ('exp')");
    if (now > end + LEEWAY_S) return refuse(err, "has expired");
    if (from != NULL && !(json_is_number(from) && now >= json_number_value(from) - LEEWAY_S))
        return refuse(err, "is not valid yet ('nbf')");
    if (!json_is_string(issuer) || strcmp(json_string_value(issuer), options->issuer) != 0)
        return refuse(err, "is not of the issuer that is trusted here ('iss')");
    if (!says(json_object_get(claims, "aud"), options->audience))
        return refuse(err, "is not for this service ('aud')");
    key->expires_s = (int64_t)end + LEEWAY_S;
    return 0;
}

/* The same members as in the file of keys, in the claim "blasd", or beside the others. */
static int read_caller(const json_t *claims, struct blasd_identity *caller, struct blasd_err *err) {
    const json_t *own = json_object_get(claims, "blasd");
    const char *subject = json_string_value(json_object_get(claims, "sub"));
    struct blasd_err why = {0};
    if (subject == NULL || subject[0] == '\0') return refuse(err, "has no subject ('sub')");
    if (own != NULL && !json_is_object(own)) /* or what limits its holder would be passed over */
        return refuse(err, "has a claim 'blasd' that is not an object");
    for (size_t i = 0; i < sizeof caller->name - 1 && subject[i] != '\0'; i++) /* for the log */
        caller->name[i] = subject[i] > ' ' && subject[i] <= '~' ? subject[i] : '?';
    if (auth_claims_read(own != NULL ? own : claims, caller, &why) != 0)
        return blasd_fail(err, BLASD_E_unauthorized, "Authorization",
                          "the token's claims cannot be read: %.150s", why.detail);
    if (caller->principal.tenant[0] != '\0') return 0;
    if (!blasd_key_name_valid(subject, sizeof caller->principal.tenant))
        return refuse(err, "has no claim 'tenant', and 'sub' cannot be the name of one");
    memcpy(caller->principal.tenant, subject, strlen(subject) + 1);
    return 0;
}

/* The library unpacks what says it is compressed before anybody has seen who signed it, and so much
 * may come of it that all others wait. Of signed tokens no standard has them compressed. */
static bool is_plain(const char *text) {
    unsigned char head[TOKEN_MOST];
    size_t len = 0;
    json_t *root = NULL;
    bool plain;
    if (sodium_base642bin(head, sizeof head, text, strcspn(text, "."), NULL, &len, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0)
        root = json_loadb((const char *)head, len, 0, NULL);
    plain = json_is_object(root) && json_object_get(root, "zip") == NULL;
    json_decref(root);
    return plain;
}

int auth_tokens_check(struct auth_tokens *tokens, const char *text, struct blasd_auth_key *key,
                      struct blasd_err *err) {
    jwt_t *token = NULL;
    json_t *claims = NULL;
    struct key_set *set;
    bool good;
    int rc;
    *key = (struct blasd_auth_key){.expires_s = 0};
    blasd_identity_init(&key->caller, BLASD_ROLE_USER);
    if (strlen(text) > TOKEN_MOST) return refuse(err, "is too long");
    if (!is_plain(text)) return refuse(err, "has no head that is read here, or is compressed");
    set = hold(tokens);
    /* keys that the token brings along are none */
    good = r_jwt_init(&token) == RHN_OK &&
           r_jwt_advanced_parse(token, text, R_PARSE_NONE, R_FLAG_IGNORE_REMOTE) == RHN_OK &&
           r_jwt_get_type(token) == R_JWT_TYPE_SIGN && is_signed(set->keys, token);
    let_go(tokens, set);
    claims = r_jwt_get_header_json_t_value(token, "crit");
    if (!good)
        rc = refuse(err, "is not signed by a key that is trusted here");
    else if (claims != NULL)
        rc = refuse(err, "has critical extensions ('crit') that are not known here");
    else
        rc = 0;
    json_decref(claims);
    claims = rc == 0 ? r_jwt_get_full_claims_json_t(token) : NULL;
    if (rc == 0) rc = check_claims(tokens->options, claims, key, err);
    if (rc == 0) rc = read_caller(claims, &key->caller, err);
    json_decref(claims);
    r_jwt_free(token);
    return rc;
}
