/* Waking: a job that comes while workers wait is taken at once, every time. A wake-up that is lost
 * shows as a round that lasts while Redis answers whoever asks. Next: test_queue_handover.c. */
#include "redis_fixture.h"

#include "queue/worker_side.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WORKERS = 2, WAIT_MS = 3000, ROUNDS = 1500, BEAT_MS = 10, BEATS = 150 };

struct hand {
    struct bed *bed;
    pthread_t thread;
    char name[8];
    enum blasd_device_class device;
    bool hasty; /* claims before each wait */
    _Atomic bool *stop;
    _Atomic int *done;
    char trouble[128];
};

static void *work(void *arg) {
    struct hand *hand = arg;
    struct blasd_worker_queue *queue = NULL;
    struct blasd_err err = {0};
    struct blasd_claim claims[16];
    bool lost = false;
    int64_t epoch;
    int count, rc = blasd_worker_queue_open(&hand->bed->options, &queue, &err);
    if (rc == 0)
        rc = blasd_worker_queue_register(queue, hand->name, hand->device, INFO_CPU, &epoch, &err);
    int64_t renewed = blasd_clock_ns();
    while (rc == 0 && !lost && !atomic_load(hand->stop)) {
        count = 0;
        if (hand->hasty || !blasd_worker_queue_is_idle(queue))
            rc = blasd_worker_queue_claim(queue, 16, PLENTY, claims, &count, &lost, &err);
        if (rc == 0 && count == 0) rc = blasd_worker_queue_wait(queue, WAIT_MS, &err);
        for (int i = 0; rc == 0 && i < count; i++) {
            struct blasd_completion completion = {
                .id = claims[i].id, .record = "r", .record_len = 1};
            rc = blasd_worker_queue_finish(queue, &completion, 1, &lost, &err);
            if (rc == 0 && completion.accepted) atomic_fetch_add(hand->done, 1);
        }
        if (blasd_clock_ns() - renewed > 1000000000) {
            renewed = blasd_clock_ns();
            if (rc == 0) rc = blasd_worker_queue_renew(queue, INFO_CPU, &lost, &err);
        }
    }
    if (rc < 0 || lost)
        snprintf(hand->trouble, sizeof hand->trouble, "lost %d: %.100s", lost, err.detail);
    blasd_worker_queue_release(queue, &err);
    blasd_worker_queue_free(queue);
    return NULL;
}

static void hands_start(struct hand *hands, struct bed *bed, _Atomic bool *stop, _Atomic int *done,
                        bool mixed) {
    for (int w = 0; w < WORKERS; w++) {
        hands[w] = (struct hand){.bed = bed, .stop = stop, .done = done};
        hands[w].device = mixed && w ? BLASD_DEVICE_CUDA : BLASD_DEVICE_CPU;
        hands[w].hasty = w == 0;
        snprintf(hands[w].name, sizeof hands[w].name, "w%d", w);
        assert_int_equal(pthread_create(&hands[w].thread, NULL, work, &hands[w]), 0);
    }
}

static void hands_stop(struct hand *hands, _Atomic bool *stop) {
    atomic_store(stop, true);
    for (int w = 0; w < WORKERS; w++) {
        pthread_join(hands[w].thread, NULL);
        assert_string_equal(hands[w].trouble, "");
    }
}

/* Whether as many are done before Redis has answered for a while: time in which the machine stands
 * still, or Redis waits for the disk, does not count. */
static bool done_soon(struct bed *bed, _Atomic int *done, int sent) {
    int64_t next = blasd_clock_ns();
    for (int beats = 0; atomic_load(done) < sent;) {
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        if (blasd_clock_ns() < next) continue;
        drop(redisCommand(bed->raw, "PING"));
        next = blasd_clock_ns() + BEAT_MS * INT64_C(1000000);
        if (++beats > BEATS) return false;
    }
    return true;
}

/* Rounds of a few jobs, with pauses of every length around that of a claim; the first one that did
 * not end, or -1. */
static int rounds(struct bed *bed, _Atomic int *done, const char *const *si, int si_count) {
    unsigned seed = 12345;
    int sent = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char id[BLASD_ID_LEN + 1];
        seed = seed * 1103515245u + 12345u;
        int jobs = 1 + (int)(seed >> 16) % 3;
        for (int i = 0; i < jobs; i++) submit_new(bed, id, si[(round + i) % si_count]);
        sent += jobs;
        if (!done_soon(bed, done, sent)) return round;
        nanosleep(&(struct timespec){.tv_nsec = (long)((seed >> 8) % 300000)}, NULL);
    }
    return -1;
}

static void test_no_lost_wake(void **state) {
    /* their threads go on to the program's end where this fails */
    static struct bed bed;
    static struct hand hands[WORKERS];
    static _Atomic bool stop;
    static _Atomic int done;
    static const char *const si[] = {"2", "1", "3"};
    (void)state;
    bed_open(&bed, &server, "wake");
    hands_start(hands, &bed, &stop, &done, false);
    int slept = rounds(&bed, &done, si, 3);
    hands_stop(hands, &stop);
    assert_int_equal(slept, -1); /* else a worker slept beside a job in that round */
    bed_close(&bed);
}

static void test_no_lost_wake_by_class(void **state) {
    /* their threads go on to the program's end where this fails */
    static struct bed bed;
    static struct hand hands[WORKERS];
    static _Atomic bool stop;
    static _Atomic int done;
    static const char *const si[] = {"8", "5", "2"};
    (void)state;
    bed_open(&bed, &server, "wake2");
    hands_start(hands, &bed, &stop, &done, true);
    sleep_ms(100);
    int slept = rounds(&bed, &done, si, 3);
    hands_stop(hands, &stop);
    assert_int_equal(slept, -1); /* else a worker slept beside a job in that round */
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_lost_wake),
        cmocka_unit_test(test_no_lost_wake_by_class),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
