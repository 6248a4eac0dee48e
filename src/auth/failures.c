/* A set-associative table of places. */
#include "auth/failures.h"

#include "base/hash.h"

#include <stddef.h>

#define SECOND_NS INT64_C(1000000000)

static size_t set_of(const struct auth_failures *failures, uint64_t from) {
    return blasd_hash_bytes(failures->seed, &from, sizeof from) % AUTH_FAILURE_SETS;
}

static int64_t wait_ns(const struct auth_failure *failure, unsigned most_s) {
    uint64_t beyond = failure->count < AUTH_FAILURES_FREE ? 0 : failure->count - AUTH_FAILURES_FREE;
    int64_t seconds = beyond < 6 ? INT64_C(1) << beyond : AUTH_FAILURE_WAIT_MOST;
    if (failure->count < AUTH_FAILURES_FREE) return 0;
    return (seconds < (int64_t)most_s ? seconds : (int64_t)most_s) * SECOND_NS;
}

static int is_old(const struct auth_failure *failure, int64_t now_ns) {
    return failure->count == 0 || now_ns - failure->last_ns > AUTH_FAILURE_KEPT * SECOND_NS;
}

unsigned auth_failures_wait(const struct auth_failures *failures, uint64_t from, int64_t now_ns,
                            unsigned most_s) {
    const struct auth_failure *set = failures->sets[set_of(failures, from)];
    if (from == 0) return 0;
    for (int i = 0; i < AUTH_FAILURE_WAYS; i++) {
        int64_t left = set[i].last_ns + wait_ns(&set[i], most_s) - now_ns;
        if (set[i].count == 0 || set[i].from != from || left <= 0) continue;
        return (unsigned)((left + SECOND_NS - 1) / SECOND_NS);
    }
    return 0;
}

void auth_failures_note(struct auth_failures *failures, uint64_t from, int64_t now_ns) {
    struct auth_failure *set = failures->sets[set_of(failures, from)], *place = &set[0];
    if (from == 0) return;
    for (int i = 0; i < AUTH_FAILURE_WAYS; i++) {
        if (set[i].count != 0 && set[i].from == from) {
            place = &set[i];
            break;
        }
        if (!is_old(place, now_ns) && (is_old(&set[i], now_ns) || set[i].count < place->count))
            place = &set[i];
    }
    if (place->from != from || is_old(place, now_ns)) *place = (struct auth_failure){.from = from};
    place->count++;
    place->last_ns = now_ns;
}
