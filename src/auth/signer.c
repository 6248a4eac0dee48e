/* The file is small and read whole; what it held is wiped from memory. */
#include "auth/signer.h"

#include "auth/identity.h"
#include "base/file.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MOST 65536
#define SECRET_LEAST 24 /* bytes, as the standard has it */
#define SECRET_MOST 64
#define SECRETS_EACH 4
#define PREFIX "whsec_"
#define HEAD "v1,"

struct secret {
    char tenant[BLASD_TENANT_MAX]; /* "": of all that have none of their own */
    unsigned char bytes[SECRET_MOST];
    size_t len;
};

struct blasd_signer {
    char *path;             /* owned, as the secrets */
    struct secret *secrets; /* in the file's order */
    int count;
    struct timespec changed;
    ino_t inode;
    struct blasd_err told; /* why it could not be read, as was told; zeros: it could */
};

static void wipe(struct secret *secrets, int count) {
    if (secrets != NULL) sodium_memzero(secrets, (size_t)count * sizeof *secrets);
    free(secrets);
}

void blasd_signer_free(struct blasd_signer *signer) {
    if (signer == NULL) return;
    wipe(signer->secrets, signer->count);
    free(signer->path);
    free(signer);
}

static int bad_line(const char *path, int number, const char *why, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_invalid_field, "webhook-secrets", "%.100s, line %d: %s", path,
                      number, why);
}

/* "[TENANT] whsec_BASE64"; NULL, or what is wrong with it. */
static const char *read_secret(char *line, struct secret *ret) {
    char *mark = strstr(line, PREFIX), *text;
    size_t name = mark == NULL ? 0 : (size_t)(mark - line);
    if (mark == NULL) return "it is not [TENANT] whsec_BASE64";
    while (name > 0 && (line[name - 1] == ' ' || line[name - 1] == '\t')) name--;
    if (name >= sizeof ret->tenant) return "the tenant's name is too long";
    memcpy(ret->tenant, line, name);
    ret->tenant[name] = '\0';
    if (name > 0 && (mark == line + name || !blasd_key_name_valid(ret->tenant, sizeof ret->tenant)))
        return "it begins with an invalid tenant name";
    text = mark + strlen(PREFIX);
    if (sodium_base642bin(ret->bytes, sizeof ret->bytes, text, strcspn(text, " \t"), NULL,
                          &ret->len, NULL, sodium_base64_VARIANT_ORIGINAL) != 0 ||
        ret->len < SECRET_LEAST || text[strcspn(text, " \t")] != '\0')
        return "a secret is 24 to 64 bytes in base64 behind whsec_";
    return NULL;
}

static int same_tenant(const struct secret *secrets, int count, const char *tenant) {
    int same = 0;
    for (int i = 0; i < count; i++) same += strcmp(secrets[i].tenant, tenant) == 0;
    return same;
}

/* Takes the lines of `text`, which is written over. */
static int read_lines(const char *path, char *text, struct secret **ret, int *count,
                      struct blasd_err *err) {
    int number = 1;
    for (char *line = text, *next; line != NULL; line = next, number++) {
        struct secret *more;
        const char *why;
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        line += strspn(line, " \t");
        line[strcspn(line, "\r")] = '\0';
        if (line[0] == '\0' || line[0] == '#') continue;
        more = realloc(*ret, (size_t)(*count + 1) * sizeof *more);
        if (more == NULL)
            return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the secrets");
        *ret = more;
        more[*count] = (struct secret){.len = 0};
        why = read_secret(line, &more[*count]);
        if (why == NULL && same_tenant(more, *count, more[*count].tenant) == SECRETS_EACH)
            why = "it is the fifth of one tenant, and four may be";
        if (why != NULL) return bad_line(path, number, why, err);
        ++*count;
    }
    if (*count > 0) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, "webhook-secrets", "%.150s has no secret", path);
}

static int load(struct blasd_signer *signer, struct blasd_err *err) {
    struct secret *secrets = NULL;
    struct stat facts;
    int count = 0, code;
    size_t len;
    /* an orchestrator mounts its secrets as links */
    char *real = realpath(signer->path, NULL), *text = NULL;
    if (real != NULL && stat(real, &facts) == 0) text = blasd_file_read(real, FILE_MOST, &len);
    free(real);
    if (text == NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "webhook-secrets", "cannot read %.150s: %s",
                          signer->path, strerror(errno));
    if ((facts.st_mode & 027) != 0)
        code = blasd_fail(err, BLASD_E_invalid_field, "webhook-secrets",
                          "others may read or write %.150s: chmod 600 it", signer->path);
    else
        code = read_lines(signer->path, text, &secrets, &count, err);
    sodium_memzero(text, len);
    free(text);
    if (code != 0) {
        wipe(secrets, count);
        return code;
    }
    wipe(signer->secrets, signer->count);
    signer->secrets = secrets;
    signer->count = count;
    signer->changed = facts.st_ctim;
    signer->inode = facts.st_ino;
    return 0;
}

int blasd_signer_open(const char *path, struct blasd_signer **ret, struct blasd_err *err) {
    struct blasd_signer *signer = calloc(1, sizeof *signer);
    int code;
    *ret = NULL;
    if (signer != NULL) signer->path = strdup(path);
    if (signer == NULL || signer->path == NULL || sodium_init() < 0)
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the secrets");
    else
        code = load(signer, err);
    if (code == 0)
        *ret = signer;
    else
        blasd_signer_free(signer);
    return code;
}

int blasd_signer_refresh(struct blasd_signer *signer, struct blasd_err *err) {
    struct stat facts;
    int code = 0;
    if (stat(signer->path, &facts) != 0 || facts.st_ino != signer->inode ||
        facts.st_ctim.tv_sec != signer->changed.tv_sec ||
        facts.st_ctim.tv_nsec != signer->changed.tv_nsec)
        code = load(signer, err);
    if (code != 0 && strcmp(signer->told.detail, err->detail) == 0) return 0;
    if (code == 0)
        signer->told.detail[0] = '\0';
    else
        signer->told = *err;
    return code;
}

static void sign(const struct secret *secret, const char *id, const char *timestamp,
                 const void *body, size_t len, char *text, size_t size) {
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, secret->bytes, secret->len);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)id, strlen(id));
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)".", 1);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)timestamp, strlen(timestamp));
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)".", 1);
    crypto_auth_hmacsha256_update(&state, body, len);
    crypto_auth_hmacsha256_final(&state, mac);
    sodium_bin2base64(text, size, mac, sizeof mac, sodium_base64_VARIANT_ORIGINAL);
}

bool blasd_signer_sign(const struct blasd_signer *signer, const char *tenant, const char *id,
                       const char *timestamp, const void *body, size_t len,
                       char signatures[BLASD_SIGNATURES]) {
    const char *of = same_tenant(signer->secrets, signer->count, tenant) > 0 ? tenant : "";
    size_t at = 0;
    for (int i = 0; i < signer->count; i++) {
        if (strcmp(signer->secrets[i].tenant, of) != 0) continue;
        at +=
            (size_t)snprintf(signatures + at, BLASD_SIGNATURES - at, "%s" HEAD, at == 0 ? "" : " ");
        sign(&signer->secrets[i], id, timestamp, body, len, signatures + at, BLASD_SIGNATURES - at);
        at += strlen(signatures + at);
    }
    return at > 0;
}
