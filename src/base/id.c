/* Making and reading job ids. */
#include "base/id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char digits[] = "0123456789abcdef";

/* getrandom costs a system call; a block of random bytes per thread serves many ids. */
static void random_bytes(unsigned char *out, size_t len) {
    static _Thread_local unsigned char pool[4096];
    static _Thread_local size_t used = sizeof pool;
    if (used + len > sizeof pool) {
        size_t got = 0;
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

/* Fills `len` characters, an even number, with random hexadecimal digits. */
static void random_digits(char *out, size_t len) {
    unsigned char bytes[(BLASD_ID_LEN - 9) / 2];
    random_bytes(bytes, len / 2);
    for (size_t i = 0; i < len / 2; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
}

void blasd_id_new(enum blasd_id_kind kind, int64_t wall_us, char id[BLASD_ID_LEN + 1]) {
    uint32_t second = (uint32_t)(wall_us / 1000000);
    char *out = id;
    *out++ = (char)kind;
    for (int shift = 28; shift >= 0; shift -= 4) *out++ = digits[(second >> shift) & 15];
    random_digits(out, BLASD_ID_LEN - 9);
    id[BLASD_ID_LEN] = '\0';
}

void blasd_id_renew(char id[BLASD_ID_LEN + 1]) {
    random_digits(id + BLASD_ID_PACKET, BLASD_ID_LEN - BLASD_ID_PACKET);
    id[BLASD_ID_LEN] = '\0';
}

bool blasd_id_valid(const char *text) {
    if (text[0] != BLASD_ID_SYNC && text[0] != BLASD_ID_ASYNC) return false;
    return strspn(text + 1, "0123456789abcdef") == BLASD_ID_LEN - 1 && text[BLASD_ID_LEN] == '\0';
}
