/* Making and comparing secrets, with libsodium. */
#include "auth/key.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "blasd_"
#define SECRET_BYTES 32
#define SECRET_DIGITS 43 /* of base64, without padding */
/* about a millisecond */
#define HASH_PASSES 2
#define HASH_BYTES (1 << 20)

_Static_assert(crypto_pwhash_STRBYTES <= BLASD_KEY_HASH, "a hash needs more room");
_Static_assert(sizeof PREFIX - 1 + BLASD_KEY_ID + 1 + SECRET_DIGITS + 1 <= BLASD_KEY_TEXT,
               "a key needs more room");

static unsigned char digest_key[crypto_generichash_KEYBYTES];

static void make_digest_key(void) {
    crypto_generichash_keygen(digest_key);
}

int blasd_secret_init(struct blasd_err *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (sodium_init() < 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "libsodium did not start");
    pthread_once(&once, make_digest_key);
    return 0;
}

static int hash_text(const char *text, char hash[BLASD_KEY_HASH], struct blasd_err *err) {
    memset(hash, 0, BLASD_KEY_HASH);
    if (crypto_pwhash_str_alg(hash, text, strlen(text), HASH_PASSES, HASH_BYTES,
                              crypto_pwhash_ALG_ARGON2ID13) == 0)
        return 0;
    return blasd_fail(err, BLASD_E_no_space, "", "no memory to hash a key");
}

int blasd_secret_new(struct blasd_auth_key *key, char text[BLASD_KEY_TEXT], struct blasd_err *err) {
    unsigned char bytes[SECRET_BYTES];
    char digits[SECRET_DIGITS + 1];
    int rc;
    randombytes_buf(bytes, BLASD_KEY_ID / 2);
    sodium_bin2hex(key->id, sizeof key->id, bytes, BLASD_KEY_ID / 2);
    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2base64(digits, sizeof digits, bytes, sizeof bytes,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    snprintf(text, BLASD_KEY_TEXT, PREFIX "%s_%s", key->id, digits);
    rc = hash_text(text, key->hash, err);
    sodium_memzero(bytes, sizeof bytes);
    sodium_memzero(digits, sizeof digits);
    return rc;
}

bool blasd_secret_id(const char *text, char id[BLASD_KEY_ID + 1]) {
    const size_t head = sizeof PREFIX - 1;
    if (strncmp(text, PREFIX, head) != 0 ||
        strspn(text + head, "0123456789abcdef") < BLASD_KEY_ID || text[head + BLASD_KEY_ID] != '_')
        return false;
    memcpy(id, text + head, BLASD_KEY_ID);
    id[BLASD_KEY_ID] = '\0';
    return true;
}

bool blasd_secret_matches(const char *text, const char hash[BLASD_KEY_HASH]) {
    return crypto_pwhash_str_verify(hash, text, strlen(text)) == 0;
}

int blasd_secret_decoy(char hash[BLASD_KEY_HASH], struct blasd_err *err) {
    struct blasd_auth_key key;
    char text[BLASD_KEY_TEXT];
    int rc = blasd_secret_new(&key, text, err);
    sodium_memzero(text, sizeof text);
    memcpy(hash, key.hash, BLASD_KEY_HASH);
    return rc;
}

void blasd_secret_digest(const char *text, size_t len, unsigned char digest[BLASD_DIGEST]) {
    crypto_generichash(digest, BLASD_DIGEST, (const unsigned char *)text, len, digest_key,
                       sizeof digest_key);
}

uint64_t blasd_secret_seed(void) {
    uint64_t seed;
    randombytes_buf(&seed, sizeof seed);
    return seed;
}

bool blasd_secret_equal(const unsigned char a[BLASD_DIGEST], const unsigned char b[BLASD_DIGEST]) {
    return sodium_memcmp(a, b, BLASD_DIGEST) == 0;
}
