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

/* SipHash-2-4 of whole words: what it gives tells nothing of the key. */
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

#define WORDS 5 /* four of a name, or of an id before its number, and one more */

static uint64_t sip(const struct blasd_id_key *key, const uint64_t words[WORDS]) {
    uint64_t v[4] = {
        key->word[0] ^ UINT64_C(0x736f6d6570736575), key->word[1] ^ UINT64_C(0x646f72616e646f6d),
        key->word[0] ^ UINT64_C(0x6c7967656e657261), key->word[1] ^ UINT64_C(0x7465646279746573)};
    for (int i = 0; i <= WORDS; i++) {
        uint64_t word = i < WORDS ? words[i] : (uint64_t)(WORDS * sizeof *words) << 56;
        v[3] ^= word;
        sip_rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

struct blasd_id_key blasd_id_key_for(const struct blasd_id_key *key, const char *name) {
    uint64_t words[WORDS] = {0};
    struct blasd_id_key own;
    memcpy(words, name, strnlen(name, sizeof words - sizeof *words));
    for (int i = 0; i < 2; i++) {
        words[WORDS - 1] = UINT64_MAX - (uint64_t)i; /* no number of an id */
        own.word[i] = sip(key, words);
    }
    return own;
}

#define NUMBER 4 /* digits */

void blasd_id_sign(char id[BLASD_ID_LEN + 1], const struct blasd_id_key *key, uint16_t number) {
    uint64_t words[WORDS] = {[WORDS - 1] = number};
    char *end = blasd_hex_write(id + BLASD_ID_ENTRY, number, NUMBER);
    memcpy(words, id, BLASD_ID_ENTRY);
    *blasd_hex_write(end, sip(key, words) & UINT32_MAX, BLASD_ID_LEN - BLASD_ID_ENTRY - NUMBER) =
        '\0';
}

bool blasd_id_signed(const char *id, const struct blasd_id_key *key) {
    char own[BLASD_ID_LEN + 1], number[NUMBER + 1] = {0};
    memcpy(own, id, sizeof own);
    memcpy(number, id + BLASD_ID_ENTRY, NUMBER);
    blasd_id_sign(own, key, (uint16_t)strtoul(number, NULL, 16));
    return memcmp(own, id, sizeof own) == 0;
}

bool blasd_id_valid(const char *text) {
    if (text[0] != BLASD_ID_SYNC && text[0] != BLASD_ID_ASYNC) return false;
    return blasd_hex_begins(text + 1, BLASD_ID_LEN - 1) && text[BLASD_ID_LEN] == '\0';
}

bool blasd_id_tensor_valid(const char *text) {
    return text[0] == BLASD_ID_TENSOR && blasd_hex_begins(text + 1, BLASD_ID_LEN - 1) &&
           text[BLASD_ID_LEN] == '\0';
}
