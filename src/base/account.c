/* Counting from an account up to the one that has no parent. */
#include "base/account.h"

#include <stddef.h>

bool blasd_account_take(struct blasd_account *account, uint64_t bytes) {
    for (struct blasd_account *at = account; at != NULL && bytes > 0; at = at->parent) {
        uint64_t limit = blasd_account_limit(at);
        uint64_t used = atomic_fetch_add_explicit(&at->used, bytes, memory_order_relaxed);
        if (bytes <= limit && used <= limit - bytes) continue;
        for (struct blasd_account *undo = account;; undo = undo->parent) {
            atomic_fetch_sub_explicit(&undo->used, bytes, memory_order_relaxed);
            if (undo == at) return false;
        }
    }
    return true;
}

void blasd_account_give(struct blasd_account *account, uint64_t bytes) {
    for (; account != NULL && bytes > 0; account = account->parent)
        atomic_fetch_sub_explicit(&account->used, bytes, memory_order_relaxed);
}
