/* The options of `up` and `api` that say who may come in, keys, TLS, and what is left open on
 * purpose, and what is written down of it. Read next: ../auth/auth.h, ../http/tls.h. */
#ifndef BLASD_MAIN_ACCESS_H
#define BLASD_MAIN_ACCESS_H

#include "http/http.h"
#include "main/listen.h"
#include "main/options.h"

struct access_options {
    const char *keys;                  /* --keys, BLASD_KEYS; NULL: everybody may do everything */
    bool first_key;                    /* --first-key */
    struct blasd_token_options tokens; /* --jwt-…, BLASD_JWT_…; keys NULL: none are taken */
    const char *tls_cert;              /* --tls-cert, BLASD_TLS_CERT; NULL: no TLS */
    const char *tls_key;               /* --tls-key, BLASD_TLS_KEY */
    const char *client_ca;             /* --tls-client-ca, BLASD_TLS_CLIENT_CA */
    bool insecure_no_keys, insecure_no_tls;
    bool share, audit, access_log, metrics_tenants;
    struct text_list hosts, origins; /* --allow-host, --allow-origin */
};

enum {
    OPTION_KEYS = 512,
    OPTION_FIRST,
    OPTION_CERT,
    OPTION_KEY,
    OPTION_CA,
    OPTION_OPEN,
    OPTION_PLAIN,
    OPTION_JWT,
    OPTION_ISSUER,
    OPTION_AUDIENCE,
    OPTION_HOST,
    OPTION_ORIGIN,
    OPTION_SHARE,
    OPTION_AUDIT,
    OPTION_ACCESS,
    OPTION_TENANTS
};
/* clang-format off */
#define ACCESS_OPTIONS                                                                               \
    {"keys", required_argument, NULL, OPTION_KEYS},                                                \
    {"first-key", no_argument, NULL, OPTION_FIRST},                                                \
    {"tls-cert", required_argument, NULL, OPTION_CERT},                                            \
    {"tls-key", required_argument, NULL, OPTION_KEY},                                              \
    {"tls-client-ca", required_argument, NULL, OPTION_CA},                                         \
    {"jwt-keys", required_argument, NULL, OPTION_JWT},                                             \
    {"jwt-issuer", required_argument, NULL, OPTION_ISSUER},                                        \
    {"jwt-audience", required_argument, NULL, OPTION_AUDIENCE},                                    \
    {"insecure-no-keys", no_argument, NULL, OPTION_OPEN},                                          \
    {"insecure-no-tls", no_argument, NULL, OPTION_PLAIN},                                          \
    {"allow-host", required_argument, NULL, OPTION_HOST},                                          \
    {"allow-origin", required_argument, NULL, OPTION_ORIGIN},                                      \
    {"share", no_argument, NULL, OPTION_SHARE},                                                    \
    {"audit", no_argument, NULL, OPTION_AUDIT},                                                    \
    {"access-log", no_argument, NULL, OPTION_ACCESS},                                              \
    {"metrics-tenants", no_argument, NULL, OPTION_TENANTS}
/* clang-format on */
#define ACCESS_USAGE                                                                               \
    "  --keys FILE            require a key of this file; see `blasd keys add` [BLASD_KEYS]\n"     \
    "  --first-key            create FILE if missing, with an admin key that is printed\n"         \
    "                         once on standard error\n"                                            \
    "  --jwt-keys FILE, --jwt-issuer ISS, --jwt-audience AUD\n"                                    \
    "                         accept tokens signed by these keys (JWKS or PEM)\n"                  \
    "                         [BLASD_JWT_KEYS, BLASD_JWT_ISSUER, BLASD_JWT_AUDIENCE]\n"            \
    "  --tls-cert FILE, --tls-key FILE\n"                                                          \
    "                         use TLS only, with this certificate (PEM), read again on\n"          \
    "                         SIGHUP [BLASD_TLS_CERT, BLASD_TLS_KEY]\n"                            \
    "  --tls-client-ca FILE   accept client certificates of this authority instead of\n"           \
    "                         keys: `blasd keys add --certificate` [BLASD_TLS_CLIENT_CA]\n"        \
    "  --insecure-no-keys, --insecure-no-tls\n"                                                    \
    "                         allow other addresses than loopback and unix sockets\n"              \
    "                         without keys, or without TLS\n"                                      \
    "  --allow-host HOST      accept this Host header; may be repeated\n"                          \
    "  --allow-origin ORIGIN  accept web pages of this origin; may be repeated\n"                  \
    "  --share                accept tensors as files from local clients that can write\n"         \
    "                         into the blob directory; see docs/sharing.md\n"                      \
    "  --audit                log every accepted and every ended job\n"                            \
    "  --access-log           log every response\n"                                                \
    "  --metrics-tenants      add usage by tenant to GET /metrics\n"

/* Whether nobody comes in without a key or a token. */
static inline bool access_closed(const struct access_options *access) {
    return access->keys != NULL || access->tokens.keys != NULL;
}
/* What the environment says. */
void access_init(struct access_options *access);
/* 0, 1: the option is none of these, or -1: no memory. */
int access_take(struct access_options *access, int option, const char *value);
/* Whether the options fit together and suit what is listened on; makes the first key where that
 * was asked for. */
int access_check(const struct access_options *access, const struct listeners *listeners,
                 struct blasd_err *err);
/* To be called once the process has given up its rights: whether it can still see who comes in, for
 * of a key that is revoked it would know nothing. */
int access_check_again(const struct access_options *access, struct blasd_err *err);
void access_release(struct access_options *access);
/* The same options, as words for `blasd api`. 0, or -1: no memory. */
int access_words(const struct access_options *access, struct text_list *words);
/* Whether there is anything that SIGHUP would have read anew; without, it ends the service. */
bool access_reread(const struct access_options *access);

#endif
