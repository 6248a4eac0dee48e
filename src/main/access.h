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
    "  --keys FILE            let in who shows a key of this file alone; `blasd keys add` makes\n" \
    "                         keys [BLASD_KEYS]\n"                                                 \
    "  --first-key            where FILE is missing make it, with a key of an admin, which is\n"   \
    "                         printed once, on standard error\n"                                   \
    "  --jwt-keys FILE, --jwt-issuer ISS, --jwt-audience AUD\n"                                    \
    "                         take tokens, too, that one of these keys (JWKS, or PEM) has\n"       \
    "                         signed [BLASD_JWT_KEYS, BLASD_JWT_ISSUER, BLASD_JWT_AUDIENCE]\n"     \
    "  --tls-cert FILE, --tls-key FILE\n"                                                          \
    "                         speak TLS alone, with this certificate and its key (PEM), read\n"    \
    "                         anew on SIGHUP [BLASD_TLS_CERT, BLASD_TLS_KEY]\n"                    \
    "  --tls-client-ca FILE   a client may show a certificate signed by one of these in place of " \
    "a\n"                                                                                          \
    "                         key: `blasd keys add --certificate` [BLASD_TLS_CLIENT_CA]\n"         \
    "  --insecure-no-keys, --insecure-no-tls\n"                                                    \
    "                         without these two nothing but loopback or a unix socket is\n"        \
    "                         listened on without keys, or without TLS\n"                          \
    "  --allow-host HOST      a name that may stand in the Host header; may be repeated\n"         \
    "  --allow-origin ORIGIN  web pages of this origin may send requests; may be repeated\n"       \
    "  --share                clients on this machine may hand in tensors as files, and map "      \
    "results:\n"                                                                                   \
    "                         whoever may write into the blob directory, which is this user's "    \
    "alone\n"                                                                                      \
    "  --audit                logs a line for each job that is taken, and for each that has "      \
    "ended\n"                                                                                      \
    "  --access-log           logs a line for each request that is answered\n"                     \
    "  --metrics-tenants      GET /metrics names tenants, with what each has queued and kept\n"

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
