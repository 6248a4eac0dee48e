/* Making and comparing secrets, with libsodium. */
#include "auth/key.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "blasd_"
#define SECRET_BYTES 32
#define SECRET_DIGITS 43 /* of base64, without padding */
#define QUICK "$blake2b$"
#define SLOW "$argon2id$" /* of keys that earlier versions made; about a millisecond */

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

static void hash_text(const char *text, char hash[BLASD_KEY_HASH]) {
    unsigned char digest[BLASD_DIGEST];
    memset(hash, 0, BLASD_KEY_HASH);
    memcpy(hash, QUICK, sizeof QUICK);
    crypto_generichash(digest, sizeof digest, (const unsigned char *)text, strlen(text), NULL, 0);
    sodium_bin2hex(hash + sizeof QUICK - 1, 2 * sizeof digest + 1, digest, sizeof digest);
}

void blasd_secret_new(struct blasd_auth_key *key, char text[BLASD_KEY_TEXT]) {
    unsigned char bytes[SECRET_BYTES];
    char digits[SECRET_DIGITS + 1];
    randombytes_buf(bytes, BLASD_KEY_ID / 2);
    sodium_bin2hex(key->id, sizeof key->id, bytes, BLASD_KEY_ID / 2);
    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2base64(digits, sizeof digits, bytes, sizeof bytes,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    snprintf(text, BLASD_KEY_TEXT, PREFIX "%s_%s", key->id, digits);
    hash_text(text, key->hash);
    sodium_memzero(bytes, sizeof bytes);
    sodium_memzero(digits, sizeof digits);
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

bool blasd_secret_slow(const char hash[BLASD_KEY_HASH]) {
    return strncmp(hash, SLOW, sizeof SLOW - 1) == 0;
}

bool blasd_secret_hash_valid(const char hash[BLASD_KEY_HASH]) {
    return blasd_secret_slow(hash) || strncmp(hash, QUICK, sizeof QUICK - 1) == 0;
}

bool blasd_secret_matches(const char *text, const char hash[BLASD_KEY_HASH]) {
    char own[BLASD_KEY_HASH];
    if (blasd_secret_slow(hash)) return crypto_pwhash_str_verify(hash, text, strlen(text)) == 0;
    hash_text(text, own);
    return strlen(hash) == strlen(own) && sodium_memcmp(own, hash, strlen(own)) == 0;
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
