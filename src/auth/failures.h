/* How long who shows wrong keys has to wait before the next one is looked at.
 *
 * What is counted is a place: an address, or what comes from it and claims to be one key. A table
 * of fixed size: a place with more failures than others stays, and who fills it with places of his
 * own only forgets his own. Knows nothing of keys. */
#ifndef BLASD_AUTH_FAILURES_H
#define BLASD_AUTH_FAILURES_H

#include <stdint.h>

#define AUTH_FAILURE_SETS 512
#define AUTH_FAILURE_WAYS 4
#define AUTH_FAILURES_FREE 5      /* that are answered without a wait */
#define AUTH_FAILURE_WAIT_MOST 60 /* seconds */
#define AUTH_FAILURE_KEPT 300     /* seconds without one, after which all are forgotten */

struct auth_failure {
    uint64_t from;
    uint64_t count; /* 0: the place is free */
    int64_t last_ns;
};

struct auth_failures {
    uint64_t seed; /* secret */
    struct auth_failure sets[AUTH_FAILURE_SETS][AUTH_FAILURE_WAYS];
};

/* Seconds, `most_s` at most, until a key of that place is looked at; 0: now, as always where there
 * is no address: one that came by a unix socket would have everybody there wait. */
unsigned auth_failures_wait(const struct auth_failures *failures, uint64_t from, int64_t now_ns,
                            unsigned most_s);
/* It has shown a wrong one. */
void auth_failures_note(struct auth_failures *failures, uint64_t from, int64_t now_ns);

#endif
