/* The keys in force, and who has shown one. */
#include "auth/auth.h"

#include "auth/failures.h"
#include "auth/key.h"
#include "auth/token.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define PROOFS_MOST 8192  /* what was shown and was right; then all are forgotten */
#define RATES_MOST 8192   /* keys that submit so many jobs a second; then those idle go */
#define SLOW_A_SECOND 100 /* comparisons with Argon2id hashes, from wherever they come */
#define SECOND_NS INT64_C(1000000000)

/* What was shown once and was right: it needs no slow hash any more. */
struct proof {
    struct blasd_hash_node node;
    unsigned char digest[BLASD_DIGEST];
    struct blasd_auth_key key;
};

/* When who takes evenly at a rate would have taken what was taken. */
struct limiter {
    int64_t even_ns;
};

/* That of a caller's jobs. */
struct rate {
    struct blasd_hash_node node;
    char tenant[BLASD_TENANT_MAX], name[BLASD_IDENTITY_NAME];
    struct limiter limiter;
};

/* What tells a file that was replaced or written to. */
struct file_state {
    dev_t device;
    ino_t file;
    off_t size;
    struct timespec changed;
};

struct blasd_auth {
    const char *path; /* borrowed; NULL: no keys */
    /* the keys of the file, which never change: a new file is another ring */
    _Atomic(struct blasd_keyring *) ring; /* owned */
    atomic_int readers;                   /* of a ring: the old one is freed when there is none */
    struct auth_tokens *tokens;           /* owned; NULL: none are taken */
    pthread_mutex_t lock;
    /* under the lock */
    struct file_state file;
    bool unread;      /* as it is now it could not be read, for a reason that may pass */
    unsigned version; /* of the ring, and of the keys of tokens */
    struct blasd_hash proofs, rates;
    struct auth_failures failures;
    struct limiter slow;
    /* constant */
    blasd_auth_change_fn told; /* NULL: nobody is */
    void *told_arg;
};

static struct file_state look_at(const char *path) {
    struct stat facts;
    if (stat(path, &facts) != 0) return (struct file_state){.size = -1};
    return (struct file_state){facts.st_dev, facts.st_ino, facts.st_size, facts.st_ctim};
}

static bool is_same(const struct file_state *a, const struct file_state *b) {
    return a->device == b->device && a->file == b->file && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* The ring in force, until auth_let_go. */
static const struct blasd_keyring *auth_hold(struct blasd_auth *auth) {
    atomic_fetch_add(&auth->readers, 1);
    return atomic_load(&auth->ring);
}

static void auth_let_go(struct blasd_auth *auth) {
    atomic_fetch_sub(&auth->readers, 1);
}

static void ring_free(struct blasd_keyring *ring) {
    if (ring == NULL) return;
    blasd_keyring_release(ring);
    free(ring);
}

/* Puts another ring in place, and gives back the old one, which no reader has any more. */
static struct blasd_keyring *exchange_ring(struct blasd_auth *auth, struct blasd_keyring *ring) {
    struct blasd_keyring *old = atomic_exchange(&auth->ring, ring);
    while (atomic_load(&auth->readers) > 0) sched_yield(); /* each is one for a microsecond */
    return old;
}

static void free_proof(void *arg, struct blasd_hash_node *node) {
    blasd_hash_remove(arg, node);
    free(blasd_container_of(node, struct proof, node));
}

static void free_rate(void *arg, struct blasd_hash_node *node) {
    blasd_hash_remove(arg, node);
    free(blasd_container_of(node, struct rate, node));
}

static void forget(struct blasd_hash *table,
                   void (*free_one)(void *arg, struct blasd_hash_node *node)) {
    blasd_hash_each(table, free_one, table);
}

int blasd_auth_open(const char *path, const struct blasd_token_options *tokens,
                    struct blasd_auth **ret, struct blasd_err *err) {
    struct blasd_auth *auth = calloc(1, sizeof *auth);
    struct blasd_keyring *ring = calloc(1, sizeof *ring);
    bool missing;
    int rc;
    if (auth == NULL || ring == NULL) {
        free(auth);
        free(ring);
        return blasd_no_memory(err);
    }
    auth->path = path;
    auth->ring = ring;
    pthread_mutex_init(&auth->lock, NULL);
    if (path != NULL) auth->file = look_at(path);
    rc = blasd_secret_init(err);
    if (rc == 0 && tokens != NULL) rc = auth_tokens_open(tokens, &auth->tokens, err);
    if (rc == 0 && path != NULL) rc = blasd_keyring_load(path, ring, &missing, err);
    if (rc != 0) {
        blasd_auth_free(auth);
        return rc;
    }
    auth->failures.seed = blasd_secret_seed();
    *ret = auth;
    return 0;
}

void blasd_auth_free(struct blasd_auth *auth) {
    if (auth == NULL) return;
    auth_tokens_free(auth->tokens);
    forget(&auth->proofs, free_proof);
    forget(&auth->rates, free_rate);
    blasd_hash_release(&auth->proofs);
    blasd_hash_release(&auth->rates);
    ring_free(auth->ring);
    pthread_mutex_destroy(&auth->lock);
    free(auth);
}

/* A key that still stands needs no proof anew, and may do what the file now says. */
static void renew_proof(void *arg, struct blasd_hash_node *node) {
    struct blasd_auth *auth = arg;
    struct proof *proof = blasd_container_of(node, struct proof, node);
    const struct blasd_auth_key *key = blasd_keyring_id(auth_hold(auth), proof->key.id);
    if (key != NULL && strcmp(key->hash, proof->key.hash) == 0)
        proof->key = *key;
    else
        free_proof(&auth->proofs, node);
    auth_let_go(auth);
}

/* Of a token; with `node` of a key nothing is done. */
static void forget_token(void *arg, struct blasd_hash_node *node) {
    if (blasd_container_of(node, struct proof, node)->key.id[0] == '\0') free_proof(arg, node);
}

static int refresh_tokens(struct blasd_auth *auth, struct blasd_err *err) {
    int rc = auth_tokens_refresh(auth->tokens, err);
    if (rc <= 0) return rc;
    pthread_mutex_lock(&auth->lock);
    auth->version++; /* one that is being proved by the old keys is not kept */
    blasd_hash_each(&auth->proofs, forget_token, &auth->proofs);
    pthread_mutex_unlock(&auth->lock);
    return rc;
}

static bool may_the_same(const struct blasd_auth_key *a, const struct blasd_auth_key *b) {
    const struct blasd_principal *one = &a->caller.principal, *other = &b->caller.principal;
    return strcmp(a->hash, b->hash) == 0 && strcmp(a->certificate, b->certificate) == 0 &&
           a->expires_s == b->expires_s && strcmp(one->tenant, other->tenant) == 0 &&
           one->weight == other->weight && one->quotas.jobs == other->quotas.jobs &&
           one->quotas.bytes == other->quotas.bytes &&
           one->quotas.stored_bytes == other->quotas.stored_bytes &&
           a->caller.role == b->caller.role && a->caller.ops == b->caller.ops &&
           a->caller.ceiling == b->caller.ceiling && a->caller.job_s == b->caller.job_s &&
           a->caller.jobs_per_s == b->caller.jobs_per_s;
}

/* Keys are told apart by their names. */
static void tell_changes(const struct blasd_auth *auth, const struct blasd_keyring *old,
                         const struct blasd_keyring *ring) {
    if (auth->told == NULL) return;
    for (size_t i = 0; i < old->count; i++)
        if (blasd_keyring_named(ring, old->keys[i].caller.name) == NULL)
            auth->told(auth->told_arg, "revoked", &old->keys[i].caller);
    for (size_t i = 0; i < ring->count; i++) {
        const struct blasd_auth_key *key = &ring->keys[i];
        const struct blasd_auth_key *before = blasd_keyring_named(old, key->caller.name);
        if (before == NULL || !may_the_same(before, key))
            auth->told(auth->told_arg, before == NULL ? "added" : "changed", &key->caller);
    }
}

void blasd_auth_on_change(struct blasd_auth *auth, blasd_auth_change_fn told, void *arg) {
    auth->told = told;
    auth->told_arg = arg;
}

static int refresh_keys(struct blasd_auth *auth, struct blasd_err *err) {
    struct file_state now = look_at(auth->path);
    struct blasd_keyring *ring, *old;
    bool missing = false;
    bool same = is_same(&now, &auth->file); /* nobody else writes to it */
    int rc;
    if (same && !auth->unread) return 0;
    if ((ring = calloc(1, sizeof *ring)) == NULL) return 0; /* in a second again */
    rc = blasd_keyring_load(auth->path, ring, &missing, err);
    auth->file = now;
    auth->unread = rc != 0 && !missing;
    if (auth->unread) {
        ring_free(ring);
        return same ? 0 : rc;
    }
    old = exchange_ring(auth, ring);
    pthread_mutex_lock(&auth->lock);
    auth->version++; /* what is being proved by the old keys is not kept */
    blasd_hash_each(&auth->proofs, renew_proof, auth);
    pthread_mutex_unlock(&auth->lock);
    tell_changes(auth, old, ring);
    ring_free(old);
    return rc == 0 ? 1 : rc;
}

int blasd_auth_refresh(struct blasd_auth *auth, struct blasd_err *err) {
    int of_tokens = auth->tokens == NULL ? 0 : refresh_tokens(auth, err);
    int of_keys = auth->path == NULL ? 0 : refresh_keys(auth, err);
    return of_keys != 0 ? of_keys : of_tokens;
}

size_t blasd_auth_keys(struct blasd_auth *auth) {
    size_t count = auth_hold(auth)->count;
    auth_let_go(auth);
    return count;
}

bool blasd_auth_find_tenant(struct blasd_auth *auth,
                            bool (*is)(void *arg, const struct blasd_principal *tenant), void *arg,
                            struct blasd_principal *ret) {
    const struct blasd_keyring *ring = auth_hold(auth);
    bool found = false;
    for (size_t i = 0; i < ring->count && !found; i++) {
        found = is(arg, &ring->keys[i].caller.principal);
        if (found) *ret = ring->keys[i].caller.principal;
    }
    auth_let_go(auth);
    return found;
}

static uint64_t hash_of(const unsigned char digest[BLASD_DIGEST]) {
    uint64_t hash;
    memcpy(&hash, digest, sizeof hash);
    return hash;
}

static const struct proof *find_proof(const struct blasd_auth *auth,
                                      const unsigned char digest[BLASD_DIGEST]) {
    struct blasd_hash_node *node = NULL;
    while ((node = blasd_hash_find(&auth->proofs, hash_of(digest), node)) != NULL) {
        const struct proof *proof = blasd_container_of(node, struct proof, node);
        if (blasd_secret_equal(proof->digest, digest)) return proof;
    }
    return NULL;
}

/* Where there is no memory for it the next request is hashed slowly again. */
static void keep_proof(struct blasd_auth *auth, const unsigned char digest[BLASD_DIGEST],
                       const struct blasd_auth_key *key) {
    struct proof *proof;
    if (auth->proofs.count >= PROOFS_MOST) forget(&auth->proofs, free_proof);
    proof = calloc(1, sizeof *proof);
    if (proof == NULL) return;
    memcpy(proof->digest, digest, sizeof proof->digest);
    proof->key = *key;
    if (blasd_hash_add(&auth->proofs, &proof->node, hash_of(digest)) != 0) free(proof);
}

static int unauthorized(struct blasd_err *err, const char *why) {
    return blasd_fail(err, BLASD_E_unauthorized, "Authorization", "%s", why);
}

static int check_time(int64_t expires_s, struct blasd_err *err) {
    if (expires_s == 0 || blasd_clock_wall_us() / 1000000 < expires_s) return 0;
    return unauthorized(err, "the key has expired");
}

/* What stands behind "Bearer"; NULL: nothing. */
static const char *token_of(const char *authorization) {
    static const char bearer[] = "Bearer ";
    if (authorization == NULL || strncasecmp(authorization, bearer, sizeof bearer - 1) != 0)
        return NULL;
    authorization += sizeof bearer - 1;
    return authorization + strspn(authorization, " ");
}

/* A second's worth may come at once. */
static bool take(struct limiter *limiter, uint64_t limit, int64_t now, uint64_t *remaining) {
    int64_t each = SECOND_NS / (int64_t)limit,
            even = limiter->even_ns > now ? limiter->even_ns : now;
    bool may = even + each - now <= each * (int64_t)limit;
    if (may) limiter->even_ns = even = even + each;
    *remaining = (uint64_t)((now + each * (int64_t)limit - even) / each);
    return may;
}

/* The key of the file whose id is in what was shown; false: none. */
static bool find_key(struct blasd_auth *auth, const char *shown, struct blasd_auth_key *key) {
    const struct blasd_auth_key *found = NULL;
    const struct blasd_keyring *ring = auth_hold(auth);
    char id[BLASD_KEY_ID + 1];
    if (blasd_secret_id(shown, id)) found = blasd_keyring_id(ring, id);
    *key = found != NULL ? *found : (struct blasd_auth_key){.expires_s = 0};
    auth_let_go(auth);
    return found != NULL;
}

/* Under what a wrong one is counted, and for how long at most the next one then waits. Behind one
 * address there may be many, so a right one waits for nobody else's: what names a key of the file
 * is counted as that key's, and a token, each of which is signed anew, as itself. All others are
 * their address' own. `key`: what find_key() found, or NULL. */
static uint64_t place_of(const struct blasd_auth *auth, const struct blasd_credentials *credentials,
                         bool token, const unsigned char digest[BLASD_DIGEST],
                         const struct blasd_auth_key *key, unsigned *most_s) {
    uint64_t from = credentials->from, seed = blasd_hash_bytes(auth->failures.seed, &from, 8);
    *most_s = AUTH_FAILURE_WAIT_MOST;
    if (token) return from == 0 ? 0 : blasd_hash_bytes(seed, digest, BLASD_DIGEST) | 1;
    if (key == NULL) return from;
    *most_s = 1;
    return from == 0 ? 0 : blasd_hash_bytes(seed, key->id, BLASD_KEY_ID) | 1;
}

/* Seconds until what was shown is looked at; 0: now. `slow`: its hash is. With the lock. */
static unsigned wait_of(struct blasd_auth *auth, uint64_t place, unsigned most_s, bool slow) {
    const int64_t now = blasd_clock_ns();
    unsigned wait_s = auth_failures_wait(&auth->failures, place, now, most_s);
    uint64_t remaining;
    if (wait_s == 0 && slow && !take(&auth->slow, SLOW_A_SECOND, now, &remaining)) wait_s = 1;
    return wait_s;
}

/* Of what was not shown before: a token, or with `key` a key of the file. */
static int prove(struct blasd_auth *auth, const char *shown, bool token, struct blasd_auth_key *key,
                 struct blasd_err *err) {
    if (token) return auth_tokens_check(auth->tokens, shown, key, err);
    /* with the same work whatever is wrong */
    if (blasd_secret_matches(shown, key->hash) && key->id[0] != '\0') return 0;
    return unauthorized(err, "no such key is valid");
}

static int check_certificate(struct blasd_auth *auth, const char *name,
                             struct blasd_identity *caller, struct blasd_err *err) {
    const struct blasd_auth_key *key = blasd_keyring_certificate(auth_hold(auth), name);
    bool found = key != NULL;
    int64_t expires_s = 0;
    if (found) {
        *caller = key->caller;
        expires_s = key->expires_s;
    }
    auth_let_go(auth);
    return found ? check_time(expires_s, err)
                 : unauthorized(err, "no key is for the certificate that was shown");
}

/* What was not right without the lock: was it shown before, or may it be looked at? */
static int check_slowly(struct blasd_auth *auth, const struct blasd_credentials *shown,
                        const char *text, struct blasd_auth_key *key, unsigned *retry_s,
                        struct blasd_err *err) {
    bool token = auth->tokens != NULL && auth_token_like(text), named = key->id[0] != '\0';
    unsigned char digest[BLASD_DIGEST];
    const struct proof *proof;
    unsigned most_s, version;
    uint64_t place;
    int rc;
    blasd_secret_digest(text, strlen(text), digest);
    place = place_of(auth, shown, token, digest, named ? key : NULL, &most_s);
    pthread_mutex_lock(&auth->lock);
    proof = find_proof(auth, digest);
    if (proof != NULL)
        *key = proof->key;
    else
        *retry_s = wait_of(auth, place, most_s, named && blasd_secret_slow(key->hash));
    /* of this version: a key that has been revoked since it was found must not be kept */
    if (proof == NULL && !token) (void)find_key(auth, text, key);
    version = auth->version;
    pthread_mutex_unlock(&auth->lock);
    if (proof != NULL) return 0;
    if (*retry_s > 0)
        return blasd_fail(err, BLASD_E_too_many_failures, "Authorization",
                          "wrong keys came from this address: the next one is looked at in %u s",
                          *retry_s);
    rc = prove(auth, text, token, key, err);
    pthread_mutex_lock(&auth->lock);
    if (rc != 0) auth_failures_note(&auth->failures, place, blasd_clock_ns());
    if (rc == 0 && version == auth->version) keep_proof(auth, digest, key);
    pthread_mutex_unlock(&auth->lock);
    return rc;
}

int blasd_auth_check(struct blasd_auth *auth, const struct blasd_credentials *shown,
                     struct blasd_identity *caller, unsigned *retry_s, struct blasd_err *err) {
    const char *text = token_of(shown->authorization);
    struct blasd_auth_key key;
    bool quick;
    int rc;
    if (text == NULL && shown->certificate != NULL)
        return check_certificate(auth, shown->certificate, caller, err);
    if (text == NULL) return unauthorized(err, "the request shows no key");
    /* a right key waits for no wrong ones, nor for a lock */
    quick = find_key(auth, text, &key) && !blasd_secret_slow(key.hash);
    if (quick && blasd_secret_matches(text, key.hash))
        rc = 0;
    else
        rc = check_slowly(auth, shown, text, &key, retry_s, err);
    if (rc != 0) return rc;
    *caller = key.caller;
    return check_time(key.expires_s, err);
}

/* One whose second is over tells nothing that a new one would not. */
static void forget_idle(void *arg, struct blasd_hash_node *node) {
    struct blasd_auth *auth = arg;
    if (blasd_container_of(node, struct rate, node)->limiter.even_ns <= blasd_clock_ns())
        free_rate(&auth->rates, node);
}

/* By tenant and name: that tokens of two tenants name the same subject makes them no one caller. */
static struct rate *find_rate(struct blasd_auth *auth, const struct blasd_identity *caller) {
    const char *tenant = caller->principal.tenant, *name = caller->name;
    uint64_t hash = blasd_hash_bytes(blasd_hash_bytes(auth->failures.seed, tenant, strlen(tenant)),
                                     name, strlen(name));
    struct blasd_hash_node *node = NULL;
    struct rate *rate;
    while ((node = blasd_hash_find(&auth->rates, hash, node)) != NULL) {
        rate = blasd_container_of(node, struct rate, node);
        if (strcmp(rate->name, name) == 0 && strcmp(rate->tenant, tenant) == 0) return rate;
    }
    if (auth->rates.count >= RATES_MOST) blasd_hash_each(&auth->rates, forget_idle, auth);
    if (auth->rates.count >= RATES_MOST) forget(&auth->rates, free_rate);
    rate = calloc(1, sizeof *rate);
    if (rate == NULL) return NULL;
    memcpy(rate->tenant, tenant, strlen(tenant) + 1);
    memcpy(rate->name, name, strlen(name) + 1);
    if (blasd_hash_add(&auth->rates, &rate->node, hash) == 0) return rate;
    free(rate);
    return NULL;
}

int blasd_auth_take_job(struct blasd_auth *auth, const struct blasd_identity *caller,
                        struct blasd_rate_view *view, struct blasd_err *err) {
    struct rate *rate;
    bool may = true;
    if (caller->jobs_per_s == 0) return 0;
    pthread_mutex_lock(&auth->lock);
    rate = find_rate(auth, caller);
    if (rate != NULL)
        may = take(&rate->limiter, caller->jobs_per_s, blasd_clock_ns(), &view->remaining);
    view->limit = caller->jobs_per_s;
    pthread_mutex_unlock(&auth->lock);
    if (may) return 0;
    return blasd_fail(err, BLASD_E_rate_limited, "",
                      "the key '%s' may send %" PRIu64
                      " requests about jobs and tensors a second, and has sent more",
                      caller->name, caller->jobs_per_s);
}
