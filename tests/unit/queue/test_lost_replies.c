/* Each message between a worker and Redis lost in turn, before Redis has done what it asks for and
 * after: every job is given once, ends once, is told once, and no attempt is counted for it. */
#include "batch_entry_fixture.h"
#include "lossy.h"

enum { MOST = 64, ROUNDS = 10 };

struct told {
    int record_frames;
};

static void count_told(void *arg, const char *id, const char *record, size_t len) {
    (void)id;
    (void)record;
    (void)len;
    ((struct told *)arg)->record_frames++;
}

/* A worker with the number of each job's claims and accepted ends. */
struct run {
    struct bed *bed;
    struct blasd_worker_queue *worker, *hand;
    char ids[MOST][BLASD_ID_LEN + 1];
    int given[MOST], ended[MOST], count;
    bool leads; /* the wait for jobs goes with each turn that ends the last of them */
    int led;    /* turns with which it went, and which brought none */
    struct blasd_claim claims[MOST];
};

static int index_of(const struct run *run, const char *id) {
    for (int i = 0; i < run->count; i++)
        if (strcmp(run->ids[i], id) == 0) return i;
    fail_msg("%s was never submitted", id);
    return -1;
}

static void add_job(struct run *run) {
    char note[128];
    char *id = run->ids[run->count++];
    id_make(id, BLASD_ID_SYNC, 0);
    snprintf(note, sizeof note, "\t%s:ear\tmatmul\tanonymous", run->bed->tag);
    drop(fcall(run->bed, "submit", NEXT_SEQ, id, id, "2", "100", "", note, NULL));
}

static void add_batch_entry(struct run *run, int jobs) {
    struct entry entry;
    char channel[64];
    snprintf(channel, sizeof channel, "%s:ear", run->bed->tag);
    submit_batch_entry(run->bed, &entry, BLASD_ID_SYNC, jobs, channel);
    for (int i = 0; i < jobs; i++) memcpy(run->ids[run->count++], entry.id[i], BLASD_ID_LEN + 1);
}

/* As the worker does: whatever says that Redis is away is tried again. */
#define AGAIN_UNTIL(rc, call)                                                                      \
    do {                                                                                           \
        (rc) = (call);                                                                             \
    } while ((rc) == -(int)BLASD_E_queue_unavailable)

static int claim_some(struct run *run) {
    struct blasd_err err;
    int rc, count;
    bool lost;
    AGAIN_UNTIL(rc,
                blasd_worker_queue_claim(run->worker, 8, PLENTY, run->claims, &count, &lost, &err));
    if (rc < 0) fail_msg("%s", err.detail);
    assert_false(lost);
    for (int i = 0; i < count; i++) {
        run->given[index_of(run, run->claims[i].id)]++;
        assert_int_equal(run->claims[i].attempts, 0);
    }
    return count;
}

/* Ends jobs from one claim, in one call, through a connection of the worker's. */
static void end_some(struct run *run, struct blasd_worker_queue *queue, int from, int count) {
    struct blasd_completion completions[MOST];
    const char *ids[MOST];
    struct blasd_err err;
    int rc;
    bool lost;
    for (int i = 0; i < count; i++) {
        const char *id = run->claims[from + i].id;
        ids[i] = id;
        completions[i] =
            (struct blasd_completion){.id = id, .record = id, .record_len = BLASD_ID_LEN};
    }
    if (count == 0) return;
    (void)blasd_worker_queue_begin(queue, ids, count, &err);
    if (run->leads) { /* as if jobs had come fast */
        queue->turns.busy = true;
        queue->turns.answered_ns = blasd_clock_ns();
    }
    AGAIN_UNTIL(rc, blasd_worker_queue_finish(queue, completions, count, &lost, &err));
    if (rc < 0) fail_msg("%s", err.detail);
    assert_false(lost);
    run->led += queue->turns.led;
    for (int i = 0; i < count; i++) run->ended[index_of(run, ids[i])] += completions[i].accepted;
}

/* Jobs that are waited for, that wait, batch entries; ended at once, one by one, and by a thread
 * beside.
 */
static void work(struct run *run) {
    struct blasd_err err;
    int done = 0;
    assert_int_equal(claim_some(run), 0); /* idle */
    for (int round = 0; round < 60 && (done < run->count || round < ROUNDS); round++) {
        if (round < ROUNDS) add_job(run); /* given to an idle worker */
        if (round == 2 || round == 6) {
            add_batch_entry(run, 3);
            for (int i = 0; i < 5; i++) add_job(run);
        }
        if (!blasd_worker_queue_is_idle(run->worker)) {
            int count = claim_some(run), half = count / 2;
            if (round % 3 == 2 && half > 0) {
                blasd_worker_queue_let_go(run->worker, half);
                end_some(run, run->hand, 0, half);
                end_some(run, run->worker, half, count - half);
            } else {
                end_some(run, run->worker, 0, count);
            }
            done += count;
        }
        (void)blasd_worker_queue_wait(run->worker, 20, &err);
    }
    assert_int_equal(done, run->count);
}

/* Each end of the last job is also the wait for the next one, which comes, or is there. */
static void work_leading(struct run *run) {
    struct blasd_err err;
    int done = 0;
    assert_int_equal(claim_some(run), 0);
    for (int round = 0; round < 60 && (done < run->count || round < ROUNDS); round++) {
        int count = 0;
        if (round == 0 || (round < ROUNDS && round % 3 != 0)) add_job(run);
        (void)blasd_worker_queue_wait(run->worker, 20, &err);
        if (!blasd_worker_queue_is_idle(run->worker)) count = claim_some(run);
        if (round < ROUNDS && round % 3 == 2) add_job(run);
        end_some(run, run->worker, 0, count);
        done += count;
    }
    assert_int_equal(done, run->count);
    assert_true(run->led > ROUNDS / 3);
}

/* One run with the message lost; returns whether it came to that. */
static bool lose(struct lossy *lossy, int side, int nth, bool leads) {
    struct bed bed;
    struct run run = {.bed = &bed, .leads = leads};
    struct told told = {0};
    char name[32], channel[64];
    snprintf(name, sizeof name, "lost%d-%d", side, nth);
    bed_open(&bed, &server, name);
    snprintf(channel, sizeof channel, "%s:ear", bed.tag);
    redisContext *ear = listen_to(&bed, channel);
    bed.options.url = lossy->url;
    run.worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    run.hand = worker_new(&bed, "hand", BLASD_DEVICE_CPU);
    blasd_worker_queue_join(run.hand, "w", atoll(run.worker->lease.epoch), 1);
    lossy_drop(lossy, side, nth);
    (leads ? work_leading : work)(&run);
    bool dropped = atomic_load(&lossy->dropped) > 0;
    lossy_drop(lossy, side, 0);
    hear(&bed, ear, channel, count_told, &told);
    for (int i = 0; i < run.count; i++) {
        if (run.given[i] != 1 || run.ended[i] != 1)
            fail_msg("message %d of side %d: job %d was given %d times and ended %d times", nth,
                     side, i, run.given[i], run.ended[i]);
        assert_string_equal(record_line(&bed, run.ids[i], 0), run.ids[i]);
    }
    assert_int_equal(told.record_frames, run.count);
    expect_empty(&bed);
    assert_int_equal(blasd_worker_queue_release(run.worker, NULL), 0);
    redisFree(ear);
    blasd_worker_queue_free(run.hand);
    blasd_worker_queue_free(run.worker);
    bed_close(&bed);
    return dropped;
}

static void each_message_of(int side, bool leads) {
    struct lossy *lossy = lossy_new(server.dir, server.socket);
    int nth = 1;
    while (lose(lossy, side, nth, leads)) nth++;
    print_message("%d messages lost in turn\n", nth - 1);
    assert_true(nth > 10); /* else nothing went that way */
    lossy_free(lossy);
}

static void test_calls_lost_before_they_are_done(void **state) {
    (void)state;
    each_message_of(0, false);
}

static void test_replies_lost(void **state) {
    (void)state;
    each_message_of(1, false);
}

static void test_calls_that_lead_lost_before_they_are_done(void **state) {
    (void)state;
    each_message_of(0, true);
}

static void test_replies_of_waits_that_were_sent_ahead_lost(void **state) {
    (void)state;
    each_message_of(1, true);
}

/* The wait in the same write with a turn brings the job that comes; where the turn brings one, the
 * wait is over, too, and takes nothing that another one should get. */
static void test_wait_in_the_same_write(void **state) {
    struct bed bed;
    struct run run = {.bed = &bed, .leads = true};
    struct blasd_err err;
    (void)state;
    bed_open(&bed, &server, "leads");
    run.worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim_some(&run), 0);
    add_job(&run); /* the first wait is sent by itself */
    assert_int_equal(blasd_worker_queue_wait(run.worker, 3000, &err), 0);
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(claim_some(&run), 1);
        end_some(&run, run.worker, 0, 1);
        assert_true(run.worker->turns.led);
        add_job(&run);
        assert_int_equal(blasd_worker_queue_wait(run.worker, 3000, &err), 0);
        assert_false(run.worker->turns.unsure); /* it brought the job: no turn is needed */
        assert_int_equal(claim_some(&run), 1);
        add_job(&run);
        end_some(&run, run.worker, 0, 1);
        assert_false(run.worker->turns.led || blasd_worker_queue_is_idle(run.worker));
        assert_false(run.worker->caller.ahead);
    }
    assert_int_equal(run.led, ROUNDS);
    assert_int_equal(claim_some(&run), 1);
    end_some(&run, run.worker, 0, 1);
    for (int i = 0; i < run.count; i++) assert_true(run.given[i] == 1 && run.ended[i] == 1);
    assert_int_equal(blasd_worker_queue_release(run.worker, NULL), 0);
    expect_empty(&bed);
    blasd_worker_queue_free(run.worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_lost_before_they_are_done),
        cmocka_unit_test(test_replies_lost),
        cmocka_unit_test(test_calls_that_lead_lost_before_they_are_done),
        cmocka_unit_test(test_replies_of_waits_that_were_sent_ahead_lost),
        cmocka_unit_test(test_wait_in_the_same_write),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
