/* Whose a job is: where two workers with leases both believe that they have it, or a call comes
 * late, or once more, one of them ends it, once. */
#include "redis_fixture.h"

#include "queue/record_frame.h"

#include <math.h>

#define LINE "%s:wait:any:normal:anonymous"
#define LEAP_MS 120000 /* shorter than a lease here */

/* A replica has become the master that lacks what the worker was given last: the job still stands
 * in its line. */
static void lose_claim(struct bed *bed, const char *worker, const char *name, int jobs) {
    redisReply *reply = redisCommand(bed->raw, "HDEL %s:claims:%s %s", bed->tag, worker, name);
    assert_int_equal(reply->integer, 1);
    drop(reply);
    drop(redisCommand(bed->raw, "LPUSH " LINE " %s", bed->tag, name));
    drop(redisCommand(bed->raw, "HINCRBY %s:lines %s %d", bed->tag, "2 anonymous", jobs));
    state_add(bed, "waits1", jobs);
}

static bool wanted(struct blasd_worker_queue *worker, const char *id) {
    struct blasd_err err;
    bool is;
    if (blasd_worker_queue_progress(worker, &id, 1, 0.5, -1, &is, &err) != 0)
        fail_msg("%s", err.detail);
    return is;
}

static long long names_in_line(struct bed *bed) {
    redisReply *reply = redisCommand(bed->raw, "LLEN " LINE, bed->tag);
    long long names = reply->integer;
    drop(reply);
    return names;
}

/* Another has been given what a worker with a lease still runs: it is the other's. */
static void test_what_another_was_given(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "given");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *other = worker_new(&bed, "v", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    lose_claim(&bed, "w", id, 1);
    assert_true(wanted(worker, id)); /* nobody else has it */
    assert_int_equal(claim(other, 4, PLENTY, claims), 1);
    assert_false(wanted(worker, id));
    assert_true(wanted(other, id));
    assert_int_equal(finish(worker, id, "late", 100), 0);
    assert_int_equal(pending(&bed), 1);
    assert_int_equal(finish(other, id, "right", 0), 1);
    assert_string_equal(record_line(&bed, id, LINE_STATE), "right");
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(other);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* What nobody was given anew is not done twice. */
static void test_what_nobody_was_given(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "nobody");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *other = worker_new(&bed, "v", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    lose_claim(&bed, "w", id, 1);
    assert_int_equal(finish(worker, id, "right", 0), 1);
    assert_int_equal(claim(other, 4, PLENTY, claims), 0);
    assert_string_equal(record_line(&bed, id, LINE_STATE), "right");
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(other);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* What the stream of ended jobs says of a record with these figures; whose job it was it says
 * itself. */
static void test_the_stream_of_ended_jobs_believes_little(void **state) {
    static const struct {
        double flops, joules;
        int64_t compute_us;
        uint64_t bytes;
        const char *device, *told;
    } cases[] = {
        {12, 2, 7, 96, "cpu:0", "cpu:0 7 2.000000 12 96"},
        {NAN, NAN, -7, 0, "cpu:0", "cpu:0 0 0.000000 0 0"},
        {-1, -1, INT64_MIN, UINT64_MAX, "a b\n", " 0 0.000000 0 1099511627776"},
        {INFINITY, 1e300, INT64_MAX, 1, "", " 1099511627776 1099511627776.000000 1e+24 1"}};
    struct bed bed;
    struct blasd_claim claims[1];
    struct blasd_err err;
    bool lost;
    (void)state;
    bed_open(&bed, &server, "told");
    bed.limits.ended_jobs = 100;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char id[BLASD_ID_LEN + 1], record[2000] = "BLRF", said[200];
        int64_t times[3] = {0, cases[i].compute_us, 0};
        uint32_t one = 1, size = 1 << 30; /* it lies about that, too */
        memcpy(record + 8, &size, 4);
        record[12] = BLASD_SUCCEEDED;
        memcpy(record + 72, times, sizeof times);
        memcpy(record + 104, &one, 4);
        memcpy(record + 112, &cases[i].flops, 8);
        memcpy(record + 120, &cases[i].bytes, 8);
        memcpy(record + 128, &cases[i].joules, 8);
        record[256 + 3] = (char)strlen(cases[i].device); /* behind code, field and detail */
        memcpy(record + 256 + 4, cases[i].device, strlen(cases[i].device));
        submit_new(&bed, id, "2");
        assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
        struct blasd_completion completion = {
            .id = id, .record = record, .record_len = i == 0 ? sizeof record : 300};
        assert_int_equal(blasd_worker_queue_finish(worker, &completion, 1, &lost, &err), 0);
        redisReply *reply = redisCommand(bed.raw, "XREVRANGE %s:ended + - COUNT 1", bed.tag);
        redisReply **field = reply->element[0]->element[1]->element;
        assert_string_equal(field[1]->str, id);
        assert_string_equal(field[3]->str, "anonymous");
        assert_string_equal(field[9]->str, "succeeded");
        snprintf(said, sizeof said, "%s %s %s %s %s", field[13]->str, field[15]->str,
                 field[17]->str, field[19]->str, field[21]->str);
        assert_string_equal(said, cases[i].told);
        drop(reply);
    }
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* What it may write and drop of a store of kind redis. */
static void test_blobs_of_a_worker(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1], held[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "its");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, held, "2");
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    /* chunks that lie beyond it nobody would ever drop; nor those of a longer try */
    const struct {
        const char *bytes, *chunk;
        bool good;
    } chunks[] = {{"3", "1", false},       {"0", "1", false},  {"1048577", "1", true},
                  {"1048577", "2", false}, {"-1", "0", false}, {"3", "-1", false},
                  {"3", "0.5", false},     {"3", "0", true}};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        redisReply *got = redisCommand(bed.raw, "FCALL %s 1 %s %s w %s %s.out %s %s abc",
                                       BLASD_QUEUE_FN("blob_write"), bed.tag, bed.link.text,
                                       worker->lease.epoch, held, chunks[i].bytes, chunks[i].chunk);
        assert_int_equal(got->type, chunks[i].good ? REDIS_REPLY_INTEGER : REDIS_REPLY_ERROR);
        drop(got);
    }
    redisReply *left = redisCommand(bed.raw, "EXISTS %s:blob:%s.out:0 %s:blob:%s.out:1", bed.tag,
                                    held, bed.tag, held);
    assert_int_equal(left->integer, 1);
    drop(left);
    redisReply *reply = redisCommand(bed.raw, "FCALL %s 1 %s %s w 0 %s.out 3 0 abc",
                                     BLASD_QUEUE_FN("blob_write"), bed.tag, bed.link.text, held);
    assert_int_equal(strncmp(reply->str, "LOST", 4), 0);
    drop(reply);
    /* inputs that a front end is writing; outputs that nobody refers to */
    drop(redisCommand(bed.raw, "FCALL %s 1 %s %s hold %s.in 3", BLASD_QUEUE_FN("blob"), bed.tag,
                      bed.link.text, id));
    drop(redisCommand(bed.raw, "HDEL %s:pending %s =%s", bed.tag, id, id));
    drop(redisCommand(bed.raw, "FCALL %s 1 %s %s %s.in %s.out", BLASD_QUEUE_FN("blob_free"),
                      bed.tag, bed.link.text, id, id));
    reply = redisCommand(bed.raw, "HMGET %s:blobs %s.in %s.out", bed.tag, id, id);
    assert_string_equal(reply->element[0]->str, "3");
    assert_int_equal(reply->element[1]->type, REDIS_REPLY_NIL);
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

enum { PACKED = 3 };

/* New ids of PACKED jobs that share a batch entry, its name, and their record frames, which take
 * that many bytes. */
static size_t pack(char ids[PACKED][BLASD_ID_LEN + 1], char *name, char *frames) {
    size_t len = 0;
    id_make(ids[0], BLASD_ID_SYNC, 0);
    for (int i = 0; i < PACKED; i++) {
        memcpy(ids[i], ids[0], BLASD_ID_LEN + 1);
        snprintf(ids[i] + BLASD_ID_ENTRY, BLASD_ID_LEN + 1 - BLASD_ID_ENTRY, "%012d", i);
        memcpy(frames + len, "\1\0\0\0", 4);
        memcpy(frames + len + 4, ids[i], BLASD_ID_LEN);
        frames[len + 4 + BLASD_ID_LEN] = 'f';
        len += 4 + BLASD_ID_LEN + 1;
    }
    memcpy(name, ids[0], BLASD_ID_ENTRY);
    name[BLASD_ID_ENTRY] = '\0';
    return len;
}

static void submit_packed(struct bed *bed, char ids[PACKED][BLASD_ID_LEN + 1], char *name) {
    char frames[PACKED * (4 + BLASD_ID_LEN + 1)];
    size_t len = pack(ids, name, frames);
    redisReply *reply = redisCommand(
        bed->raw, "FCALL %s 1 %s %s test %s %s %b 2 %s %s %s", BLASD_QUEUE_FN("submit"), bed->tag,
        bed->link.text, submit_seq(false), name, frames, len, "100 3", "", "\t\tmatmul\tanonymous");
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->element[3]->integer, 0);
    drop(reply);
}

static int finish_some(struct blasd_worker_queue *worker, char ids[][BLASD_ID_LEN + 1], int count) {
    struct blasd_completion completions[PACKED];
    struct blasd_err err;
    bool lost;
    int good = 0;
    for (int i = 0; i < count; i++)
        completions[i] =
            (struct blasd_completion){.id = ids[i], .record = "right", .record_len = 5};
    if (blasd_worker_queue_finish(worker, completions, count, &lost, &err) < 0)
        fail_msg("%s", err.detail);
    assert_false(lost);
    for (int i = 0; i < count; i++) good += completions[i].accepted;
    return good;
}

/* The same of a batch entry that another has: as a whole, in part, and job by job; and where it is
 * opened by then. */
static void test_a_batch_entry_that_another_was_given(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char ids[PACKED][BLASD_ID_LEN + 1], name[BLASD_ID_ENTRY + 1];
    (void)state;
    for (int round = 0; round < 4; round++) {
        bed_open(&bed, &server,
                 (const char *[]){"packed0", "packed1", "packed2", "packed3"}[round]);
        struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
        struct blasd_worker_queue *other = worker_new(&bed, "v", BLASD_DEVICE_CPU);
        submit_packed(&bed, ids, name);
        assert_int_equal(claim(worker, 8, PLENTY, claims), PACKED);
        assert_true(wanted(worker, ids[1]));
        lose_claim(&bed, "w", name, PACKED);
        assert_int_equal(claim(other, 8, PLENTY, claims), PACKED);
        assert_false(wanted(worker, ids[1]));
        assert_true(wanted(other, ids[1]));
        if (round == 3) drop(fcall(&bed, "watch", "channel", ids[2], NULL));
        if (round == 0 || round == 3) assert_int_equal(finish_some(worker, ids, PACKED), 0);
        if (round == 1) assert_int_equal(finish_some(worker, ids, 2), 0);
        if (round == 2) assert_int_equal(finish_some(worker, ids, 1), 0);
        assert_int_equal(pending(&bed), PACKED);
        assert_int_equal(finish_some(other, ids, 1), 1); /* its own may come in parts */
        assert_int_equal(finish_some(worker, ids, PACKED), 0);
        assert_int_equal(finish_some(other, ids + 1, PACKED - 1), PACKED - 1);
        assert_int_equal(pending(&bed), 0);
        blasd_worker_queue_free(other);
        blasd_worker_queue_free(worker);
        bed_close(&bed);
    }
}

/* What the worker could not read goes back if it has it; what stands in its line already would be
 * there twice, and given to two. */
static void test_what_goes_back_was_held(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "back");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    drop(turn_lost(&bed, worker, 0, id, "", 0, "1 0")); /* once it is held */
    assert_int_equal(names_in_line(&bed), 1);
    worker->turns.unsure = false;
    drop(turn_lost(&bed, worker, 0, id, "", 0, "1 0"));
    assert_int_equal(names_in_line(&bed), 1);
    assert_int_equal(counted(&bed, "2"), 1);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Redis comes to read what a worker told it over an earlier connection when that worker has told it
 * anew, and was given more: that stays with it. */
static void test_holdings_that_come_late(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char first[BLASD_ID_LEN + 1], second[BLASD_ID_LEN + 1], seq[24];
    (void)state;
    bed_open(&bed, &server, "late");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *other = worker_new(&bed, "v", BLASD_DEVICE_CPU);
    submit_new(&bed, first, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    snprintf(seq, sizeof seq, "%" PRIu64, worker->turns.claimed_in);
    worker->turns.busy = false;
    assert_int_equal(finish(worker, first, "r", 0), 1);
    submit_new(&bed, second, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    redisReply *reply = fcall(&bed, "lease", "w", worker->lease.epoch, "holds", seq, NULL);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    assert_int_equal(claim(other, 4, PLENTY, claims), 0);
    assert_int_equal(finish(worker, second, "r", 0), 1);
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(other);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* One call of submit, as often as it is asked for. */
struct call {
    const char *argv[64];
    size_t lens[64];
    int argc;
};

static void call_begin(struct call *call, const struct bed *bed, const char *seq) {
    const char *const words[] = {
        "FCALL", BLASD_QUEUE_FN("submit"), "1", bed->tag, bed->link.text, "front", seq};
    call->argc = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        call->lens[call->argc] = strlen(words[i]);
        call->argv[call->argc++] = words[i];
    }
}

static void call_add(struct call *call, const char *name, const char *frame, size_t len,
                     const char *cost) {
    const char *const words[] = {name, frame, "2", cost, "", "\t\tmatmul\tanonymous"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        call->lens[call->argc] = i == 1 ? len : strlen(words[i]);
        call->argv[call->argc++] = words[i];
    }
}

/* What it is answered, a job or batch entry a word. */
static const char *call_send(struct call *call, struct bed *bed) {
    static char text[128];
    redisReply *reply = redisCommandArgv(bed->raw, call->argc, call->argv, call->lens);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    text[0] = '\0';
    for (size_t i = 3; i < reply->elements; i++) {
        const redisReply *r = reply->element[i];
        size_t len = strlen(text);
        if (r->type == REDIS_REPLY_STRING)
            snprintf(text + len, sizeof text - len, " %s", r->str);
        else
            snprintf(text + len, sizeof text - len, " %lld", r->integer);
    }
    drop(reply);
    return text;
}

/* The reply to a call of submit was lost, and by the time that it is sent again Redis' clock has
 * leapt: what it has taken in is not taken in once more, be it pending or ended. */
static void test_a_submission_after_a_leap(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    struct call call;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "leap");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    id_make(id, BLASD_ID_ASYNC, 0);
    call_begin(&call, &bed, "1");
    call_add(&call, id, id, BLASD_ID_LEN, "100");
    assert_string_equal(call_send(&call, &bed), " 0");
    redis_forward(&server, LEAP_MS);
    assert_string_equal(call_send(&call, &bed), " 0");
    assert_int_equal(names_in_line(&bed), 1);
    assert_int_equal(pending(&bed), 1);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_int_equal(finish(worker, id, "right", 0), 1);
    redis_forward(&server, LEAP_MS);
    assert_string_equal(call_send(&call, &bed), " 0");
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* From now on the queue has room for so many jobs. */
static void call_room(struct call *call, struct bed *bed, uint64_t jobs) {
    bed->limits.queue_jobs = jobs;
    bed_limits(bed);
    call->argv[4] = bed->link.text;
    call->lens[4] = strlen(bed->link.text);
}

/* The same where there was not room for all: it is answered as it was, until that is forgotten. */
static void test_a_submission_in_part_after_a_leap(void **state) {
    struct bed bed;
    struct call call;
    char id[BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1], frames[256];
    char ids[PACKED][BLASD_ID_LEN + 1], name[BLASD_ID_ENTRY + 1];
    (void)state;
    bed_open(&bed, &server, "part");
    bed.limits.queue_jobs = 3;
    bed_limits(&bed);
    id_make(id, BLASD_ID_ASYNC, 0);
    id_make(other, BLASD_ID_ASYNC, 0);
    size_t len = pack(ids, name, frames);
    call_begin(&call, &bed, "1");
    call_add(&call, id, id, BLASD_ID_LEN, "100");
    call_add(&call, name, frames, len, "100 3");
    call_add(&call, other, other, BLASD_ID_LEN, "100");
    assert_string_equal(call_send(&call, &bed), " 0 001 1");
    call_room(&call, &bed, 100);
    assert_string_equal(call_send(&call, &bed), " 0 001 1");
    call_room(&call, &bed, 3);
    redis_forward(&server, LEAP_MS);
    assert_string_equal(call_send(&call, &bed), " 0 001 1");
    assert_int_equal(names_in_line(&bed), 3);
    assert_int_equal(pending(&bed), 3);
    call_room(&call, &bed, 100);
    assert_string_equal(call_send(&call, &bed), " 0 001 0");
    assert_int_equal(names_in_line(&bed), 4);
    assert_int_equal(pending(&bed), 4);
    bed_close(&bed);
}

static bool has_blob(struct bed *bed, const char *name) {
    redisReply *reply = redisCommand(bed->raw, "EXISTS %s:blob:%s:0", bed->tag, name);
    bool is = reply->integer == 1;
    drop(reply);
    return is;
}

static void put_blob(struct bed *bed, struct blasd_worker_queue *worker, const char *name) {
    struct blasd_blob blob;
    struct blasd_err err;
    assert_int_equal(blasd_blob_create(bed->store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, 100, &err), 0);
    if (blasd_worker_queue_blob_put(worker, &blob, &err) < 0) fail_msg("%s", err.detail);
    blasd_blob_close(&blob);
}

/* What the worker posted has arrived. */
static void arrived(struct blasd_worker_queue *worker) {
    struct blasd_err err;
    blasd_caller_command(&worker->caller, "PING");
    assert_int_equal(blasd_caller_do(&worker->caller, &err), 0);
}

/* A worker that stood still takes its result away, which has become another's. */
static void test_a_blob_that_is_referred_to_stays(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1], in[BLASD_BLOB_NAME], out[BLASD_BLOB_NAME];
    (void)state;
    bed_open(&bed, &server, "blobs");
    struct blasd_worker_queue *stale = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *worker = worker_new(&bed, "v", BLASD_DEVICE_CPU);
    id_make(id, BLASD_ID_SYNC, 0);
    snprintf(in, sizeof in, "%s.in", id);
    snprintf(out, sizeof out, "%s.out", id);
    put_blob(&bed, worker, in);
    assert_int_equal(submit_as(&bed, id, "2", "100", "B=1", ""), 0);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    put_blob(&bed, worker, out);
    blasd_worker_queue_blob_remove(stale, out);
    arrived(stale); /* it has arrived */
    assert_true(has_blob(&bed, out));
    assert_int_equal(finish(worker, id, "r", 100), 1);
    blasd_worker_queue_blob_remove(stale, out);
    arrived(stale);
    assert_true(has_blob(&bed, out));
    blasd_worker_queue_blob_remove(worker, in); /* nobody needs it any more, so it goes at once */
    arrived(worker);
    assert_false(has_blob(&bed, in));
    drop(fcall(&bed, "cancel", "1", id, NULL));
    blasd_worker_queue_blob_remove(worker, out);
    arrived(worker);
    assert_false(has_blob(&bed, out));
    blasd_worker_queue_free(worker);
    blasd_worker_queue_free(stale);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_another_was_given),
        cmocka_unit_test(test_what_nobody_was_given),
        cmocka_unit_test(test_the_stream_of_ended_jobs_believes_little),
        cmocka_unit_test(test_blobs_of_a_worker),
        cmocka_unit_test(test_a_batch_entry_that_another_was_given),
        cmocka_unit_test(test_what_goes_back_was_held),
        cmocka_unit_test(test_holdings_that_come_late),
        cmocka_unit_test(test_a_submission_after_a_leap),
        cmocka_unit_test(test_a_submission_in_part_after_a_leap),
        cmocka_unit_test(test_a_blob_that_is_referred_to_stays),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
