/* The lists that jobs wait in: what ends there leaves a tombstone, and no more of them stay than
 * jobs wait; what a worker gives back stands first again. */
#include "redis_fixture.h"

static long long ask(struct bed *bed, const char *command, const char *key) {
    redisReply *reply = redisCommand(bed->raw, "%s %s:%s", command, bed->tag, key);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    long long n = reply->integer;
    drop(reply);
    return n;
}

static void cancel(struct bed *bed, const char *id) {
    drop(fcall(bed, "cancel", "1", id, NULL));
}

/* Cancelled in the list and in a worker's hands: only the first leaves a tombstone, and a claim
 * takes the jobs behind it as if it were not there. */
static void tombstones_are_passed_over(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    char id[6][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "tombstones");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 6; i++) submit_new(&bed, id[i], "2");
    assert_int_equal(claim(worker, 2, PLENTY, claims), 2);
    cancel(&bed, id[0]); /* held */
    cancel(&bed, id[2]);
    cancel(&bed, id[4]);
    assert_int_equal(ask(&bed, "LLEN", "wait:any:normal:anonymous"), 4);
    assert_int_equal(ask(&bed, "HLEN", "pending") / 2, 3);
    assert_int_equal(counted(&bed, "2"), 2);
    assert_int_equal(finish(worker, id[0], "r", 0), 0);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 2);
    assert_string_equal(claims[0].id, id[3]);
    assert_string_equal(claims[1].id, id[5]);
    assert_int_equal(ask(&bed, "LLEN", "wait:any:normal:anonymous"), 0);
    assert_int_equal(counted(&bed, "2"), 0);
    assert_int_equal(finish(worker, id[1], "r", 0), 1);
    assert_int_equal(finish(worker, id[3], "r", 0), 1);
    assert_int_equal(finish(worker, id[5], "r", 0), 1);
    assert_int_equal(ask(&bed, "EXISTS", "pending"), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* The same for so many in one call that they are told apart in another way. */
static void many_tombstones_at_once(void **state) {
    struct bed bed;
    struct blasd_claim claims[64];
    char id[40][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "many");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 40; i++) submit_new(&bed, id[i], "2");
    assert_int_equal(claim(worker, 10, PLENTY, claims), 10);
    /* five in the worker's hands and fifteen in the list */
    drop(fcall(&bed, "cancel", "1", id[5], id[6], id[7], id[8], id[9], id[10], id[11], id[12],
               id[13], id[14], id[15], id[16], id[17], id[18], id[19], id[20], id[21], id[22],
               id[23], id[24], NULL));
    assert_int_equal(counted(&bed, "2"), 15);
    assert_int_equal(claim(worker, 64, PLENTY, claims), 15);
    for (int i = 0; i < 15; i++) assert_string_equal(claims[i].id, id[25 + i]);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Whoever submits and cancels for ever without a worker fills nothing. */
static void tombstones_do_not_pile_up(void **state) {
    enum { KEPT = 50, ROUNDS = 5000 };
    struct bed bed;
    struct blasd_claim claims[KEPT + 1];
    char id[BLASD_ID_LEN + 1], kept[KEPT][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "pile");
    long long most = 0;
    for (int i = 0; i < ROUNDS; i++) {
        submit_new(&bed, id, "2");
        if (i % (ROUNDS / KEPT) == 0)
            memcpy(kept[i / (ROUNDS / KEPT)], id, sizeof id);
        else
            cancel(&bed, id);
        long long now = ask(&bed, "LLEN", "wait:any:normal:anonymous");
        if (now > most) most = now;
    }
    if (most > 1100) fail_msg("%lld ids in the list at most", most);
    assert_int_equal(counted(&bed, "2"), KEPT);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, KEPT + 1, PLENTY, claims), KEPT);
    for (int i = 0; i < KEPT; i++) assert_string_equal(claims[i].id, kept[i]);
    assert_int_equal(counted(&bed, "2"), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* In the order they were submitted in, before what came later, within their own priority. */
static void what_comes_back_stands_first(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    char id[5][BLASD_ID_LEN + 1], high[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "back");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 4; i++) submit_new(&bed, id[i], "2");
    assert_int_equal(claim(worker, 3, PLENTY, claims), 3);
    submit_new(&bed, id[4], "2");
    submit_new(&bed, high, "1");
    begin(worker, claims, 1); /* this one has cost an attempt */
    struct blasd_worker_queue *other = worker_new(&bed, "v", BLASD_DEVICE_CPU);
    expire_worker(&bed, "w");
    assert_int_equal(claim(other, 8, 250, claims), 2); /* of 100 bytes each */
    assert_string_equal(claims[0].id, high);
    assert_string_equal(claims[1].id, id[0]);
    assert_int_equal(claims[1].attempts, 1);
    assert_int_equal(claim(other, 8, PLENTY, claims), 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(claims[i].id, id[i + 1]);
        assert_int_equal(claims[i].attempts, 0);
    }
    blasd_worker_queue_free(worker);
    blasd_worker_queue_free(other);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tombstones_are_passed_over),
        cmocka_unit_test(many_tombstones_at_once),
        cmocka_unit_test(tombstones_do_not_pile_up),
        cmocka_unit_test(what_comes_back_stands_first),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
