/* The heartbeat threads by themselves: which lease they take for lost. */
#include "fake_backend.h"
#include "worker/heartbeat.h"

#include <stdatomic.h>

static struct blasd_limits limits;
static struct blasd_err err;
static struct blasd_heartbeat *heartbeat;
static bool gives_up; /* the lease that replaces the first one */

/* What was seen when the figures were told, which follow the renewal in the same round. */
static atomic_bool seen, seen_lost;
static atomic_int renewals;

static int setup(void **state) {
    blasd_limits_init(&limits);
    seen = seen_lost = gives_up = false;
    return fake_setup(state);
}

/* The first lease has lapsed, and the worker takes another, before Redis' answer is here. */
static void take_another_lease(void) {
    fake.renewing = NULL;
    fake.epoch = 2;
    blasd_heartbeat_lease(heartbeat, 2);
    if (gives_up) blasd_heartbeat_give_up(heartbeat);
}

static void look(void) {
    seen_lost = blasd_heartbeat_lost(heartbeat);
    seen = true;
}

static bool stopping(void *arg) {
    (void)arg;
    return false;
}

/* Whether the second lease is taken for lost once the first one's late news is there. */
static bool is_second_lost(void) {
    struct blasd_worker_options options = {.queue = {.limits = &limits, .store = fake.store},
                                           .backend = &FAKE_BACKEND,
                                           .name = "w",
                                           .stopping = stopping};
    fake.epoch = 1;
    fake.renewing = take_another_lease;
    fake.telling = look;
    assert_int_equal(blasd_heartbeat_start(&options, &heartbeat, &err), 0);
    blasd_heartbeat_lease(heartbeat, 1);
    while (!seen) usleep(1000);
    blasd_heartbeat_stop(heartbeat);
    return seen_lost;
}

static void test_late_news_of_a_lease_says_nothing_of_the_next(void **state) {
    (void)state;
    assert_false(is_second_lost());
}

static void test_late_news_of_a_lease_does_not_undo_giving_up(void **state) {
    (void)state;
    gives_up = true;
    assert_true(is_second_lost());
}

static void count_renewal(void) {
    renewals++;
}

/* A sweep of a store with many files: it ends once the lease was renewed meanwhile. */
static void sweep_for_long(void) {
    int before = renewals;
    for (int ms = 0; ms < 60000 && renewals < before + 2; ms++) usleep(1000);
    seen_lost = renewals < before + 2;
    seen = true;
}

static void test_a_sweep_does_not_delay_renewals(void **state) {
    struct blasd_worker_options options = {.queue = {.limits = &limits, .store = fake.store},
                                           .backend = &FAKE_BACKEND,
                                           .name = "w",
                                           .stopping = stopping};
    (void)state;
    fake.epoch = 1;
    fake.renewing = count_renewal;
    fake.sweeping = sweep_for_long;
    assert_int_equal(blasd_heartbeat_start(&options, &heartbeat, &err), 0);
    blasd_heartbeat_lease(heartbeat, 1);
    while (!seen) {
        blasd_heartbeat_sign(heartbeat);
        usleep(1000);
    }
    blasd_heartbeat_stop(heartbeat);
    assert_false(seen_lost);
}

/* What GET /devices says of a worker: parts that are to be run again are no jobs that ended. */
static void test_what_ended_is_counted(void **state) {
    struct blasd_worker_options options = {.queue = {.limits = &limits, .store = fake.store},
                                           .backend = &FAKE_BACKEND,
                                           .name = "w",
                                           .stopping = stopping};
    struct blasd_claim claim = {0};
    struct blasd_item item = {.claim = &claim}, *jobs[3] = {&item, &item, &item};
    char *info;
    (void)state;
    assert_int_equal(blasd_heartbeat_start(&options, &heartbeat, &err), 0);
    blasd_heartbeat_begin(heartbeat, BLASD_SLOT_MAIN, jobs, 3);
    blasd_heartbeat_end(heartbeat, BLASD_SLOT_MAIN, 3, 1);
    blasd_heartbeat_begin(heartbeat, BLASD_SLOT_SLOW, jobs, 2);
    blasd_heartbeat_end(heartbeat, BLASD_SLOT_SLOW, 0, 0);
    blasd_heartbeat_begin(heartbeat, BLASD_SLOT_MAIN, jobs, 1);
    blasd_heartbeat_begin(heartbeat, BLASD_SLOT_SLOW, jobs, 2);
    info = blasd_heartbeat_info(heartbeat);
    assert_non_null(info);
    assert_non_null(strstr(info, "\"jobs\":3,"));
    assert_non_null(strstr(info, "\"failed\":1,"));
    assert_non_null(strstr(info, "\"batches\":1,"));
    assert_non_null(strstr(info, "\"running\":3,"));
    free(info);
    blasd_heartbeat_end(heartbeat, BLASD_SLOT_MAIN, 1, 0);
    blasd_heartbeat_end(heartbeat, BLASD_SLOT_SLOW, 2, 0);
    blasd_heartbeat_stop(heartbeat);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fake_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_late_news_of_a_lease_says_nothing_of_the_next),
        TEST(test_late_news_of_a_lease_does_not_undo_giving_up),
        TEST(test_a_sweep_does_not_delay_renewals),
        TEST(test_what_ended_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
