/* Bytes that are held, with a limit: reserved before they are allocated, given back when they are
 * freed. An account may be part of another one, which counts its bytes too, and whose limit holds
 * as well. Any thread may use one. Read next: buf.h. */
#ifndef BLASD_BASE_ACCOUNT_H
#define BLASD_BASE_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct blasd_account {
    _Atomic uint64_t used, limit;
    struct blasd_account *parent; /* borrowed; NULL: none */
};

/* Reserves the bytes; false: they would exceed a limit, and nothing is reserved. */
bool blasd_account_take(struct blasd_account *account, uint64_t bytes);
void blasd_account_give(struct blasd_account *account, uint64_t bytes);
static inline uint64_t blasd_account_used(const struct blasd_account *account) {
    return atomic_load_explicit(&account->used, memory_order_relaxed);
}
static inline uint64_t blasd_account_limit(const struct blasd_account *account) {
    return atomic_load_explicit(&account->limit, memory_order_relaxed);
}
static inline void blasd_account_set(struct blasd_account *account, uint64_t limit) {
    atomic_store_explicit(&account->limit, limit, memory_order_relaxed);
}

#endif
