/* Batch entries in long random sequences of all that can be done with them, beside a model of what
 * each job must be: states, attempts, who is told, counts. BLASD_SEED=n repeats a run,
 * BLASD_STEPS=n makes it longer. */
#include "batch_entry_fixture.h"

#include "queue/worker_side.h"

enum { WORKERS = 3, CHANNELS = 2, JOBS = 60000, GROUPS = 20000 };
enum model_state { PENDING, DONE, CANCELLED, POISONED, FORGOTTEN };

struct model {
    char id[BLASD_ID_LEN + 1];
    const char *tenant;
    enum model_state state;
    int attempts;
    int holder;                      /* worker, or -1 */
    int group;                       /* the batch entry that it was claimed in; -1: none */
    int begun;                       /* the batch of its holder's that it began in; 0: none */
    unsigned channels, told, expect; /* bits by channel */
};

static const char *const tenants[] = {"anonymous", "ann", "ben"};
enum { TENANTS = sizeof tenants / sizeof *tenants };

struct world {
    struct bed bed;
    struct blasd_worker_queue *worker[WORKERS];
    redisContext *ear[CHANNELS];
    struct model *jobs;
    int count, first;     /* those before `first` are over */
    int batches[WORKERS]; /* that each has begun: the last two of them are noted */
    int groups;
    char holds[TENANTS][BLASD_ID_LEN + 8]; /* OPTIONS: each tenant's tensor */
    uint64_t random;
    unsigned hearing; /* channel that is being heard */
};

static const char *const channel_names[CHANNELS] = {"rand-a", "rand-b"};
static const char *const states[] = {"pending", "record", "cancelled", "failed", "404"};

static unsigned pick(struct world *w, unsigned n) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (unsigned)((w->random >> 20) % n);
}

static struct model *lookup(struct world *w, const char *id) {
    for (int i = w->count; i-- > 0;)
        if (memcmp(w->jobs[i].id, id, BLASD_ID_LEN) == 0) return &w->jobs[i];
    return NULL;
}

static bool is_begun(const struct world *w, const struct model *job) {
    return job->begun > 0 && job->begun + 1 >= w->batches[job->holder];
}

static void end(struct model *job, enum model_state state) {
    assert_int_equal(job->state, PENDING);
    job->state = state;
    job->expect = job->channels;
    job->holder = -1;
}

static struct model *any_job(struct world *w) {
    return w->count == 0 ? NULL
                         : &w->jobs[w->first + (int)pick(w, (unsigned)(w->count - w->first))];
}

static void new_jobs(struct world *w, const struct entry *entry, const char *digits,
                     unsigned channels) {
    for (int i = 0; i < entry->jobs; i++) {
        if (digits[1] != '\0' && digits[i] != '0') continue;
        struct model *job = &w->jobs[w->count++];
        assert_true(w->count < JOBS);
        *job = (struct model){.tenant = tenant, .holder = -1, .group = -1, .channels = channels};
        memcpy(job->id, entry->id[i], sizeof job->id);
    }
}

static void do_submit(struct world *w) {
    static const char *const lists[] = {"1", "2", "2", "3", "5"};
    static const char *const segments[] = {"", "", " aaaaaaaaaaaaaaaa", " bbbbbbbbbbbbbbbb"};
    struct entry entry;
    char note[128];
    unsigned channel = pick(w, CHANNELS + 1); /* the last one: nobody waits */
    const char *si = lists[pick(w, 5)];
    int cost = (int)pick(w, 200);
    bool full = pick(w, 12) == 0;
    batch_entry_make(&entry, pick(w, 2) ? BLASD_ID_SYNC : BLASD_ID_ASYNC,
                     (int)pick(w, pick(w, 4) == 0 ? 64 : 9) + 1);
    unsigned who = pick(w, TENANTS);
    tenant = tenants[who];
    snprintf(note, sizeof note, "%s\t%s\tmatmul\t%s%s", segments[pick(w, 4)],
             channel < CHANNELS ? channel_names[channel] : "", tenant,
             who == 0     ? ""
             : pick(w, 2) ? "\t100 1 0 0 0"
                          : "\t5000 1 0 0 0");
    unsigned channels = channel < CHANNELS ? 1u << channel : 0;
    if (entry.jobs == 1) {
        char text[16], frame[64];
        snprintf(text, sizeof text, "%d", cost);
        snprintf(frame, sizeof frame, "frame of %s", entry.id[0]);
        redisReply *reply = fcall(&w->bed, "submit", NEXT_SEQ, entry.id[0], frame, si, text,
                                  pick(w, 2) ? "d=60000" : "", note, NULL);
        assert_int_equal(reply->element[3]->integer, 0);
        drop(reply);
        new_jobs(w, &entry, "0", channels);
        return;
    }
    if (full) {
        w->bed.limits.queue_jobs = (uint64_t)pending(&w->bed) + pick(w, 8);
        bed_limits(&w->bed);
    }
    char digits[BATCH_ENTRY_MOST + 1];
    const char *holds = pick(w, 2) ? w->holds[who] : "";
    snprintf(digits, sizeof digits, "%s",
             submit_batch_entry_as(&w->bed, &entry, si, cost, holds, note));
    new_jobs(w, &entry, digits, channels);
    if (pick(w, 5) == 0) /* its reply was lost */
        assert_string_equal(submit_batch_entry_as(&w->bed, &entry, si, cost, AGAIN, note), digits);
    if (full) {
        w->bed.limits.queue_jobs = 1000000;
        bed_limits(&w->bed);
    }
}

static void take(struct world *w, int n, bool was_idle, const struct blasd_claim *claims,
                 int count) {
    int group = -1;
    for (int i = 0; i < count; i++) {
        struct model *job = lookup(w, claims[i].id);
        assert_non_null(job);
        expect_claimed(&claims[i], job->id);
        if (was_idle && job->state != PENDING) continue; /* it was handed over before it ended */
        assert_int_equal(job->state, PENDING);
        assert_int_equal(job->holder, -1);
        assert_int_equal(claims[i].attempts, job->attempts);
        job->holder = n;
        job->begun = 0;
        job->group = -1;
        if (w->worker[n]->turns.entries.len == 0 ||
            memmem(w->worker[n]->turns.entries.data, w->worker[n]->turns.entries.len, job->id,
                   BLASD_ID_ENTRY) == NULL)
            continue;
        bool same = i > 0 && group >= 0 && memcmp(claims[i - 1].id, job->id, BLASD_ID_ENTRY) == 0;
        if (!same) {
            group = w->groups++ % GROUPS;
        }
        job->group = group;
        assert_int_equal(job->attempts, 0);
    }
}

/* The worker still has it, and will say that it has ended. */
static void finish_in_vain(struct world *w, struct model *job, int holder) {
    const char *ids[] = {job->id};
    if (holder < 0) return;
    assert_string_equal(finish_ids(w->worker[holder], ids, 1, NULL), "0");
}

static void finish_those_in_vain(struct world *w, int n, const struct blasd_claim *claims,
                                 int count) {
    for (int i = 0; i < count; i++) {
        struct model *job = lookup(w, claims[i].id);
        if (job->state != PENDING) finish_in_vain(w, job, n);
    }
}

/* Whether what comes next may have been asked for, and given, before. */
static bool was_asked(const struct world *w, int n) {
    const struct blasd_worker_turns *turns = &w->worker[n]->turns;
    return turns->idle || turns->next != NULL || turns->unsure;
}

static void do_claim(struct world *w) {
    static struct blasd_claim claims[128];
    static const int most[] = {1, 2, 7, 30, 128};
    int n = (int)pick(w, WORKERS);
    /* what was handed over may be as many as it asked for then */
    bool was_idle = was_asked(w, n);
    int max = was_idle ? 128 : most[pick(w, 5)];
    uint64_t bytes = pick(w, 3) == 0 ? pick(w, 1000) : PLENTY;
    int count = claim(w->worker[n], max, bytes, claims);
    take(w, n, was_idle, claims, count);
    finish_those_in_vain(w, n, claims, count);
}

static int held_by(struct world *w, int n, struct model **held, int most) {
    int count = 0;
    for (int i = w->first; i < w->count && count < most; i++)
        if (w->jobs[i].holder == n) held[count++] = &w->jobs[i];
    return count;
}

static void do_begin(struct world *w) {
    struct model *held[100];
    struct blasd_claim claims[100];
    int n = (int)pick(w, WORKERS), count = held_by(w, n, held, 100), some = 0;
    for (int i = 0; i < count; i++) {
        if (pick(w, 2)) continue;
        memcpy(claims[some++].id, held[i]->id, BLASD_ID_LEN + 1);
        held[i]->begun = w->batches[n] + 1;
        for (int k = w->first; held[i]->group >= 0 && k < w->count; k++)
            if (w->jobs[k].holder == n && w->jobs[k].group == held[i]->group)
                w->jobs[k].begun = w->batches[n] + 1; /* it is noted by its batch entry's name */
    }
    if (some == 0) return;
    w->batches[n]++;
    begun(w->worker[n], claims, some);
}

/* Jobs that the worker was given, in any order, those that were cancelled meanwhile among them. */
static void do_finish(struct world *w) {
    static struct model *held[4000];
    static const char *ids[512], *segments[512];
    int n = (int)pick(w, WORKERS), count = held_by(w, n, held, 4000), some = 0;
    bool all = pick(w, 2), shuffle = pick(w, 3) == 0;
    for (int i = 0; i < count && some < 512; i++) {
        int k = shuffle ? i + (int)pick(w, (unsigned)(count - i)) : i;
        struct model *job = held[k];
        held[k] = held[i];
        held[i] = job;
        if (!all && pick(w, 3)) continue;
        ids[some] = job->id;
        segments[some++] = pick(w, 4) ? NULL : pick(w, 2) ? "cccccccccccccccc" : "dddddddddddddddd";
    }
    if (some == 0) return;
    assert_int_equal(strspn(finish_ids(w->worker[n], ids, some, segments), "1"), some);
    for (int i = 0; i < some; i++) end(lookup(w, ids[i]), DONE);
}

static void do_cancel(struct world *w) {
    struct model *job = any_job(w);
    if (job == NULL) return;
    int holder = job->holder;
    bool other = pick(w, 4) == 0; /* who may not */
    tenant = other ? job->tenant == tenants[0] ? tenants[1] : tenants[0] : job->tenant;
    redisReply *reply = fcall(&w->bed, "cancel", "1", job->id, NULL);
    const redisReply *r = reply->element[0];
    if (other) {
        assert_int_equal(r->integer, 404);
    } else if (job->state == PENDING) {
        assert_true(reply_is(r, BLASD_CANCELLED));
        end(job, CANCELLED);
        if (pick(w, 2)) finish_in_vain(w, job, holder);
    } else if (job->state == FORGOTTEN) {
        assert_int_equal(r->integer, 404);
    } else {
        assert_int_equal(r->type, REDIS_REPLY_STRING);
        job->state = FORGOTTEN;
    }
    drop(reply);
}

static void do_watch(struct world *w) {
    struct model *job = any_job(w);
    unsigned channel = pick(w, CHANNELS);
    if (job == NULL) return;
    tenant = job->tenant;
    drop(fcall(&w->bed, "watch", channel_names[channel], job->id, NULL));
    if (job->state != PENDING) return;
    job->channels |= 1u << channel;
}

static void do_die(struct world *w) {
    int n = (int)pick(w, WORKERS);
    char name[8];
    snprintf(name, sizeof name, "w%d", n);
    expire_worker(&w->bed, name);
    for (int i = w->first; i < w->count; i++) {
        struct model *job = &w->jobs[i];
        if (job->holder != n) continue;
        bool had_begun = is_begun(w, job);
        job->holder = -1;
        if (!had_begun) continue;
        if (++job->attempts == (int)w->bed.limits.attempts) end(job, POISONED);
    }
    w->batches[n] = 0;
    blasd_worker_queue_free(w->worker[n]);
    w->worker[n] = worker_new(&w->bed, name, BLASD_DEVICE_CPU);
}

/* A reply to claim that was lost: it comes back by the next. */
static void do_miss(struct world *w) {
    int n = (int)pick(w, WORKERS);
    if (was_asked(w, n) || w->worker[n]->turns.unsure) return;
    drop(turn_lost(&w->bed, w->worker[n], 20, NULL, NULL, 0, NULL));
}

static void do_progress(struct world *w) {
    struct blasd_err err;
    bool wanted;
    struct model *job = any_job(w);
    if (job == NULL || job->state != PENDING || job->holder < 0) return;
    const char *ids[] = {job->id};
    assert_int_equal(
        blasd_worker_queue_progress(w->worker[job->holder], ids, 1, 0.5, -1, &wanted, &err), 0);
    assert_true(wanted);
}

static void expect_state(struct world *w, const struct model *job) {
    tenant = job->tenant;
    const char *is = record_line(&w->bed, job->id, LINE_STATE);
    const char *want = job->state == PENDING
                           ? job->holder >= 0 && is_begun(w, job) ? "running" : "queued"
                           : states[job->state];
    if (strncmp(is, want, strlen(want)) != 0) fail_msg("%s is %s, not %s", job->id, is, want);
    if (job->state == DONE) expect_record(&w->bed, job->id);
}

static void on_told(void *arg, const char *id, const char *record, size_t len) {
    struct world *w = arg;
    struct model *job = lookup(w, id);
    (void)record, (void)len;
    assert_non_null(job);
    if (job->told & w->hearing) fail_msg("%s was told twice", job->id);
    job->told |= w->hearing;
}

static void expect_stats(struct world *w) {
    int jobs = 0, running = 0;
    char want[64];
    for (int i = w->first; i < w->count; i++) {
        const struct model *job = &w->jobs[i];
        jobs += job->state == PENDING;
        running += job->state == PENDING && job->holder >= 0 && is_begun(w, job);
    }
    redisReply *reply = fcall(&w->bed, "stats", NULL);
    snprintf(want, sizeof want, "\"queue\":{\"jobs\":%d,", jobs);
    if (strstr(reply->str, want) == NULL) fail_msg("no %s in %s", want, reply->str);
    snprintf(want, sizeof want, "\"running\":%d,", running);
    if (strstr(reply->str, want) == NULL) fail_msg("no %s in %s", want, reply->str);
    drop(reply);
    for (int t = 0; t < TENANTS; t++) {
        tenant = tenants[t];
        running -= list_all(&w->bed, "running", "100", NULL, NULL);
    }
    assert_int_equal(running, 0);
}

/* All jobs, and what was told of them; those that have ended need not be looked at again. */
static void check_all(struct world *w) {
    for (unsigned c = 0; c < CHANNELS; c++) {
        w->hearing = 1u << c;
        hear(&w->bed, w->ear[c], channel_names[c], on_told, w);
    }
    for (int i = w->first; i < w->count; i++) {
        const struct model *job = &w->jobs[i];
        expect_state(w, job);
        if (job->told != (job->state == PENDING ? 0 : job->expect))
            fail_msg("%s, %s: told %u, not %u", job->id, states[job->state], job->told,
                     job->expect);
    }
    expect_stats(w);
    while (w->first < w->count && w->jobs[w->first].state != PENDING) w->first++;
    if (w->first == w->count && w->count > 0) w->first--;
}

static void work_off(struct world *w) {
    static struct blasd_claim claims[256];
    for (int idle = 0; idle < 2 * WORKERS;) {
        int n = idle % WORKERS;
        bool was_idle = was_asked(w, n);
        int count = claim(w->worker[n], 256, PLENTY, claims);
        take(w, n, was_idle, claims, count);
        finish_those_in_vain(w, n, claims, count);
        struct model *held[256];
        count = held_by(w, n, held, 256);
        const char *ids[256];
        for (int i = 0; i < count; i++) ids[i] = held[i]->id;
        if (count > 0)
            assert_int_equal(strspn(finish_ids(w->worker[n], ids, count, NULL), "1"), count);
        for (int i = 0; i < count; i++) end(held[i], DONE);
        idle = count > 0 ? n : idle + 1;
    }
}

static void random_sequences(void **state) {
    static struct world world;
    struct world *w = &world;
    const char *seed = getenv("BLASD_SEED"), *text = getenv("BLASD_STEPS");
    int steps = text ? atoi(text) : 600;
    char name[8];
    (void)state;
    w->random = seed ? strtoull(seed, NULL, 10) : (uint64_t)blasd_clock_wall_us();
    printf("BLASD_SEED=%llu\n", (unsigned long long)w->random);
    w->random = w->random * UINT64_C(0x9e3779b97f4a7c15) | 1;
    w->jobs = calloc(JOBS, sizeof *w->jobs);
    assert_non_null(w->jobs);
    bed_open(&w->bed, &server, "random");
    w->bed.limits.lease_ms = 600000; /* nobody renews it here */
    bed_limits(&w->bed);
    for (int i = 0; i < TENANTS; i++) put_tensor(&w->bed, tenants[i], w->holds[i]);
    for (int i = 0; i < WORKERS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        w->worker[i] = worker_new(&w->bed, name, BLASD_DEVICE_CPU);
    }
    for (int i = 0; i < CHANNELS; i++) w->ear[i] = listen_to(&w->bed, channel_names[i]);
    for (int step = 0; step < steps && w->count < JOBS - 100; step++) {
        unsigned what = pick(w, 100);
        if (what < 22)
            do_submit(w);
        else if (what < 42)
            do_claim(w);
        else if (what < 54)
            do_begin(w);
        else if (what < 72)
            do_finish(w);
        else if (what < 82)
            do_cancel(w);
        else if (what < 90)
            do_watch(w);
        else if (what < 93)
            do_die(w);
        else if (what < 95)
            do_miss(w);
        else if (what < 97)
            do_progress(w);
        else if (what < 99)
            drop(fcall(&w->bed, "tick", NULL));
        else
            check_all(w);
        audit(&w->bed);
    }
    check_all(w);
    work_off(w);
    check_all(w);
    expect_empty(&w->bed);
    for (int i = 0; i < CHANNELS; i++) redisFree(w->ear[i]);
    for (int i = 0; i < WORKERS; i++) blasd_worker_queue_free(w->worker[i]);
    bed_close(&w->bed);
    free(w->jobs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sequences),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
