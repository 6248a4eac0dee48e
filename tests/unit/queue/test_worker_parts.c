/* Connections that begin and end what another one of the same worker has claimed. */
#include "batch_entry_fixture.h"

static struct blasd_worker_queue *part_new(struct bed *bed, const struct blasd_worker_queue *worker,
                                           int part) {
    struct blasd_worker_queue *queue;
    struct blasd_err err;
    if (blasd_worker_queue_open(&bed->options, &queue, &err) < 0) fail_msg("%s", err.detail);
    blasd_worker_queue_join(queue, worker->lease.worker, atoll(worker->lease.epoch), part);
    return queue;
}

enum { JOBS = 4 };

/* A worker that holds four jobs, and two connections beside it. */
struct crew {
    struct bed bed;
    char ids[JOBS][BLASD_ID_LEN + 1];
    struct blasd_claim claims[JOBS];
    struct blasd_worker_queue *worker, *parts[2];
};

static void crew_open(struct crew *crew, const char *queue) {
    bed_open(&crew->bed, &server, queue);
    crew->worker = worker_new(&crew->bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 2; i++) crew->parts[i] = part_new(&crew->bed, crew->worker, i + 1);
    for (int i = 0; i < JOBS; i++) submit_new(&crew->bed, crew->ids[i], "2");
    assert_int_equal(claim(crew->worker, JOBS, PLENTY, crew->claims), JOBS);
}

static void crew_close(struct crew *crew) {
    for (int i = 0; i < 2; i++) blasd_worker_queue_free(crew->parts[i]);
    blasd_worker_queue_free(crew->worker);
    bed_close(&crew->bed);
}

static void expect_state(struct crew *crew, int job, const char *state) {
    assert_string_equal(record_line(&crew->bed, crew->ids[job], LINE_STATE), state);
}

/* Each connection's mark stays while the others begin and end. */
static void test_parts_begin_and_end(void **state) {
    struct crew crew;
    (void)state;
    crew_open(&crew, "parts");
    begin(crew.parts[0], &crew.claims[0], 1);
    begin(crew.worker, &crew.claims[2], 1);
    begin(crew.parts[1], &crew.claims[1], 1);
    for (int i = 0; i < 3; i++) {
        long long started = strtoll(record_line(&crew.bed, crew.ids[i], LINE_STARTED), NULL, 10);
        /* by this process' clock, which is set by Redis' once in a while */
        assert_true(started >= crew.claims[i].claimed_us - 1000000);
        expect_state(&crew, i, "running");
    }
    expect_state(&crew, 3, "queued");
    assert_int_equal(finish(crew.parts[0], crew.ids[0], "the record", 0), 1);
    assert_string_equal(record_line(&crew.bed, crew.ids[0], 0), "the record");
    assert_int_equal(finish(crew.parts[1], crew.ids[0], "another", 0), 0);
    begin(crew.parts[0], &crew.claims[3], 1);
    for (int i = 1; i < JOBS; i++) expect_state(&crew, i, "running");
    for (int i = 1; i < JOBS; i++)
        assert_int_equal(finish(i == 2 ? crew.worker : crew.parts[i % 2], crew.ids[i], "r", 0), 1);
    assert_int_equal(pending(&crew.bed), 0);
    crew_close(&crew);
}

/* A worker that is gone: what any of its connections had begun costs an attempt, the rest none. */
static void test_what_parts_began_is_counted(void **state) {
    struct crew crew;
    struct blasd_claim claims[JOBS];
    int attempts[JOBS] = {-1, -1, -1, -1};
    (void)state;
    crew_open(&crew, "parts-dead");
    begin(crew.parts[0], &crew.claims[0], 1);
    begin(crew.parts[1], &crew.claims[1], 1);
    begin(crew.worker, &crew.claims[2], 1);
    struct blasd_worker_queue *other = worker_new(&crew.bed, "x", BLASD_DEVICE_CPU);
    expire_worker(&crew.bed, "w");
    assert_int_equal(claim(other, JOBS, PLENTY, claims), JOBS);
    for (int i = 0; i < JOBS; i++)
        for (int k = 0; k < JOBS; k++)
            if (strcmp(claims[i].id, crew.ids[k]) == 0) attempts[k] = claims[i].attempts;
    for (int k = 0; k < 3; k++) assert_int_equal(attempts[k], 1);
    assert_int_equal(attempts[3], 0);
    redisReply *reply = redisCommand(crew.bed.raw, "EXISTS %s:claims:w", crew.bed.tag);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    /* they speak under a lease that is lost */
    for (int k = 0; k < 2; k++) {
        assert_int_equal(finish(crew.parts[k], crew.ids[k], "late", 0), -1);
        expect_state(&crew, k, "queued");
    }
    begin(other, claims, 1);
    begin(crew.parts[0], &crew.claims[3], 1); /* which says nothing of it */
    expect_state(&crew, 3, "queued");
    blasd_worker_queue_free(other);
    crew_close(&crew);
}

/* Of a batch entry a connection beside may begin single jobs, as the slow pool does: they are the
 * ones that cost an attempt, also where the batch entry was opened meanwhile. */
static void count_of_a_batch_entry(const char *name, bool opened) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[4 * JOBS];
    int left = opened ? 3 : 4, seen[JOBS] = {0};
    bed_open(&bed, &server, name);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *part = part_new(&bed, worker, 1);
    struct blasd_worker_queue *other = worker_new(&bed, "x", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, JOBS, "c");
    assert_int_equal(claim(worker, 4 * JOBS, PLENTY, claims), JOBS); /* as a whole */
    begun(part, &claims[1], 1);
    if (opened) drop(fcall(&bed, "cancel", "1", entry.id[3], NULL));
    expire_worker(&bed, "w");
    assert_int_equal(counted(&bed, "2"), left);
    assert_int_equal(claim(other, 4 * JOBS, PLENTY, claims), left);
    for (int i = 0; i < left; i++)
        for (int k = 0; k < JOBS; k++)
            if (strcmp(claims[i].id, entry.id[k]) == 0) {
                seen[k]++;
                assert_int_equal(claims[i].attempts, k == 1 ? 1 : 0);
            }
    for (int k = 0; k < left; k++) assert_int_equal(seen[k], 1);
    blasd_worker_queue_free(part);
    blasd_worker_queue_free(worker);
    blasd_worker_queue_free(other);
    bed_close(&bed);
}

static void test_what_parts_began_of_a_batch_entry_is_counted(void **state) {
    (void)state;
    count_of_a_batch_entry("parts-entry", false);
    count_of_a_batch_entry("parts-opened", true);
}

/* What ended elsewhere is not held any more. */
static void test_the_worker_lets_go(void **state) {
    struct crew crew;
    struct blasd_claim more;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    crew_open(&crew, "parts-held");
    for (int i = 0; i < 3; i++) assert_int_equal(finish(crew.parts[0], crew.ids[i], "r", 0), 1);
    submit_new(&crew.bed, id, "2");
    assert_int_equal(claim(crew.worker, 1, PLENTY, &more), 1);
    const char *const ids[] = {id, crew.ids[3], crew.ids[0], crew.ids[1], crew.ids[2]};
    for (int i = 0; i < 5; i++) {
        redisReply *reply =
            redisCommand(crew.bed.raw, "HEXISTS %s:claims:w %s", crew.bed.tag, ids[i]);
        assert_int_equal(reply->integer, i < 2);
        drop(reply);
    }
    crew_close(&crew);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_begin_and_end),
        cmocka_unit_test(test_what_parts_began_is_counted),
        cmocka_unit_test(test_what_parts_began_of_a_batch_entry_is_counted),
        cmocka_unit_test(test_the_worker_lets_go),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
