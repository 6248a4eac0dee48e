/* To whom jobs go whose tensors lie on a device: to the worker of that device, whoever asks first,
 * unless it is behind by more than to move them takes; and to any other no later than that. To move
 * the tensor takes 100 s here, two jobs as much: no test is so slow that it would matter. */
#include "batch_entry_fixture.h"

#define TENSOR "1000000000000" /* bytes */
#define MOVING_MS 100000

static const char *work = "50000000"; /* us of each job */

struct pair {
    struct bed bed;
    struct blasd_worker_queue *one, *two; /* of CUDA; what there is lies with two */
    char tensor[BLASD_ID_LEN + 1];
    struct blasd_claim claims[64];
};

static void tensor_put(struct bed *bed, char id[BLASD_ID_LEN + 1]) {
    bed->limits.tensor_bytes = UINT64_C(1) << 42;
    bed_limits(bed);
    id_make(id, BLASD_ID_TENSOR, 0);
    redisReply *reply =
        fcall(bed, "tensor_put", tenant, "0", "3600", id, TENSOR, "uint8 0 1", NULL);
    assert_int_equal(reply->element[0]->integer, 0);
    drop(reply);
}

static void tell(struct blasd_worker_queue *worker, const char *device,
                 const char id[BLASD_ID_LEN + 1]) {
    char ids[1][BLASD_ID_LEN + 1];
    struct blasd_err err;
    memcpy(ids[0], id, sizeof ids[0]);
    assert_int_equal(
        blasd_worker_queue_copies(worker, device, (const char(*)[BLASD_ID_LEN + 1]) ids, 1, &err),
        0);
}

static void pair_open(struct pair *p, const char *name) {
    memset(p, 0, sizeof *p);
    bed_open(&p->bed, &server, name);
    p->one = worker_new(&p->bed, "one", BLASD_DEVICE_CUDA);
    p->two = worker_new(&p->bed, "two", BLASD_DEVICE_CUDA);
    tensor_put(&p->bed, p->tensor);
    tell(p->two, "cuda:1", p->tensor);
}

/* Nothing is left, and nothing is counted. */
static void pair_close(struct pair *p) {
    assert_int_equal(pending(&p->bed), 0);
    assert_int_equal(counted(&p->bed, "8"), 0);
    redisReply *reply =
        redisCommand(p->bed.raw, "EXISTS %s:holds %s:refs %s:used %s:passed %s:wait:cuda:normal:%s",
                     p->bed.tag, p->bed.tag, p->bed.tag, p->bed.tag, p->bed.tag, tenant);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    blasd_worker_queue_free(p->one);
    blasd_worker_queue_free(p->two);
    bed_close(&p->bed);
}

/* A job of stream `si` with that tensor, or with none where it is NULL. */
static void submit_on(struct pair *p, char id[BLASD_ID_LEN + 1], const char *si,
                      const char *tensor) {
    char options[64] = "", note[96];
    if (tensor) snprintf(options, sizeof options, "t=%s.in", tensor);
    snprintf(note, sizeof note, "\t\tmatmul\t%s\t%s 0 0 0", tenant, work);
    id_make(id, BLASD_ID_ASYNC, 0);
    redisReply *reply = fcall(&p->bed, "submit", NEXT_SEQ, id, id, si, "10", options, note, NULL);
    assert_int_equal(reply->element[3]->integer, 0);
    drop(reply);
}

static int take(struct pair *p, struct blasd_worker_queue *worker) {
    return claim(worker, 64, PLENTY, p->claims);
}

/* The worker is given this job, and no other, and ends it. */
static void expect_taken(struct pair *p, struct blasd_worker_queue *worker, const char *id) {
    assert_int_equal(take(p, worker), 1);
    assert_string_equal(p->claims[0].id, id);
    assert_int_equal(finish(worker, id, "r", 0), 1);
}

static void expect_taken_by_either(struct pair *p, const char *id) {
    struct blasd_worker_queue *worker = take(p, p->one) ? p->one : p->two;
    if (worker == p->two) assert_int_equal(take(p, p->two), 1);
    assert_string_equal(p->claims[0].id, id);
    assert_int_equal(finish(worker, id, "r", 0), 1);
}

static void expect_none(struct pair *p, struct blasd_worker_queue *worker) {
    assert_int_equal(take(p, worker), 0);
}

static void who_has_it_is_given_it(void **state) {
    struct pair p;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    pair_open(&p, "copies");
    /* from a line, though the other asks first */
    submit_on(&p, id, "8", p.tensor);
    expect_none(&p, p.one);
    assert_int_equal(counted(&p.bed, "8"), 1);
    expect_taken(&p, p.two, id);
    /* into an empty queue, with both idle */
    expect_none(&p, p.two);
    submit_on(&p, id, "8", p.tensor);
    expect_none(&p, p.one);
    expect_taken(&p, p.two, id);
    /* what has no tensor, and what both have, goes to the first one */
    submit_on(&p, id, "8", NULL);
    expect_taken_by_either(&p, id);
    tell(p.one, "cuda:0", p.tensor);
    submit_on(&p, id, "8", p.tensor);
    expect_taken_by_either(&p, id);
    pair_close(&p);
}

/* The document names one device; what the others said stays. */
static void each_device_tells_for_itself(void **state) {
    struct pair p;
    redisReply *reply;
    (void)state;
    pair_open(&p, "copies2");
    for (int i = 0; i < 3; i++) {
        tell(p.one, "cuda:0", p.tensor);
        tell(p.two, "cuda:1", p.tensor);
    }
    reply = redisCommand(p.bed.raw, "HGET %s:tensor_copies %s", p.bed.tag, p.tensor);
    assert_non_null(strstr(reply->str, " one cuda:0"));
    assert_non_null(strstr(reply->str, " two cuda:1"));
    assert_true(strchr(reply->str, '\t') == strrchr(reply->str, '\t'));
    drop(reply);
    reply = fcall(&p.bed, "tensor_get", tenant, "0", p.tensor, NULL);
    assert_non_null(strstr(reply->element[0]->str, "\tcuda:0"));
    drop(reply);
    redis_forward(&server, (int64_t)p.bed.limits.lease_ms + 1); /* they say so no more */
    reply = fcall(&p.bed, "tensor_get", tenant, "0", p.tensor, NULL);
    assert_null(strchr(reply->element[0]->str, '\t'));
    drop(reply);
    pair_close(&p);
}

/* With three jobs in hand it is behind by more than that, with two it is not. */
static void not_to_one_that_is_behind(void **state) {
    struct pair p;
    char busy[3][BLASD_ID_LEN + 1], id[2][BLASD_ID_LEN + 1];
    (void)state;
    pair_open(&p, "behind");
    for (int i = 0; i < 3; i++) submit_on(&p, busy[i], "8", NULL);
    assert_int_equal(take(&p, p.two), 3);
    submit_on(&p, id[0], "8", p.tensor);
    expect_taken(&p, p.one, id[0]);
    assert_int_equal(finish(p.two, busy[0], "r", 0), 1);
    submit_on(&p, id[1], "8", p.tensor);
    expect_none(&p, p.one);
    for (int i = 1; i < 3; i++) assert_int_equal(finish(p.two, busy[i], "r", 0), 1);
    expect_taken(&p, p.two, id[1]);
    pair_close(&p);
}

/* What it is left counts, too, and what the other takes: of many jobs both have their part, in the
 * order in which they came. */
static void many_are_for_both(void **state) {
    enum { JOBS = 9 };
    static const int for_one[] = {3, 5, 7}, for_two[] = {0, 1, 2, 4, 6, 8};
    struct pair p;
    char id[JOBS][BLASD_ID_LEN + 1];
    (void)state;
    pair_open(&p, "many");
    for (int i = 0; i < JOBS; i++) submit_on(&p, id[i], "8", p.tensor);
    assert_int_equal(take(&p, p.one), 3);
    for (int i = 0; i < 3; i++) assert_string_equal(p.claims[i].id, id[for_one[i]]);
    assert_int_equal(counted(&p.bed, "8"), 6);
    assert_int_equal(take(&p, p.two), 6);
    for (int i = 0; i < 6; i++) assert_string_equal(p.claims[i].id, id[for_two[i]]);
    assert_int_equal(counted(&p.bed, "8"), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(finish(p.one, id[for_one[i]], "r", 0), 1);
    for (int i = 0; i < 6; i++) assert_int_equal(finish(p.two, id[for_two[i]], "r", 0), 1);
    pair_close(&p);
}

/* What is left behind holds up nothing that comes after it. */
static void others_pass_it(void **state) {
    struct pair p;
    char high[BLASD_ID_LEN + 1], id[2][BLASD_ID_LEN + 1], cancelled[BLASD_ID_LEN + 1];
    (void)state;
    pair_open(&p, "pass");
    submit_on(&p, high, "7", p.tensor);
    submit_on(&p, id[0], "8", p.tensor);
    submit_on(&p, cancelled, "8", p.tensor);
    submit_on(&p, id[1], "8", NULL);
    expect_taken(&p, p.one, id[1]);
    expect_none(&p, p.one);
    drop(fcall(&p.bed, "cancel", "0", cancelled, NULL));
    drop(fcall(&p.bed, "cancel", "1", cancelled, NULL));
    expect_none(&p, p.one);
    assert_int_equal(counted(&p.bed, "7"), 1);
    assert_int_equal(counted(&p.bed, "8"), 1);
    assert_int_equal(take(&p, p.two), 2);
    assert_string_equal(p.claims[0].id, high);
    assert_string_equal(p.claims[1].id, id[0]);
    assert_int_equal(finish(p.two, high, "r", 0), 1);
    assert_int_equal(finish(p.two, id[0], "r", 0), 1);
    expect_none(&p, p.two); /* passes the tombstone */
    assert_int_equal(counted(&p.bed, "7"), 0);
    pair_close(&p);
}

/* Turns in which priorities age look at a line twice: what was left is left, and counts once. */
static void nor_when_priorities_age(void **state) {
    enum { LEFT = 3, OTHERS = 16 };
    struct pair p;
    char left[LEFT][BLASD_ID_LEN + 1], id[OTHERS][BLASD_ID_LEN + 1];
    int at = 0;
    (void)state;
    pair_open(&p, "age");
    for (int i = 0; i < LEFT; i++) submit_on(&p, left[i], "8", p.tensor);
    for (int i = 0; i < OTHERS; i++) submit_on(&p, id[i], "8", NULL);
    while (at < OTHERS) {
        int count = claim(p.one, 2, PLENTY, p.claims);
        assert_in_range(count, 1, 2);
        for (int i = 0; i < count; i++) assert_string_equal(p.claims[i].id, id[at + i]);
        for (int i = 0; i < count; i++) assert_int_equal(finish(p.one, id[at++], "r", 0), 1);
        assert_int_equal(counted(&p.bed, "8") >= LEFT, 1);
    }
    expect_none(&p, p.one);
    assert_int_equal(take(&p, p.two), LEFT);
    for (int i = 0; i < LEFT; i++) assert_string_equal(p.claims[i].id, left[i]);
    for (int i = 0; i < LEFT; i++) assert_int_equal(finish(p.two, left[i], "r", 0), 1);
    pair_close(&p);
}

/* One that dies, or leaves, takes nothing along: it had only been waited for. */
static void not_to_a_dead_one(void **state) {
    struct pair p;
    char id[BLASD_ID_LEN + 1];
    struct blasd_err err;
    (void)state;
    for (int leaves = 0; leaves < 2; leaves++) {
        pair_open(&p, leaves ? "leaves" : "dead");
        submit_on(&p, id, "8", p.tensor);
        expect_none(&p, p.one);
        if (leaves)
            assert_int_equal(blasd_worker_queue_release(p.two, &err), 0);
        else
            drop(redisCommand(p.bed.raw, "DEL %s:lease:two", p.bed.tag));
        expect_taken(&p, p.one, id);
        drop(fcall(&p.bed, "tick", NULL));
        expect_none(&p, p.one);
        pair_close(&p);
    }
}

static long long woken(struct pair *p, const char *worker) {
    redisReply *reply = redisCommand(p->bed.raw, "LLEN %s:wake:%s", p->bed.tag, worker);
    long long n = reply->integer;
    drop(reply);
    return n;
}

/* One that does not come is waited for no longer than it takes to move the tensor, and who waits
 * for that is told. */
static void not_for_longer_than_moving_takes(void **state) {
    struct pair p;
    struct blasd_err err;
    char id[2][BLASD_ID_LEN + 1];
    (void)state;
    pair_open(&p, "late");
    expect_none(&p, p.one);
    assert_true(blasd_worker_queue_is_idle(p.one));
    assert_int_equal(p.one->turns.soon_ms, 0);
    submit_on(&p, id[0], "8", p.tensor);
    submit_on(&p, id[1], "8", p.tensor);
    assert_int_equal(woken(&p, "one"), 1); /* once, however many there are */
    assert_int_equal(blasd_worker_queue_wait(p.one, 3000, &err), 0);
    assert_false(blasd_worker_queue_is_idle(p.one));
    assert_int_equal(woken(&p, "one"), 0);
    expect_none(&p, p.one);
    assert_int_equal(p.one->turns.soon_ms, 3000); /* no wait is longer */
    redis_forward(&server, MOVING_MS - 1000);
    if (take(&p, p.one) == 0) { /* else a second has gone by since */
        assert_in_range(p.one->turns.soon_ms, 1, 1000);
        redis_forward(&server, 1000);
        assert_int_equal(take(&p, p.one), 2);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(finish(p.one, id[i], "r", 0), 1);
    expect_none(&p, p.one);
    assert_int_equal(p.one->turns.soon_ms, 0);
    pair_close(&p);
}

/* Nor where the one that might take it asks seldom, for what it takes meanwhile is long: that the
 * job was left once is known until it ends. */
static void nor_where_others_ask_seldom(void **state) {
    struct pair p;
    char id[2][BLASD_ID_LEN + 1];
    (void)state;
    pair_open(&p, "seldom");
    submit_on(&p, id[0], "8", p.tensor);
    submit_on(&p, id[1], "8", NULL);
    expect_taken(&p, p.one, id[1]);
    redis_forward(&server, MOVING_MS + 120000);
    tell(p.two, "cuda:1", p.tensor);
    expect_taken(&p, p.one, id[0]);
    pair_close(&p);
}

/* A worker whose wait is sent with its turn, as where jobs come fast, is told at once. */
static void a_wait_behind_the_turn_ends(void **state) {
    struct pair p;
    struct blasd_err err;
    char id[2][BLASD_ID_LEN + 1];
    (void)state;
    pair_open(&p, "led");
    expect_none(&p, p.one);
    assert_int_equal(blasd_worker_queue_wait(p.one, 1, &err), 0);
    submit_on(&p, id[0], "8", NULL);
    assert_int_equal(take(&p, p.one), 1);
    submit_on(&p, id[1], "8", p.tensor);
    p.one->turns.busy = true;
    assert_int_equal(finish(p.one, id[0], "r", 0), 1);
    assert_true(p.one->turns.led);
    assert_int_equal(p.one->turns.soon_ms, 3000);
    assert_int_equal(blasd_worker_queue_wait(p.one, 3000, &err), 0);
    assert_int_equal(woken(&p, "one"), 0);
    expect_none(&p, p.one);
    expect_taken(&p, p.two, id[1]);
    pair_close(&p);
}

static void end_well(struct blasd_worker_queue *worker, const char *id) {
    struct blasd_record record = {.state = BLASD_SUCCEEDED};
    struct blasd_buf bytes;
    struct blasd_err err;
    bool lost;
    snprintf(record.id, sizeof record.id, "%s", id);
    snprintf(record.op, sizeof record.op, "matmul");
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record.outputs[i].tensor.rank = -1;
    blasd_buf_init(&bytes, 4096);
    assert_int_equal(blasd_record_encode(&record, &bytes, &err), 0);
    struct blasd_completion end = {.id = id, .record = bytes.data, .record_len = bytes.len};
    assert_int_equal(blasd_worker_queue_finish(worker, &end, 1, &lost, &err), 0);
    assert_true(!lost && end.accepted);
    blasd_buf_release(&bytes);
}

/* A job that waited for another, and refers to a tensor as well. */
static void once_it_may_run(void **state) {
    struct pair p;
    char first[BLASD_ID_LEN + 1], id[BLASD_ID_LEN + 1], options[160];
    (void)state;
    pair_open(&p, "then");
    submit_on(&p, first, "8", NULL);
    assert_int_equal(take(&p, p.two), 1);
    expect_none(&p, p.one);
    id_make(id, BLASD_ID_ASYNC, 0);
    snprintf(options, sizeof options, "t=%s.in w=%s:a", p.tensor, first);
    assert_int_equal(submit_as(&p.bed, id, "8", "10", options, ""), 0);
    assert_int_equal(pending(&p.bed), 2);
    end_well(p.two, first);
    expect_none(&p, p.one);
    expect_taken(&p, p.two, id);
    drop(fcall(&p.bed, "cancel", "1", first, NULL));
    pair_close(&p);
}

/* A batch entry is left as a whole, and its jobs each for itself once it is opened. */
static void batch_entries(void **state) {
    struct pair p;
    struct entry entry;
    char options[64], note[96];
    (void)state;
    pair_open(&p, "entry");
    batch_entry_make(&entry, BLASD_ID_ASYNC, 3);
    snprintf(options, sizeof options, "t=%s.in", p.tensor);
    snprintf(note, sizeof note, "\t\tmatmul\t%s\t%s 0 0 0", tenant, work);
    assert_string_equal(submit_batch_entry_as(&p.bed, &entry, "8", 10, options, note), "0");
    expect_none(&p, p.one);
    drop(fcall(&p.bed, "cancel", "0", entry.id[1], NULL));
    drop(fcall(&p.bed, "cancel", "1", entry.id[1], NULL));
    expect_none(&p, p.one);
    assert_int_equal(take(&p, p.two), 2);
    assert_string_equal(p.claims[0].id, entry.id[0]);
    assert_string_equal(p.claims[1].id, entry.id[2]);
    assert_string_equal(finish_claims(p.two, p.claims, 2), "11");
    pair_close(&p);
}

/* Of two tenants each has its share, of which what is left behind is no part. */
static void shares(void **state) {
    struct pair p;
    char id[4][BLASD_ID_LEN + 1];
    (void)state;
    tenant = "a";
    work = "100"; /* a claim is small where tenants share */
    pair_open(&p, "shares");
    for (int i = 0; i < 2; i++) submit_on(&p, id[i], "8", p.tensor);
    tenant = "b";
    for (int i = 2; i < 4; i++) submit_on(&p, id[i], "8", NULL);
    assert_int_equal(take(&p, p.one), 2);
    assert_string_equal(p.claims[0].id, id[2]);
    for (int i = 2; i < 4; i++) assert_int_equal(finish(p.one, id[i], "r", 0), 1);
    tenant = "a";
    assert_int_equal(counted(&p.bed, "8"), 2);
    assert_int_equal(take(&p, p.two), 2);
    for (int i = 0; i < 2; i++) assert_int_equal(finish(p.two, id[i], "r", 0), 1);
    pair_close(&p);
    tenant = "anonymous";
    work = "50000000";
}

/* Whose turn it is may have nothing but what is left behind: then it is the next one's, so that
 * nobody idles beside jobs that it may have. */
static void shares_of_who_is_next(void **state) {
    struct pair p;
    char left[BLASD_ID_LEN + 1], id[3][BLASD_ID_LEN + 1];
    (void)state;
    tenant = "a";
    work = "100000"; /* one is as much as a claim has of one tenant */
    pair_open(&p, "next");
    submit_on(&p, left, "8", p.tensor);
    tenant = "b";
    for (int i = 0; i < 3; i++) submit_on(&p, id[i], "8", NULL);
    for (int i = 0; i < 3; i++) expect_taken(&p, p.one, id[i]); /* though a was given nothing yet */
    expect_none(&p, p.one);
    tenant = "a";
    expect_taken(&p, p.two, left);
    pair_close(&p);
    tenant = "anonymous";
    work = "50000000";
}

/* A worker of an earlier version tells with less: its tensors lie where it says, and nobody leaves
 * jobs to what is no worker. */
static void a_worker_of_before_tells(void **state) {
    struct pair p;
    char other[BLASD_ID_LEN + 1], id[BLASD_ID_LEN + 1];
    redisReply *reply;
    (void)state;
    pair_open(&p, "before");
    tensor_put(&p.bed, other);
    drop(fcall(&p.bed, "tensor_copies", "cuda:0", p.tensor, other, NULL));
    reply = fcall(&p.bed, "tensor_get", tenant, "0", p.tensor, other, NULL);
    assert_non_null(strstr(reply->element[0]->str, "\tcuda:"));
    assert_non_null(strstr(reply->element[1]->str, "\tcuda:0"));
    drop(reply);
    submit_on(&p, id, "8", other);
    expect_taken(&p, p.one, id);
    pair_close(&p);
}

/* Where there is one card nobody looks; nor does a CPU leave anything to it. */
static void one_card_alone(void **state) {
    struct pair p;
    char id[BLASD_ID_LEN + 1];
    redisReply *reply;
    (void)state;
    memset(&p, 0, sizeof p);
    bed_open(&p.bed, &server, "alone");
    p.one = worker_new(&p.bed, "one", BLASD_DEVICE_CPU);
    p.two = worker_new(&p.bed, "two", BLASD_DEVICE_CUDA);
    tensor_put(&p.bed, p.tensor);
    tell(p.two, "cuda:0", p.tensor);
    reply = redisCommand(p.bed.raw, "EXISTS %s:apart", p.bed.tag);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    submit_on(&p, id, "2", p.tensor);
    expect_taken(&p, p.one, id);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_has_it_is_given_it),
                                       cmocka_unit_test(each_device_tells_for_itself),
                                       cmocka_unit_test(not_to_one_that_is_behind),
                                       cmocka_unit_test(many_are_for_both),
                                       cmocka_unit_test(others_pass_it),
                                       cmocka_unit_test(nor_when_priorities_age),
                                       cmocka_unit_test(not_to_a_dead_one),
                                       cmocka_unit_test(not_for_longer_than_moving_takes),
                                       cmocka_unit_test(nor_where_others_ask_seldom),
                                       cmocka_unit_test(a_wait_behind_the_turn_ends),
                                       cmocka_unit_test(once_it_may_run),
                                       cmocka_unit_test(batch_entries),
                                       cmocka_unit_test(shares),
                                       cmocka_unit_test(shares_of_who_is_next),
                                       cmocka_unit_test(a_worker_of_before_tells),
                                       cmocka_unit_test(one_card_alone)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
