/* Jobs that wait for others, as the functions see them: each goes on once all that it waits for
 * have succeeded, or ends with the first that has not, however many there are and whenever that is.
 */
#include "redis_fixture.h"

#include "queue/record_frame.h"

/* A record of a job that ended so, of 256 bytes and some. */
static struct blasd_buf *record_of(const char *id, enum blasd_state end_state) {
    static struct blasd_buf bytes;
    struct blasd_record record = {.state = end_state};
    struct blasd_err err;
    snprintf(record.id, sizeof record.id, "%s", id);
    snprintf(record.op, sizeof record.op, "matmul");
    if (end_state == BLASD_FAILED) blasd_fail(&record.error, BLASD_E_singular_matrix, "", "no");
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record.outputs[i].tensor.rank = -1;
    blasd_buf_release(&bytes);
    blasd_buf_init(&bytes, 4096);
    assert_int_equal(blasd_record_encode(&record, &bytes, &err), 0);
    return &bytes;
}

static void end_as(struct blasd_worker_queue *worker, const char *id, enum blasd_state end_state) {
    const struct blasd_buf *bytes = record_of(id, end_state);
    struct blasd_completion completion = {
        .id = id, .record = bytes->data, .record_len = bytes->len};
    struct blasd_err err;
    bool lost;
    if (blasd_worker_queue_finish(worker, &completion, 1, &lost, &err) < 0)
        fail_msg("%s", err.detail);
    assert_true(!lost && completion.accepted);
}

static int submit_with(struct bed *bed, char id[BLASD_ID_LEN + 1], const char *options) {
    id_make(id, BLASD_ID_ASYNC, 0);
    return submit_as(bed, id, "2", "10", options, "");
}

/* One that waits for these, NULL for none. */
static void submit_behind(struct bed *bed, char id[BLASD_ID_LEN + 1], const char *one,
                          const char *other) {
    char options[160];
    if (other != NULL)
        snprintf(options, sizeof options, "w=%.41s:inputs.a,%.41s:inputs.b", one, other);
    else
        snprintf(options, sizeof options, "w=%.41s:inputs.a", one);
    assert_int_equal(submit_with(bed, id, options), 0);
}

static void expect_state(struct bed *bed, const char *id, const char *name) {
    assert_string_equal(record_line(bed, id, LINE_STATE), name);
}

/* Nothing that jobs waited for is left. */
static void expect_clean(struct bed *bed) {
    static const char *const keys[] = {"waits", "wanted", "made", "due",
                                       "holds", "refs",   "left", "pending"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        redisReply *reply = redisCommand(bed->raw, "EXISTS %s:%s", bed->tag, keys[i]);
        if (reply->integer != 0) fail_msg("%s is left", keys[i]);
        drop(reply);
    }
    assert_int_equal(counted(bed, "2"), 0);
}

/* Whether the record of `id` came behind the claim's frame, which is its own id here. */
static bool came_with(const struct blasd_claim *claim, const char *id) {
    const char *at = claim->frame, *end = at + claim->frame_len;
    assert_memory_equal(at, claim->id, BLASD_ID_LEN);
    for (at += BLASD_ID_LEN; at < end; at += BLASD_RECORD_FRAME_HEAD + blasd_record_frame_len(at))
        if (memcmp(at + 4, id, BLASD_ID_LEN) == 0)
            return record_is(at + BLASD_RECORD_FRAME_HEAD, blasd_record_frame_len(at),
                             BLASD_SUCCEEDED);
    return false;
}

static const struct blasd_claim *claim_of(const struct blasd_claim *claims, int count,
                                          const char *id) {
    for (int i = 0; i < count; i++)
        if (strcmp(claims[i].id, id) == 0) return &claims[i];
    fail_msg("%s was not claimed", id);
    return NULL;
}

static void the_last_one_lets_it_go_on(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    char first[BLASD_ID_LEN + 1], second[BLASD_ID_LEN + 1], both[BLASD_ID_LEN + 1];
    char again[BLASD_ID_LEN + 1], third[BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1], options[128];
    const struct blasd_claim *its;
    (void)state;
    bed_open(&bed, &server, "last_one");
    bed.limits.record_async_s = 60;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(submit_with(&bed, first, ""), 0);
    assert_int_equal(submit_with(&bed, second, ""), 0);
    assert_int_equal(submit_with(&bed, third, ""), 0);
    submit_behind(&bed, both, first, second);
    snprintf(options, sizeof options, "w=%.41s:inputs.a,%.41s:inputs.b", first, third);
    assert_int_equal(submit_with(&bed, other, options), 0);
    submit_behind(&bed, again, both, both); /* of the same job two inputs */
    expect_state(&bed, both, "waiting");
    assert_int_equal(list_all(&bed, "waiting", "10", NULL, NULL), 3);
    assert_int_equal(list_all(&bed, "queued", "10", NULL, NULL), 3);
    assert_int_equal(list_all(&bed, "any", "10", NULL, NULL), 6);
    assert_int_equal(counted(&bed, "2"), 3);
    assert_int_equal(counted(&bed, "jobs"), 6);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 3);
    end_as(worker, second, BLASD_SUCCEEDED);
    expect_state(&bed, both, "waiting");
    /* it is forgotten, and its record would have expired: who waits for another still has it */
    drop(fcall(&bed, "cancel", "1", second, NULL));
    expect_state(&bed, second, "404");
    end_as(worker, third, BLASD_SUCCEEDED);
    redis_forward(&server, 100 * INT64_C(1000));
    drop(fcall(&bed, "tick", NULL));
    expect_state(&bed, third, "410");
    drop(fcall(&bed, "keep", both, NULL));
    expect_state(&bed, both, "waiting");
    end_as(worker, first, BLASD_SUCCEEDED);
    expect_state(&bed, both, "queued");
    expect_state(&bed, again, "waiting");
    blasd_worker_queue_free(worker); /* its lease may have lapsed while the clock went on */
    worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int attempt = 0; attempt < 2; attempt++) {
        assert_int_equal(claim(worker, 8, PLENTY, claims), 2);
        its = claim_of(claims, 2, both);
        assert_int_equal(its->attempts, attempt);
        assert_true(came_with(its, first) && came_with(its, second) && !came_with(its, third));
        assert_true(came_with(claim_of(claims, 2, other), third));
        if (attempt == 1) break;
        begin(worker, claims, 2);
        expire_worker(&bed, "w"); /* it dies: the next one gets all of it again */
        blasd_worker_queue_free(worker);
        worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    }
    end_as(worker, other, BLASD_SUCCEEDED);
    end_as(worker, both, BLASD_SUCCEEDED);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
    assert_true(came_with(&claims[0], both) && !came_with(&claims[0], first));
    end_as(worker, again, BLASD_SUCCEEDED);
    expect_clean(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void ends_without_a_result(void **state) {
    static const char *const ends[] = {"failed", "cancelled", "expired", "failed"};
    struct bed bed;
    struct blasd_claim claims[8];
    (void)state;
    bed_open(&bed, &server, "no_result");
    bed.limits.attempts = 1;
    bed_limits(&bed);
    for (int how = 0; how < 4; how++) {
        struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
        char bad[BLASD_ID_LEN + 1], good[BLASD_ID_LEN + 1], one[BLASD_ID_LEN + 1];
        char two[BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1], detail[256];
        assert_int_equal(submit_with(&bed, bad, how == 2 ? "d=1000" : ""), 0);
        assert_int_equal(submit_with(&bed, good, ""), 0);
        submit_behind(&bed, one, good, bad);
        submit_behind(&bed, two, one, NULL);
        submit_behind(&bed, other, good, NULL);
        if (how == 0 || how == 3) assert_int_equal(claim(worker, 8, PLENTY, claims), 2);
        if (how == 0) end_as(worker, bad, BLASD_FAILED);
        if (how == 1) drop(fcall(&bed, "cancel", "0", bad, NULL));
        if (how == 2) {
            redis_forward(&server, 2000);
            drop(fcall(&bed, "tick", NULL));
        }
        if (how == 3) { /* it kills its worker */
            begin(worker, strcmp(claims[0].id, bad) == 0 ? claims : claims + 1, 1);
            blasd_worker_queue_free(worker);
            expire_worker(&bed, "w");
            worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
        }
        expect_state(&bed, bad, ends[how]);
        expect_state(&bed, one, "failed");
        expect_state(&bed, two, "failed");
        assert_string_equal(record_line(&bed, one, LINE_ERROR), "input_failed");
        assert_string_equal(record_line(&bed, two, LINE_ERROR), "input_failed");
        redisReply *reply = fcall(&bed, "get", one, NULL);
        struct blasd_record record;
        struct blasd_err err;
        size_t at;
        assert_int_equal(
            blasd_record_decode(reply->element[0]->str, reply->element[0]->len, &record, &at, &err),
            0);
        drop(reply);
        assert_string_equal(record.error.field, "inputs.b");
        snprintf(detail, sizeof detail, "the job %s %s", bad,
                 how == 0   ? "has failed (singular_matrix)"
                 : how == 1 ? "was cancelled"
                 : how == 2 ? "has expired"
                            : "has failed (poisoned)");
        assert_string_equal(record.error.detail, detail);
        expect_state(&bed, other, "waiting");
        if (how != 0) assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
        end_as(worker, good, BLASD_SUCCEEDED);
        assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
        end_as(worker, other, BLASD_SUCCEEDED);
        expect_clean(&bed);
        blasd_worker_queue_free(worker);
    }
    bed_close(&bed);
}

/* What a submission finds that names jobs which have ended meanwhile, or never were. */
static void submitted_too_late(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    char id[4][BLASD_ID_LEN + 1], more[BLASD_ID_LEN + 1], options[160];
    (void)state;
    bed_open(&bed, &server, "too_late");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 3; i++) assert_int_equal(submit_with(&bed, id[i], ""), 0);
    assert_int_equal(claim(worker, 2, PLENTY, claims), 2);
    end_as(worker, id[0], BLASD_SUCCEEDED);
    end_as(worker, id[1], BLASD_FAILED);
    snprintf(options, sizeof options, "w=%.41s:inputs.a,%.41s:inputs.b", id[0], id[1]);
    assert_int_equal(submit_with(&bed, more, options), 11);
    id_make(id[3], BLASD_ID_ASYNC, 0);
    snprintf(options, sizeof options, "w=%.41s:inputs.a", id[3]);
    assert_int_equal(submit_with(&bed, more, options), 9);
    tenant = "ann";
    snprintf(options, sizeof options, "w=%.41s:inputs.a", id[2]);
    assert_int_equal(submit_with(&bed, more, options), 9); /* another's */
    tenant = "anonymous";
    submit_behind(&bed, more, id[0], NULL); /* it need not wait, and has all that it needs */
    expect_state(&bed, more, "queued");
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1); /* with the end of the one before */
    end_as(worker, id[2], BLASD_SUCCEEDED);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
    assert_true(came_with(&claims[0], id[0]));
    end_as(worker, more, BLASD_SUCCEEDED);
    expect_clean(&bed);
    /* to an empty queue with an idle worker, which is given it at once */
    assert_int_equal(claim(worker, 8, PLENTY, claims), 0);
    submit_behind(&bed, more, id[0], NULL);
    struct blasd_err err;
    assert_true(blasd_worker_queue_wait(worker, TIMEOUT_MS, &err) >= 0);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
    assert_true(came_with(&claims[0], id[0]));
    end_as(worker, more, BLASD_SUCCEEDED);
    expect_clean(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* More than one call settles: the others follow, and none is lost; a chain that fails, and a fan.
 */
static void very_many(void **state) {
    enum { JOBS = 2500 };
    static char id[JOBS][BLASD_ID_LEN + 1];
    static struct blasd_claim claims[JOBS];
    struct bed bed;
    (void)state;
    for (int fan = 0; fan < 2; fan++)
        for (int good = 0; good < 2; good++) {
            int left = JOBS;
            if (good == 1 && fan == 0) continue; /* it would take as many turns */
            bed_open(&bed, &server, fan ? good ? "fan_good" : "fan_bad" : "chain_bad");
            struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
            assert_int_equal(submit_with(&bed, id[0], ""), 0);
            for (int i = 1; i < JOBS; i++) submit_behind(&bed, id[i], id[fan ? 0 : i - 1], NULL);
            assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
            end_as(worker, id[0], good ? BLASD_SUCCEEDED : BLASD_FAILED);
            left--;
            for (int tick = 0; tick < 10; tick++) drop(fcall(&bed, "tick", NULL));
            assert_int_equal(list_all(&bed, "waiting", "100", NULL, NULL), 0);
            if (good) {
                int count;
                while ((count = claim(worker, 500, PLENTY, claims)) > 0)
                    for (int i = 0; i < count; i++, left--) {
                        assert_true(came_with(&claims[i], id[0]));
                        end_as(worker, claims[i].id, BLASD_SUCCEEDED);
                    }
                assert_int_equal(left, 0);
            } else {
                for (int i = 1; i < JOBS; i++) expect_state(&bed, id[i], "failed");
            }
            expect_clean(&bed);
            assert_int_equal(pending(&bed), 0);
            blasd_worker_queue_free(worker);
            bed_close(&bed);
        }
}

/* A job in a batch entry is dealt with alone from then on. */
static void one_of_a_batch_entry(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    char id[2][BLASD_ID_LEN + 1], name[BLASD_ID_ENTRY + 1], behind[BLASD_ID_LEN + 1];
    struct blasd_buf record_frames;
    (void)state;
    bed_open(&bed, &server, "entry");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    id_make(id[0], BLASD_ID_SYNC, 0);
    memcpy(id[1], id[0], sizeof id[0]);
    id[1][BLASD_ID_LEN - 1] = id[1][BLASD_ID_LEN - 1] == '0' ? '1' : '0';
    snprintf(name, sizeof name, "%.*s", BLASD_ID_ENTRY, id[0]);
    blasd_buf_init(&record_frames, 4096);
    for (int i = 0; i < 2; i++)
        assert_int_equal(blasd_record_frame_add(&record_frames, id[i], "frame", 5), 0);
    const char *argv[] = {"FCALL",
                          BLASD_QUEUE_FN("submit"),
                          "1",
                          bed.tag,
                          bed.link.text,
                          NEXT_SEQ,
                          name,
                          record_frames.data,
                          "2",
                          "10 2",
                          "",
                          "\t\tmatmul\tanonymous"};
    size_t lens[13];
    for (int i = 0; i < 13; i++) lens[i] = i == 8 ? record_frames.len : strlen(argv[i]);
    drop(redisCommandArgv(bed.raw, 13, argv, lens));
    blasd_buf_release(&record_frames);
    redisReply *reply =
        fcall(&bed, "origin", tenant, id[1], NULL); /* the frame, which opens nothing */
    assert_string_equal(reply->element[0]->str, "frame");
    drop(reply);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 2);
    submit_behind(&bed, behind, id[1], NULL);
    expect_state(&bed, behind, "waiting");
    end_as(worker, id[0], BLASD_SUCCEEDED);
    expect_state(&bed, behind, "waiting");
    end_as(worker, id[1], BLASD_SUCCEEDED);
    expect_state(&bed, behind, "queued");
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
    assert_true(came_with(&claims[0], id[1]));
    end_as(worker, behind, BLASD_SUCCEEDED);
    expect_clean(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Those that wait are cancelled and expire as others do, and count as pending, not as queued. */
static void ends_while_it_waits(void **state) {
    struct bed bed;
    char first[BLASD_ID_LEN + 1], one[BLASD_ID_LEN + 1], two[BLASD_ID_LEN + 1], options[96];
    struct blasd_claim claims[8];
    (void)state;
    bed_open(&bed, &server, "while_it_waits");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(submit_with(&bed, first, ""), 0);
    submit_behind(&bed, one, first, NULL);
    snprintf(options, sizeof options, "d=1000 w=%.41s:inputs.a", first);
    assert_int_equal(submit_with(&bed, two, options), 0);
    assert_int_equal(pending(&bed), 3);
    assert_int_equal(counted(&bed, "2"), 1);
    drop(fcall(&bed, "cancel", "0", one, NULL));
    redis_forward(&server, 2000);
    drop(fcall(&bed, "tick", NULL));
    expect_state(&bed, one, "cancelled");
    expect_state(&bed, two, "expired");
    assert_int_equal(counted(&bed, "2"), 1);
    assert_int_equal(pending(&bed), 1);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
    end_as(worker, first, BLASD_SUCCEEDED);
    expect_clean(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_one_lets_it_go_on), cmocka_unit_test(ends_without_a_result),
        cmocka_unit_test(submitted_too_late),         cmocka_unit_test(very_many),
        cmocka_unit_test(one_of_a_batch_entry),       cmocka_unit_test(ends_while_it_waits)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
