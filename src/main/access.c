/* Reading, checking and handing on the options of the access. */
#include "main/access.h"

#include "main/keys_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *from_environment(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

void access_init(struct access_options *access) {
    *access = (struct access_options){.keys = from_environment("BLASD_KEYS"),
                                      .tokens = {from_environment("BLASD_JWT_KEYS"),
                                                 from_environment("BLASD_JWT_ISSUER"),
                                                 from_environment("BLASD_JWT_AUDIENCE")},
                                      .tls_cert = from_environment("BLASD_TLS_CERT"),
                                      .tls_key = from_environment("BLASD_TLS_KEY"),
                                      .client_ca = from_environment("BLASD_TLS_CLIENT_CA")};
}

int access_take(struct access_options *access, int option, const char *value) {
    switch (option) {
    case OPTION_KEYS: access->keys = value; return 0;
    case OPTION_FIRST: access->first_key = true; return 0;
    case OPTION_JWT: access->tokens.keys = value; return 0;
    case OPTION_ISSUER: access->tokens.issuer = value; return 0;
    case OPTION_AUDIENCE: access->tokens.audience = value; return 0;
    case OPTION_CERT: access->tls_cert = value; return 0;
    case OPTION_KEY: access->tls_key = value; return 0;
    case OPTION_CA: access->client_ca = value; return 0;
    case OPTION_OPEN: access->insecure_no_keys = true; return 0;
    case OPTION_PLAIN: access->insecure_no_tls = true; return 0;
    case OPTION_HOST: return text_list_add(&access->hosts, value);
    case OPTION_ORIGIN: return text_list_add(&access->origins, value);
    case OPTION_SHARE: access->share = true; return 0;
    case OPTION_AUDIT: access->audit = true; return 0;
    case OPTION_ACCESS: access->access_log = true; return 0;
    case OPTION_TENANTS: access->metrics_tenants = true; return 0;
    default: return 1;
    }
}

static int refuse(struct blasd_err *err, const char *why) {
    return blasd_fail(err, BLASD_E_invalid_field, "", "%s", why);
}

static int check_together(const struct access_options *access, struct blasd_err *err) {
    if ((access->tls_cert == NULL) != (access->tls_key == NULL))
        return refuse(err, "--tls-cert and --tls-key go together");
    if ((access->tokens.keys == NULL) != (access->tokens.issuer == NULL) ||
        (access->tokens.keys == NULL) != (access->tokens.audience == NULL))
        return refuse(err, "--jwt-keys, --jwt-issuer and --jwt-audience go together");
    if (access->client_ca != NULL && (access->tls_cert == NULL || access->keys == NULL))
        return refuse(err, "--tls-client-ca needs --tls-cert, --tls-key and --keys: the file of "
                           "keys says whose a certificate is");
    if (access->first_key && access->keys == NULL)
        return refuse(err, "--first-key needs --keys FILE");
    return 0;
}

/* What no request could have there would only look as if it were allowed. */
static int check_names(const struct access_options *access, struct blasd_err *err) {
    for (int i = 0; i < access->hosts.count; i++) {
        const char *host = access->hosts.texts[i];
        if (host[0] == '\0' || (host[strcspn(host, ":/*")] != '\0' && strcmp(host, "*") != 0))
            return blasd_fail(err, BLASD_E_invalid_field, "allow-host",
                              "--allow-host '%.80s': give the name alone, such as blasd.example, "
                              "without scheme and port, or * for any",
                              host);
    }
    for (int i = 0; i < access->origins.count; i++) {
        const char *origin = access->origins.texts[i], *host = strstr(origin, "://");
        bool whole = host != NULL && host[3] != '\0' && strchr(host + 3, '/') == NULL;
        if (!whole && strcmp(origin, "*") != 0 && strcmp(origin, "null") != 0)
            return blasd_fail(err, BLASD_E_invalid_field, "allow-origin",
                              "--allow-origin '%.80s' is none such as https://lab.example, with "
                              "scheme and, where it has one, port, and no / behind them",
                              origin);
    }
    return 0;
}

static int check_exposure(const struct access_options *access, struct blasd_err *err) {
    if (!access_closed(access) && !access->insecure_no_keys)
        return refuse(err, "other machines can reach the address of --listen, and nobody would "
                           "need a key: make one with `blasd keys add NAME --file FILE` and give "
                           "--keys FILE, or say --insecure-no-keys");
    if (access->tls_cert == NULL && !access->insecure_no_tls)
        return refuse(err, "other machines can reach the address of --listen, and keys and tensors "
                           "would travel in the clear: give --tls-cert and --tls-key, or, behind a "
                           "proxy that speaks TLS, say --insecure-no-tls");
    return 0;
}

/* What the front end would say, said at once. */
static int check_files(const struct access_options *access, struct blasd_err *err) {
    const struct blasd_tls_files tls = {access->tls_cert, access->tls_key, access->client_ca};
    const struct blasd_token_options *tokens = access->tokens.keys == NULL ? NULL : &access->tokens;
    struct blasd_auth *auth = NULL;
    int rc = access->first_key ? keys_file_first(access->keys, err) : 0;
    if (rc == 0) rc = blasd_auth_open(access->keys, tokens, &auth, err);
    blasd_auth_free(auth);
    return rc == 0 && access->tls_cert != NULL ? blasd_http_check_tls(&tls, err) : rc;
}

int access_check(const struct access_options *access, const struct listeners *listeners,
                 struct blasd_err *err) {
    int rc = check_together(access, err);
    if (rc == 0) rc = check_names(access, err);
    if (rc == 0 && listeners_exposed(listeners)) rc = check_exposure(access, err);
    return rc == 0 ? check_files(access, err) : rc;
}

int access_check_again(const struct access_options *access, struct blasd_err *err) {
    const char *const files[] = {access->keys, access->tokens.keys};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int fd = files[i] == NULL ? -1 : open(files[i], O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            close(fd);
        else if (files[i] != NULL && errno == EACCES)
            return blasd_fail(err, BLASD_E_internal_error, "",
                              "no change of %.100s could be read, such as a key that is revoked: "
                              "the service gives up root's rights, so its user has to own the "
                              "file, or be let read it",
                              files[i]);
    }
    return 0;
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

int access_words(const struct access_options *access, struct text_list *words) {
    int failed = add_pair(words, "--keys", access->keys);
    failed |= add_pair(words, "--jwt-keys", access->tokens.keys);
    failed |= add_pair(words, "--jwt-issuer", access->tokens.issuer);
    failed |= add_pair(words, "--jwt-audience", access->tokens.audience);
    failed |= add_pair(words, "--tls-cert", access->tls_cert);
    failed |= add_pair(words, "--tls-key", access->tls_key);
    failed |= add_pair(words, "--tls-client-ca", access->client_ca);
    if (access->insecure_no_keys) failed |= text_list_add(words, "--insecure-no-keys");
    if (access->insecure_no_tls) failed |= text_list_add(words, "--insecure-no-tls");
    if (access->share) failed |= text_list_add(words, "--share");
    if (access->audit) failed |= text_list_add(words, "--audit");
    if (access->access_log) failed |= text_list_add(words, "--access-log");
    if (access->metrics_tenants) failed |= text_list_add(words, "--metrics-tenants");
    failed |= add_each(words, "--allow-host", &access->hosts);
    failed |= add_each(words, "--allow-origin", &access->origins);
    return failed;
}

void access_release(struct access_options *access) {
    text_list_release(&access->hosts);
    text_list_release(&access->origins);
}

bool access_reread(const struct access_options *access) {
    return access_closed(access) || access->tls_cert != NULL;
}
