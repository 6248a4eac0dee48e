/* Reading, checking and handing on the options of the doors. */
#include "main/doors.h"

#include "main/keys_file.h"

#include <stdlib.h>
#include <string.h>

static const char *from_environment(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

void doors_init(struct door_options *doors) {
    *doors = (struct door_options){.keys = from_environment("BLASD_KEYS"),
                                   .tokens = {from_environment("BLASD_JWT_KEYS"),
                                              from_environment("BLASD_JWT_ISSUER"),
                                              from_environment("BLASD_JWT_AUDIENCE")},
                                   .tls_cert = from_environment("BLASD_TLS_CERT"),
                                   .tls_key = from_environment("BLASD_TLS_KEY"),
                                   .client_ca = from_environment("BLASD_TLS_CLIENT_CA")};
}

int doors_take(struct door_options *doors, int option, const char *value) {
    switch (option) {
    case OPTION_KEYS: doors->keys = value; return 0;
    case OPTION_FIRST: doors->first_key = true; return 0;
    case OPTION_JWT: doors->tokens.keys = value; return 0;
    case OPTION_ISSUER: doors->tokens.issuer = value; return 0;
    case OPTION_AUDIENCE: doors->tokens.audience = value; return 0;
    case OPTION_CERT: doors->tls_cert = value; return 0;
    case OPTION_KEY: doors->tls_key = value; return 0;
    case OPTION_CA: doors->client_ca = value; return 0;
    case OPTION_OPEN: doors->insecure_no_keys = true; return 0;
    case OPTION_PLAIN: doors->insecure_no_tls = true; return 0;
    case OPTION_HOST: return text_list_add(&doors->hosts, value);
    case OPTION_ORIGIN: return text_list_add(&doors->origins, value);
    case OPTION_SHARE: doors->share = true; return 0;
    case OPTION_AUDIT: doors->audit = true; return 0;
    case OPTION_ACCESS: doors->access_log = true; return 0;
    case OPTION_TENANTS: doors->metrics_tenants = true; return 0;
    default: return 1;
    }
}

static int refuse(struct blasd_err *err, const char *why) {
    return blasd_fail(err, BLASD_E_invalid_field, "", "%s", why);
}

static int check_together(const struct door_options *doors, struct blasd_err *err) {
    if ((doors->tls_cert == NULL) != (doors->tls_key == NULL))
        return refuse(err, "--tls-cert and --tls-key go together");
    if ((doors->tokens.keys == NULL) != (doors->tokens.issuer == NULL) ||
        (doors->tokens.keys == NULL) != (doors->tokens.audience == NULL))
        return refuse(err, "--jwt-keys, --jwt-issuer and --jwt-audience go together");
    if (doors->client_ca != NULL && (doors->tls_cert == NULL || doors->keys == NULL))
        return refuse(err, "--tls-client-ca needs --tls-cert, --tls-key and --keys: the file of "
                           "keys says whose a certificate is");
    if (doors->first_key && doors->keys == NULL)
        return refuse(err, "--first-key needs --keys FILE");
    return 0;
}

static int check_exposure(const struct door_options *doors, struct blasd_err *err) {
    if (!doors_closed(doors) && !doors->insecure_no_keys)
        return refuse(err, "other machines can reach the address of --listen, and nobody would "
                           "need a key: make one with `blasd keys add NAME --file FILE` and give "
                           "--keys FILE, or say --insecure-no-keys");
    if (doors->tls_cert == NULL && !doors->insecure_no_tls)
        return refuse(err, "other machines can reach the address of --listen, and keys and tensors "
                           "would travel in the clear: give --tls-cert and --tls-key, or, behind a "
                           "proxy that speaks TLS, say --insecure-no-tls");
    return 0;
}

/* What the front end would say, said at once. */
static int check_files(const struct door_options *doors, struct blasd_err *err) {
    const struct blasd_tls_files tls = {doors->tls_cert, doors->tls_key, doors->client_ca};
    const char *signers = doors->tokens.keys;
    bool local = signers != NULL && strstr(signers, "://") == NULL;
    struct blasd_auth *auth = NULL;
    int rc = doors->first_key ? keys_file_first(doors->keys, err) : 0;
    if (rc == 0) rc = blasd_auth_open(doors->keys, local ? &doors->tokens : NULL, &auth, err);
    blasd_auth_free(auth);
    return rc == 0 && doors->tls_cert != NULL ? blasd_http_check_tls(&tls, err) : rc;
}

int doors_check(const struct door_options *doors, const struct listeners *listeners,
                struct blasd_err *err) {
    int rc = check_together(doors, err);
    if (rc == 0 && listeners_exposed(listeners)) rc = check_exposure(doors, err);
    return rc == 0 ? check_files(doors, err) : rc;
}

static int add_pair(struct text_list *words, const char *option, const char *value) {
    if (value == NULL) return 0;
    return text_list_add(words, option) | text_list_add(words, value);
}

/* An option for each of `texts`. */
static int add_each(struct text_list *words, const char *option, const struct text_list *texts) {
    int failed = 0;
    for (int i = 0; i < texts->count; i++)
        failed |= text_list_add(words, option) | text_list_add(words, texts->texts[i]);
    return failed;
}

int doors_words(const struct door_options *doors, struct text_list *words) {
    int failed = add_pair(words, "--keys", doors->keys);
    failed |= add_pair(words, "--jwt-keys", doors->tokens.keys);
    failed |= add_pair(words, "--jwt-issuer", doors->tokens.issuer);
    failed |= add_pair(words, "--jwt-audience", doors->tokens.audience);
    failed |= add_pair(words, "--tls-cert", doors->tls_cert);
    failed |= add_pair(words, "--tls-key", doors->tls_key);
    failed |= add_pair(words, "--tls-client-ca", doors->client_ca);
    if (doors->insecure_no_keys) failed |= text_list_add(words, "--insecure-no-keys");
    if (doors->insecure_no_tls) failed |= text_list_add(words, "--insecure-no-tls");
    if (doors->share) failed |= text_list_add(words, "--share");
    if (doors->audit) failed |= text_list_add(words, "--audit");
    if (doors->access_log) failed |= text_list_add(words, "--access-log");
    if (doors->metrics_tenants) failed |= text_list_add(words, "--metrics-tenants");
    failed |= add_each(words, "--allow-host", &doors->hosts);
    failed |= add_each(words, "--allow-origin", &doors->origins);
    return failed;
}

void doors_release(struct door_options *doors) {
    text_list_release(&doors->hosts);
    text_list_release(&doors->origins);
}

bool doors_reread(const struct door_options *doors) {
    return doors_closed(doors) || doors->tls_cert != NULL;
}
