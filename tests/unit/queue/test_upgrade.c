/* What the schema before left, as an upgrade leaves it: lists and records that told no tenants
 * apart are the anonymous one's. */
#include "batch_entry_fixture.h"

/* Makes of this schema what the one before would have written. */
static void downgrade(struct bed *bed) {
    static const char script[] =
        "local q, call, si = KEYS[1], redis.call, 0\n"
        "local function rename(a, b)\n"
        "  if call('EXISTS', q .. a) == 1 then call('RENAME', q .. a, q .. b) end\n"
        "end\n"
        "for _, class in ipairs({'any', 'cpu', 'cuda'}) do\n"
        "  for _, priority in ipairs({'high', 'normal', 'low'}) do\n"
        "    local list = ':wait:' .. class .. ':' .. priority\n"
        "    si = si + 1\n"
        "    rename(list .. ':anonymous', list)\n"
        "    local jobs = call('HGET', q .. ':count', si .. ' anonymous')\n"
        "    if jobs then call('HSET', q .. ':count', si, jobs) end\n"
        "    call('HDEL', q .. ':count', si .. ' anonymous')\n"
        "  end\n"
        "end\n"
        "local all = call('ZRANGE', q .. ':recs', 0, -1, 'WITHSCORES')\n"
        "for i = 1, #all, 2 do\n"
        "  local place = all[i]:match('^(.*):anonymous$')\n"
        "  for _, of in ipairs({':rec:', ':out:', ':seg:', ':keys:'}) do\n"
        "    rename(of .. all[i], of .. place)\n"
        "  end\n"
        "  call('ZREM', q .. ':recs', all[i])\n"
        "  call('ZADD', q .. ':recs', all[i + 1], place)\n"
        "  call('HSET', q .. ':recbytes', place, call('HGET', q .. ':recbytes', all[i]))\n"
        "  call('HDEL', q .. ':recbytes', all[i])\n"
        "  call('DEL', q .. ':tenants:' .. place)\n"
        "end\n"
        "rename(':seconds:anonymous', ':seconds')\n"
        "call('DEL', q .. ':schema', q .. ':outs', q .. ':sync')\n"
        "return 'ok'\n";
    redisReply *reply = redisCommand(bed->raw, "EVAL %s 1 %s", script, bed->tag);
    if (reply->type == REDIS_REPLY_ERROR) fail_msg("%s", reply->str);
    drop(reply);
}

static void upgrade(struct bed *bed) {
    for (int i = 0; i < 2; i++) /* each connection does */
        drop(fcall(bed, "open", blasd_store_identity(bed->store), "0", NULL));
}

static void jobs_of_schema_5(void **state) {
    enum { JOBS = 5 };
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[16];
    char id[JOBS][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "schema5");
    for (int i = 0; i < JOBS; i++) submit_new(&bed, id[i], i == 4 ? "1" : "2");
    submit_batch_entry(&bed, &entry, BLASD_ID_ASYNC, 3, "");
    drop(fcall(&bed, "cancel", "0", id[1], NULL)); /* its name stays in the list */
    downgrade(&bed);
    upgrade(&bed);
    audit(&bed);
    assert_int_equal(counted(&bed, "1"), 1);
    assert_int_equal(counted(&bed, "2"), 6);
    assert_int_equal(ask(&bed, "EXISTS", "wait:any:normal"), 0);
    assert_int_equal(list_all(&bed, "queued", "3", NULL, NULL), 7);
    assert_string_equal(record_line(&bed, id[1], LINE_STATE), "cancelled");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 16, PLENTY, claims), 7);
    assert_string_equal(claims[0].id, id[4]);
    assert_string_equal(claims[1].id, id[0]);
    assert_string_equal(claims[2].id, id[2]);
    assert_string_equal(claims[3].id, id[3]);
    for (int i = 0; i < 3; i++) assert_string_equal(claims[4 + i].id, entry.id[i]);
    assert_string_equal(finish_claims(worker, claims, 7), "1111111");
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void records_of_schema_5(void **state) {
    struct bed bed;
    char id[2][BLASD_ID_LEN + 1], again[BLASD_ID_LEN + 1], blob[BLASD_ID_LEN + 5];
    struct blasd_claim claims[2];
    (void)state;
    bed_open(&bed, &server, "records5");
    for (int i = 0; i < 2; i++) {
        id_make(id[i], i == 0 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, 0);
        assert_int_equal(submit_as(&bed, id[i], "2", "100", i == 0 ? "k=1:key" : "", ""), 0);
    }
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 2, PLENTY, claims), 2);
    for (int i = 0; i < 2; i++) assert_int_equal(finish(worker, id[i], id[i], 5000), 1);
    downgrade(&bed);
    upgrade(&bed);
    for (int i = 0; i < 2; i++) assert_string_equal(record_line(&bed, id[i], 0), id[i]);
    snprintf(blob, sizeof blob, "%s.out", id[1]);
    redisReply *reply = fcall(&bed, "refs", blob, NULL);
    assert_string_equal(reply->str, "1");
    drop(reply);
    id_make(again, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(&bed, again, "2", "100", "k=1:key", ""), -1); /* the earlier job */
    drop(fcall(&bed, "cancel", "1", id[0], id[1], NULL));
    for (int i = 0; i < 2; i++) assert_string_equal(record_line(&bed, id[i], 0), "404");
    reply = redisCommand(bed.raw, "HMGET %s:recbytes s a", bed.tag);
    assert_string_equal(reply->element[0]->str, "0");
    assert_string_equal(reply->element[1]->str, "0");
    drop(reply);
    /* the buckets go in their time */
    redis_forward(&server, 2 * 3600 * 1000);
    for (int i = 0; i < 2; i++) drop(fcall(&bed, "tick", NULL));
    reply = redisCommand(bed.raw, "EVAL %s 1 %s",
                         "return #redis.call('KEYS', KEYS[1] .. ':tenants:*') + "
                         "#redis.call('KEYS', KEYS[1] .. ':seconds:*') + "
                         "redis.call('EXISTS', KEYS[1] .. ':recs', KEYS[1] .. ':seconds')",
                         bed.tag);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Redis was emptied, and has taken jobs before the connection that sees it. */
static void jobs_of_this_schema_without_its_mark(void **state) {
    struct bed bed;
    struct blasd_claim claims[2];
    char id[2][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "unmarked");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, id[0], "2");
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    assert_int_equal(finish(worker, id[0], id[0], 5000), 1);
    submit_new(&bed, id[1], "2");
    drop(redisCommand(bed.raw, "DEL %s:schema", bed.tag));
    upgrade(&bed);
    assert_string_equal(record_line(&bed, id[0], 0), id[0]);
    assert_int_equal(claim(worker, 2, PLENTY, claims), 1);
    assert_string_equal(finish_claims(worker, claims, 1), "1");
    audit(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_schema_5),
        cmocka_unit_test(records_of_schema_5),
        cmocka_unit_test(jobs_of_this_schema_without_its_mark),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
