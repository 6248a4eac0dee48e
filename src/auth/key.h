/* Keys, and the file that holds them.
 *
 * A key is the text "blasd_ID_SECRET": ten hexadecimal digits that the file holds as they are, by
 * which a key is found and talked of, and 256 random bits, of which the file holds a BLAKE2b hash
 * of the whole text. No guessing finds so many bits, however fast, so the hash need not be slow.
 * Keys that earlier versions made have an Argon2id hash, which takes a millisecond. The file is
 * JSON, for its owner alone (0600), and replaced as a whole. Read next: auth.c. */
#ifndef BLASD_AUTH_KEY_H
#define BLASD_AUTH_KEY_H

#include "auth/identity.h"
#include "base/err.h"

#define BLASD_KEY_ID 10    /* digits */
#define BLASD_KEY_TEXT 64  /* bytes of a key with its zero */
#define BLASD_KEY_HASH 128 /* bytes of a hash with its zero, libsodium's crypto_pwhash_STRBYTES */
#define BLASD_CERTIFICATE 128 /* bytes of a certificate's name with its zero */
#define BLASD_KEYS_MOST 10000

struct blasd_auth_key {
    struct blasd_identity caller; /* who shows it is this one; its name is the key's */
    /* "" where a client certificate takes the secret's place, whose common name is `certificate` */
    char id[BLASD_KEY_ID + 1], hash[BLASD_KEY_HASH];
    char certificate[BLASD_CERTIFICATE];
    int64_t created_s, expires_s; /* since 1970; 0: never */
};

/* All keys of a file, in its order. Zeroed: none. */
struct blasd_keyring {
    struct blasd_auth_key *keys; /* owned */
    size_t count, room;
    uint32_t *index; /* owned; what keys are found by: keyring.c */
    size_t places;   /* of it: a power of two, or 0 */
};

void blasd_keyring_release(struct blasd_keyring *ring);
/* Reads a file; *missing: there is none, which is an error too. Fills an empty ring. */
int blasd_keyring_load(const char *path, struct blasd_keyring *ring, bool *missing,
                       struct blasd_err *err);
int blasd_keyring_save(const char *path, const struct blasd_keyring *ring, struct blasd_err *err);
/* Adds a copy of the key. A name, and a certificate, may stand there once. */
int blasd_keyring_add(struct blasd_keyring *ring, const struct blasd_auth_key *key,
                      struct blasd_err *err);
/* Takes out the key of that name; false: there is none. */
bool blasd_keyring_remove(struct blasd_keyring *ring, const char *name);
/* By name, id or certificate; NULL: none. Borrowed. */
const struct blasd_auth_key *blasd_keyring_named(const struct blasd_keyring *ring,
                                                 const char *name);
const struct blasd_auth_key *blasd_keyring_id(const struct blasd_keyring *ring, const char *id);
const struct blasd_auth_key *blasd_keyring_certificate(const struct blasd_keyring *ring,
                                                       const char *name);

/* The file's text, which is appended, and back. Pure. */
struct blasd_buf;
int blasd_keyring_write(const struct blasd_keyring *ring, struct blasd_buf *text,
                        struct blasd_err *err);
int blasd_keyring_parse(const char *text, size_t len, struct blasd_keyring *ring,
                        struct blasd_err *err);

/* "2027-01-31", "2027-01-31T12:00:00Z"; false: neither. */
bool blasd_key_time(const char *text, int64_t *seconds);
/* A caller whose role is `role` and whose key has no limits. */
void blasd_identity_init(struct blasd_identity *caller, enum blasd_role role);

/* secret.c: makes a key: fills in id and hash, and gives its text. */
void blasd_secret_new(struct blasd_auth_key *key, char text[BLASD_KEY_TEXT]);
/* Whether it has the form of a hash, and whether comparing with it takes a millisecond. */
bool blasd_secret_hash_valid(const char hash[BLASD_KEY_HASH]);
bool blasd_secret_slow(const char hash[BLASD_KEY_HASH]);
/* The id within a text that has the form of a key; false: it has not. */
bool blasd_secret_id(const char *text, char id[BLASD_KEY_ID + 1]);
/* Whether the text is the one that was hashed; takes as long either way. */
bool blasd_secret_matches(const char *text, const char hash[BLASD_KEY_HASH]);
/* A keyed hash under a key of this process' own. */
#define BLASD_DIGEST 32
void blasd_secret_digest(const char *text, size_t len, unsigned char digest[BLASD_DIGEST]);
bool blasd_secret_equal(const unsigned char a[BLASD_DIGEST], const unsigned char b[BLASD_DIGEST]);
/* Random bits that nobody knows. */
uint64_t blasd_secret_seed(void);
/* To be called once before all of these. */
int blasd_secret_init(struct blasd_err *err);

#endif
