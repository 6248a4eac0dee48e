/* What a tenant's tensors come to inside Redis: bytes that pending jobs hold count until they do
 * not, whatever became of the tensor or of the record, and one of several tenants takes no other's
 * place. */
#include "redis_fixture.h"

#define KIB "1024"

static long long hget(struct bed *bed, const char *key, const char *field) {
    redisReply *reply = redisCommand(bed->raw, "HGET %s:%s %s", bed->tag, key, field);
    long long n = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
    drop(reply);
    return n;
}

/* Keeps a tensor of so many bytes, of which the tenant may have `most`; the code of the reply. */
static long long put(struct bed *bed, const char *whose, const char *most, const char *bytes,
                     char id[BLASD_ID_LEN + 1]) {
    redisReply *reply;
    long long code;
    id_make(id, BLASD_ID_TENSOR, 0);
    reply = fcall(bed, "tensor", "put", whose, most, "3600", id, bytes, "uint8 0 1", NULL);
    code = reply->element[0]->integer;
    drop(reply);
    return code;
}

/* Whether the caller is to remove its blob. */
static long long forget(struct bed *bed, const char *id) {
    redisReply *reply = fcall(bed, "tensor", "drop", tenant, id, NULL);
    long long removed = reply->elements == 2 ? reply->element[1]->integer : -1;
    drop(reply);
    return removed;
}

/* How many commands functions and others have run since CONFIG RESETSTAT. */
static long long commands_run(struct bed *bed) {
    redisReply *reply = redisCommand(bed->raw, "INFO commandstats");
    long long sum = 0;
    for (const char *at = reply->str; (at = strstr(at, "calls=")) != NULL; at++)
        sum += strtoll(at + strlen("calls="), NULL, 10);
    drop(reply);
    return sum;
}

static int submit_with(struct bed *bed, char id[BLASD_ID_LEN + 1], const char *options) {
    id_make(id, BLASD_ID_ASYNC, 0);
    return submit_as(bed, id, "2", "10", options, "");
}

static void expect_nothing_left(struct bed *bed) {
    redisReply *reply = redisCommand(bed->raw, "EXISTS %s:left %s:refs", bed->tag, bed->tag);
    assert_int_equal(reply->integer, 0);
    drop(reply);
}

/* One that was deleted while a job refers to it still takes its room. */
static void deleted_under_a_job(void **state) {
    struct bed bed;
    char id[4][BLASD_ID_LEN + 1], job[2][BLASD_ID_LEN + 1], options[64];
    (void)state;
    bed_open(&bed, &server, "deleted");
    bed.limits.tensor_bytes = BLASD_MIB;
    bed_limits(&bed);
    tenant = "one";
    assert_int_equal(put(&bed, tenant, "786432", "700000", id[0]), 0);
    snprintf(options, sizeof options, "t=%s.in", id[0]);
    for (int i = 0; i < 2; i++) assert_int_equal(submit_with(&bed, job[i], options), 0);
    assert_int_equal(forget(&bed, id[0]), 0);
    assert_int_equal(hget(&bed, "tensor_bytes", tenant), 700000);
    assert_int_equal(put(&bed, tenant, "786432", "700000", id[1]), 3); /* tensors_full */
    assert_int_equal(put(&bed, "two", "786432", "400000", id[2]), 3); /* nor is there room in all */
    drop(fcall(&bed, "cancel", "0", job[0], NULL));
    assert_int_equal(hget(&bed, "tensor_bytes", tenant), 700000);
    drop(fcall(&bed, "cancel", "0", job[1], NULL));
    assert_int_equal(hget(&bed, "tensor_bytes", tenant), 0);
    expect_nothing_left(&bed);
    assert_int_equal(put(&bed, tenant, "786432", "700000", id[3]), 0);
    assert_int_equal(forget(&bed, id[3]), 1);
    assert_int_equal(hget(&bed, "tensor_bytes", ":"), 0);
    tenant = "anonymous";
    bed_close(&bed);
}

/* Nor are results free once their records are forgotten, or have expired. */
static void forgotten_under_a_job(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    char made[BLASD_ID_LEN + 1], user[BLASD_ID_LEN + 1], options[64];
    (void)state;
    bed_open(&bed, &server, "forgotten");
    bed.limits.record_async_s = 60;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    tenant = "one";
    for (int expires = 0; expires < 2; expires++) {
        assert_int_equal(submit_with(&bed, made, ""), 0);
        assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
        assert_int_equal(finish(worker, made, "record", 5000000), 1);
        snprintf(options, sizeof options, "t=%s.out", made);
        assert_int_equal(submit_with(&bed, user, options), 0);
        if (expires) {
            redis_forward(&server, 100 * INT64_C(1000));
            drop(fcall(&bed, "tick", NULL));
        } else {
            drop(fcall(&bed, "cancel", "1", made, NULL));
        }
        assert_int_equal(hget(&bed, "kept", "a one"), 5000000);
        assert_int_equal(counted(&bed, "kept_a"), 5000000);
        drop(fcall(&bed, "cancel", "0", user, NULL));
        drop(fcall(&bed, "cancel", "1", user, NULL));
        assert_int_equal(hget(&bed, "kept", "a one"), 0);
        assert_int_equal(counted(&bed, "kept_a"), 0);
        expect_nothing_left(&bed);
        blasd_worker_queue_free(worker); /* its lease may have lapsed while the clock went on */
        worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    }
    tenant = "anonymous";
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Very many small ones take no other tenant's away. */
static void many_small_ones(void **state) {
    enum { ALL = 40, SHARE = 19 }; /* as many as are free */
    struct bed bed;
    char id[BLASD_ID_LEN + 1], kept[BLASD_ID_LEN + 1], oldest[BLASD_ID_LEN + 1] = "";
    redisReply *reply;
    (void)state;
    bed_open(&bed, &server, "small");
    bed.limits.tensor_bytes = BLASD_MIB;
    bed.limits.tensors = ALL;
    bed_limits(&bed);
    assert_int_equal(put(&bed, "two", "786432", KIB, kept), 0);
    for (int i = 0; i < 3 * ALL; i++) {
        assert_int_equal(put(&bed, "one", "786432", "1", id), 0);
        if (i == 2 * ALL) memcpy(oldest, id, sizeof oldest);
    }
    reply = redisCommand(bed.raw, "HLEN %s:tensors", bed.tag);
    assert_int_equal(reply->integer, SHARE + 1);
    drop(reply);
    reply = fcall(&bed, "tensor", "get", "two", "0", kept, NULL);
    assert_int_equal(reply->element[0]->type, REDIS_REPLY_STRING);
    drop(reply);
    reply = fcall(&bed, "tensor", "get", "one", "0", oldest, NULL);
    assert_int_equal(reply->element[0]->integer, 404);
    drop(reply);
    for (int i = 0; i < ALL; i++) /* where there is one tenant all that is free is his */
        assert_int_equal(put(&bed, "anonymous", "0", "1", id), 0);
    reply = redisCommand(bed.raw, "ZCARD %s:tensor_uses:anonymous", bed.tag);
    assert_int_equal(reply->integer, ALL - SHARE - 1);
    drop(reply);
    bed_close(&bed);
}

/* What is refused has taken nothing of anybody's away; what others have counts as in use. */
static void refused_takes_nothing_away(void **state) {
    struct bed bed;
    char free_one[BLASD_ID_LEN + 1], id[BLASD_ID_LEN + 1], options[64];
    (void)state;
    bed_open(&bed, &server, "refused");
    bed.limits.tensor_bytes = BLASD_MIB;
    bed_limits(&bed);
    assert_int_equal(put(&bed, "two", "900000", "500000", id), 0);
    assert_int_equal(put(&bed, "one", "250000", "100000", free_one), 0);
    tenant = "one";
    assert_int_equal(put(&bed, tenant, "250000", "100000", id), 0);
    snprintf(options, sizeof options, "t=%s.in", id); /* in use */
    assert_int_equal(submit_with(&bed, id, options), 0);
    assert_int_equal(put(&bed, tenant, "250000", "160000", id), 3);
    assert_int_equal(hget(&bed, "tensor_bytes", tenant), 200000);
    assert_int_equal(put(&bed, tenant, "250000", "140000", id), 0); /* so much there is */
    assert_int_equal(forget(&bed, free_one), -1);
    assert_int_equal(hget(&bed, "tensor_bytes", tenant), 240000);
    assert_int_equal(hget(&bed, "tensor_bytes", "two"), 500000);
    tenant = "anonymous";
    bed_close(&bed);
}

/* A put does so much and no more, whatever tensors there are: those in use are not looked at, and
 * of many small ones that make room for a large one some go at a time. */
static void no_walk(void **state) {
    enum { MANY = 600, HELD = 300 };
    struct bed bed;
    char id[BLASD_ID_LEN + 1], options[64];
    long long calls[2], code;
    int asked = 0;
    (void)state;
    bed_open(&bed, &server, "walk");
    bed.limits.tensors = MANY;
    bed_limits(&bed);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(put(&bed, "anonymous", "0", "1", id), 0);
        snprintf(options, sizeof options, "t=%s.in", id);
        assert_int_equal(submit_with(&bed, id, options), 0);
        if (i == HELD || i == MANY - 1) {
            bed.limits.tensors = (uint64_t)i + 1;
            bed_limits(&bed);
            drop(redisCommand(bed.raw, "CONFIG RESETSTAT"));
            assert_int_equal(put(&bed, "anonymous", "0", "1", id), 3);
            drop(fcall(&bed, "tick", NULL));
            calls[i == HELD ? 0 : 1] = commands_run(&bed);
            bed.limits.tensors = MANY;
            bed_limits(&bed);
        }
    }
    assert_in_range(calls[1], calls[0] - 2, calls[0] + 2); /* some are made once a second */
    redisReply *reply = redisCommand(bed.raw, "HKEYS %s:pending", bed.tag);
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->str[0] != '=')
            drop(fcall(&bed, "cancel", "0", reply->element[i]->str, NULL));
    drop(reply);
    bed.limits.tensor_bytes = BLASD_MIB;
    bed_limits(&bed);
    do { /* as a front end does */
        code = put(&bed, "anonymous", "0", "1048576", id);
        asked++;
    } while (code == 5);
    assert_int_equal(code, 0);
    assert_in_range(asked, 3, 4);
    assert_int_equal(hget(&bed, "tensor_bytes", "#:"), 1);
    bed_close(&bed);
}

/* What jobs will make is counted when they come, so that no others' has to go for it. */
static void reserved(void **state) {
    struct bed bed;
    char job[3][BLASD_ID_LEN + 1], kept[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "reserved");
    bed.limits.tensor_bytes = BLASD_MIB;
    bed_limits(&bed);
    assert_int_equal(put(&bed, "two", "786432", "100000", kept), 0);
    tenant = "one";
    for (int i = 0; i < 3; i++)
        assert_int_equal(submit_with(&bed, job[i], "m=786432:200000:1"), i < 2 ? 0 : 15);
    assert_int_equal(submit_with(&bed, job[2], "m=786432:800000:1"), 16);
    assert_int_equal(hget(&bed, "tensor_bytes", tenant), 400000);
    for (int i = 0; i < 2; i++) drop(fcall(&bed, "cancel", "0", job[i], NULL));
    assert_int_equal(hget(&bed, "tensor_bytes", tenant), 0);
    assert_int_equal(hget(&bed, "tensor_bytes", "two"), 100000);
    expect_nothing_left(&bed);
    tenant = "anonymous";
    bed_close(&bed);
}

/* What is written nowhere else ends no housekeeping, nor hinders one who needs the room. */
static void an_id_of_nothing(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "nothing");
    bed.limits.tensors = 4;
    bed_limits(&bed);
    for (int i = 0; i < 2; i++) {
        id_make(id, BLASD_ID_TENSOR, 0);
        drop(redisCommand(bed.raw, "ZADD %s:tensor_%s 1 %s", bed.tag,
                          i == 0 ? "ends" : "uses:anonymous", id));
        if (i == 0) drop(fcall(&bed, "tick", NULL));
    }
    for (int i = 0; i < 8; i++) assert_int_equal(put(&bed, "anonymous", "0", "1", id), 0);
    redisReply *reply = redisCommand(
        bed.raw, "EVAL %s 2 %s:tensor_ends %s:tensor_uses:anonymous",
        "return redis.call('ZCARD', KEYS[1]) + redis.call('ZCARD', KEYS[2])", bed.tag, bed.tag);
    assert_int_equal(reply->integer, 8); /* of the four that there are */
    drop(reply);
    bed_close(&bed);
}

/* Whoever asks for more than there may be, or than it may have itself, is told which. */
static void more_than_may_be(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "more");
    bed.limits.tensor_bytes = BLASD_MIB;
    bed_limits(&bed);
    tenant = "one";
    assert_int_equal(put(&bed, tenant, "0", "1048577", id), 1);
    assert_int_equal(put(&bed, tenant, "2048", "1048577", id), 1);
    assert_int_equal(put(&bed, tenant, "2048", "2049", id), 2);
    assert_int_equal(hget(&bed, "tensor_bytes", tenant), 0);
    assert_int_equal(put(&bed, tenant, "2048", "2048", id), 0);
    assert_int_equal(put(&bed, tenant, "0", "1048576", id), 0);
    assert_int_equal(hget(&bed, "tensor_bytes", tenant), BLASD_MIB);
    tenant = "anonymous";
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_than_may_be),
                                       cmocka_unit_test(an_id_of_nothing),
                                       cmocka_unit_test(no_walk),
                                       cmocka_unit_test(reserved),
                                       cmocka_unit_test(deleted_under_a_job),
                                       cmocka_unit_test(forgotten_under_a_job),
                                       cmocka_unit_test(many_small_ones),
                                       cmocka_unit_test(refused_takes_nothing_away)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
