/* Making and reading job ids. */
#include "base/id.h"

#include "base/hex.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* getrandom costs a system call; a block of random bytes per thread serves many ids. */
static _Thread_local unsigned char pool[4096];
static _Thread_local size_t used = sizeof pool;

/* A child would else go on with its parent's bytes, and make the same ids. */
static void drop_pool(void) {
    used = sizeof pool;
}

static void drop_pool_in_children(void) {
    pthread_atfork(NULL, NULL, drop_pool);
}

static void random_bytes(unsigned char *out, size_t len) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (used + len > sizeof pool) {
        size_t got = 0;
        pthread_once(&once, drop_pool_in_children);
        while (got < sizeof pool) {
            ssize_t n = getrandom(pool + got, sizeof pool - got, 0);
            if (n > 0) got += (size_t)n;
        }
        used = 0;
    }
    memcpy(out, pool + used, len);
    memset(pool + used, 0, len);
    used += len;
}

void blasd_random_hex(char *out, size_t len) {
    uint64_t bytes = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = len - i < 16 ? len - i : 16;
        random_bytes((unsigned char *)&bytes, n / 2);
        blasd_hex_write(out + i, bytes, (unsigned)n);
    }
    out[len] = '\0';
}

void blasd_id_new(enum blasd_id_kind kind, int64_t wall_us, char id[BLASD_ID_LEN + 1]) {
    uint32_t second = (uint32_t)(wall_us / 1000000);
    char *out = id;
    *out++ = (char)kind;
    blasd_random_hex(blasd_hex_write(out, second, 8), BLASD_ID_LEN - 9);
}

/* SipHash-2-4 of three words: what it gives tells nothing of the key. */
static uint64_t rotate(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

static void sip_rounds(uint64_t v[4], int rounds) {
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
        v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
    }
}

static uint64_t sip(const struct blasd_id_key *key, uint64_t a, uint64_t b, uint64_t c) {
    const uint64_t words[4] = {a, b, c, UINT64_C(24) << 56};
    uint64_t v[4] = {
        key->word[0] ^ UINT64_C(0x736f6d6570736575), key->word[1] ^ UINT64_C(0x646f72616e646f6d),
        key->word[0] ^ UINT64_C(0x6c7967656e657261), key->word[1] ^ UINT64_C(0x7465646279746573)};
    for (int i = 0; i < 4; i++) {
        v[3] ^= words[i];
        sip_rounds(v, 2);
        v[0] ^= words[i];
    }
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* What the parts before the last one make of the key. */
static struct blasd_id_key key_of_head(const char *id, const struct blasd_id_key *key) {
    uint64_t words[4] = {0};
    memcpy(words, id, BLASD_ID_ENTRY);
    struct blasd_id_key own = {{sip(key, words[0], words[1], 0), sip(key, words[2], words[3], 1)}};
    return own;
}

struct blasd_id_key blasd_id_key_for(const struct blasd_id_key *key, const char *name) {
    uint64_t words[4] = {0};
    memcpy(words, name, strnlen(name, sizeof words));
    uint64_t a = sip(key, words[0], words[1], 2), b = sip(key, words[2], words[3], 3);
    return (struct blasd_id_key){{sip(key, a, b, 4), sip(key, a, b, 5)}};
}

#define HALF UINT64_C(0xffffff)
#define ROUNDS 4

/* A Feistel network over 48 bits. */
static uint64_t encipher(const struct blasd_id_key *key, uint64_t number) {
    uint64_t left = number >> 24, right = number & HALF;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (sip(key, round, right, 0) & HALF);
        left = right;
        right = next;
    }
    return left << 24 | right;
}

static uint64_t decipher(const struct blasd_id_key *key, uint64_t number) {
    uint64_t left = number >> 24, right = number & HALF;
    for (uint64_t round = ROUNDS; round-- > 0;) {
        uint64_t before = right ^ (sip(key, round, left, 0) & HALF);
        right = left;
        left = before;
    }
    return left << 24 | right;
}

#define CHECKED 32 /* bits of the number that are 0; the others tell a batch entry's jobs apart */

void blasd_id_sign(char id[BLASD_ID_LEN + 1], const struct blasd_id_key *key) {
    static _Thread_local uint16_t count;
    static _Thread_local bool begun;
    struct blasd_id_key own = key_of_head(id, key);
    uint64_t number;
    if (!begun) random_bytes((unsigned char *)&count, sizeof count);
    begun = true;
    number = encipher(&own, (uint64_t)count++ << CHECKED);
    *blasd_hex_write(id + BLASD_ID_ENTRY, number, BLASD_ID_LEN - BLASD_ID_ENTRY) = '\0';
}

bool blasd_id_signed(const char *id, const struct blasd_id_key *key) {
    struct blasd_id_key own = key_of_head(id, key);
    return (decipher(&own, strtoull(id + BLASD_ID_ENTRY, NULL, 16)) & UINT32_MAX) == 0;
}

bool blasd_id_valid(const char *text) {
    if (text[0] != BLASD_ID_SYNC && text[0] != BLASD_ID_ASYNC) return false;
    return blasd_hex_begins(text + 1, BLASD_ID_LEN - 1) && text[BLASD_ID_LEN] == '\0';
}

bool blasd_id_tensor_valid(const char *text) {
    return text[0] == BLASD_ID_TENSOR && blasd_hex_begins(text + 1, BLASD_ID_LEN - 1) &&
           text[BLASD_ID_LEN] == '\0';
}
