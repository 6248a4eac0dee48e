/* The slow pool, against a queue in memory and a kernel that can wait for other jobs to end. */
#include "core/kernel.h"

extern const struct blasd_backend lane_backend;
#define FAKE_BACKEND lane_backend
#include "fake_jobs.h"

#include <stdatomic.h>

#define HEAVY_N 520 /* 2.8e8 operations: heavy as long as nothing is known of the device */
#define LONG_N 2200 /* 2.1e10: long */
#define TIMEOUT_MS 120000

static struct blasd_limits limits;
static struct blasd_err err;

/* What the kernel does, and what it saw. */
static struct {
    int heavy_waits_for;       /* jobs that must have ended before a heavy one goes on; 0: none */
    int quarantined_waits_for; /* or a quarantined heavy one */
    atomic_bool heavy_spins;   /* until it is told to stop */
    atomic_bool heavy_adds;    /* a small job, once it runs */
    bool heavy_fails;          /* with a device error */
    bool heavy_moves; /* the main thread has a new connection: until it has told what it holds */
    atomic_bool
        heavy_is_lost;   /* a new master lacks the claims of all: until they are given once more */
    bool heavy_meets;    /* another one, before it goes on */
    bool heavy_outlasts; /* the main thread's work: it goes on until that waits for jobs */
    atomic_int waits;    /* the main thread's, for jobs */
    atomic_int running, most_running, heavy_began, heavy_stopped, overtaken;
    atomic_int heavy_running, beside_quarantined, long_running, two_long;
} kernel;

static int ended_jobs(void) {
    int count = 0;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < fake.count; i++) count += fake.jobs[i].ended;
    pthread_mutex_unlock(&fake.lock);
    return count;
}

static bool told(void) {
    pthread_mutex_lock(&fake.lock);
    bool yes = fake.told > 0;
    pthread_mutex_unlock(&fake.lock);
    return yes;
}

/* Whether all jobs are claimed; first makes that none is. */
static bool claimed_anew(bool begin) {
    bool all = true;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < fake.count; i++) {
        if (begin) fake.jobs[i].claimed = false;
        all = all && fake.jobs[i].claimed;
    }
    pthread_mutex_unlock(&fake.lock);
    return all;
}

static const struct fake_spec small = {.n = 2, .value = 3, .priority = BLASD_PRIORITY_NORMAL};
static const struct fake_spec heavy = {
    .n = HEAVY_N, .value = 5, .priority = BLASD_PRIORITY_NORMAL, .in_blob = true};
static const struct fake_spec longer = {
    .n = LONG_N, .value = 6, .priority = BLASD_PRIORITY_NORMAL, .in_blob = true};

static bool run_heavy(struct blasd_watch *watch, int waits_for) {
    if (kernel.heavy_adds) {
        kernel.heavy_adds = false;
        pthread_mutex_lock(&fake.lock);
        fake_add(small);
        pthread_mutex_unlock(&fake.lock);
    }
    if (kernel.heavy_moves) {
        pthread_mutex_lock(&fake.lock);
        fake.moved = fake.told == 0;
        pthread_mutex_unlock(&fake.lock);
    }
    if (kernel.heavy_is_lost) claimed_anew(true);
    for (int ms = 0; ms < TIMEOUT_MS; ms++) {
        /* a test machine can be so slow that a job that only waits is told to give way */
        if (!watch->go_on(watch, 0.5) && kernel.heavy_spins) {
            kernel.heavy_stopped++;
            kernel.heavy_spins = false;
            return false;
        }
        if (kernel.heavy_is_lost && claimed_anew(false)) kernel.heavy_is_lost = false;
        if (!kernel.heavy_spins && !kernel.heavy_is_lost && (!kernel.heavy_moves || told()) &&
            ended_jobs() >= waits_for && (!kernel.heavy_meets || kernel.most_running > 1) &&
            (!kernel.heavy_outlasts || kernel.waits > 0))
            break;
        usleep(1000);
    }
    if (ended_jobs() >= waits_for) kernel.overtaken++;
    return true;
}

static int lane_run(struct blasd_device *device, struct blasd_task *tasks, int count,
                    struct blasd_watch *watch, struct blasd_err *ret) {
    int64_t n = tasks[0].job->inputs[0].tensor.shape[0];
    bool is_long = n == LONG_N, is_heavy = n == HEAVY_N || is_long, going = true;
    int now;
    (void)device;
    if (is_heavy) kernel.heavy_running++; /* before another sees that it is met */
    now = ++kernel.running;
    if (now > kernel.most_running) kernel.most_running = now;
    if (is_heavy) {
        kernel.heavy_began++;
        if (kernel.heavy_fails) {
            kernel.running--;
            kernel.heavy_running--;
            return blasd_fail(ret, BLASD_E_device_error, "", "it fell off the bus");
        }
        if (is_long && ++kernel.long_running > 1) kernel.two_long++;
        going = run_heavy(watch, fake_element(&tasks[0].inputs[0], 0, 0) == 9
                                     ? kernel.quarantined_waits_for
                                     : kernel.heavy_waits_for);
        kernel.long_running -= is_long;
        kernel.heavy_running--;
    }
    for (int i = 0; going && i < count && !is_long; i++) { /* it would take seconds */
        bool quarantined = fake_element(&tasks[i].inputs[0], 0, 0) == 9;
        fake_multiply(&tasks[i]);
        if (quarantined && kernel.running > 1) kernel.beside_quarantined++;
    }
    kernel.running--;
    return going ? 0 : blasd_fail(ret, BLASD_E_cancelled, "", "stopped");
}

static const struct blasd_kernel lane_kernel = {.op = "matmul", .run = lane_run};
static const struct blasd_kernel *const lane_kernels[] = {&lane_kernel, NULL};
const struct blasd_backend lane_backend = {.abi = BLASD_BACKEND_ABI,
                                           .name = "cpu",
                                           .device_class = BLASD_DEVICE_CPU,
                                           .device_count = fake_device_count,
                                           .device_open = fake_device_open,
                                           .device_close = fake_device_close,
                                           .device_info = fake_device_info,
                                           .kernels = lane_kernels,
                                           .side_by_side = true};

static int setup(void **state) {
    blasd_limits_init(&limits);
    err = (struct blasd_err){0};
    memset(&kernel, 0, sizeof kernel);
    return fake_setup(state);
}

static void test_small_jobs_overtake_a_heavy_one(void **state) {
    (void)state;
    fake_add(heavy);
    for (int i = 0; i < 5; i++) fake_add(small);
    kernel.heavy_waits_for = 6; /* the five, and the one it adds */
    kernel.heavy_adds = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(kernel.overtaken, 1);
    assert_int_equal(kernel.most_running, 2);
    fake_check(&fake.jobs[0], heavy);
    for (int i = 1; i < 7; i++) fake_check(&fake.jobs[i], small);
    assert_int_equal(fake.jobs[0].begun, 1);
    assert_false(fake_blob_is_there(&fake.jobs[0], "in"));
    assert_int_equal(fake.registers, 1);
    assert_int_equal(fake.releases, 1);
}

static void test_heavy_jobs_run_one_at_a_time(void **state) {
    struct fake_spec other = heavy;
    (void)state;
    other.dtype = BLASD_float32; /* not of the same call */
    other.priority = BLASD_PRIORITY_HIGH;
    fake_add(heavy);
    fake_add(other);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(kernel.heavy_began, 2);
    assert_int_equal(kernel.most_running, 1);
    fake_check(&fake.jobs[0], heavy);
    fake_check(&fake.jobs[1], other);
}

static void test_brief_ones_run_two_at_a_time(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) fake_add(heavy); /* of one call */
    kernel.heavy_meets = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(kernel.heavy_began, 3);
    assert_int_equal(kernel.most_running, 2);
    for (int i = 0; i < 3; i++) {
        fake_check(&fake.jobs[i], heavy);
        assert_int_equal(fake.jobs[i].result.execution.batch_size, 1);
        assert_int_equal(fake.jobs[i].begun, 1);
        assert_false(fake.jobs[i].held); /* the main thread has been told */
    }
}

static void test_long_ones_run_one_at_a_time_beside_others(void **state) {
    struct fake_job *of[2];
    char name[BLASD_BLOB_NAME];
    (void)state;
    for (int i = 0; i < 2; i++) of[i] = fake_add(longer);
    fake_add(heavy);
    for (int i = 0; i < 5; i++) fake_add(small);
    kernel.heavy_waits_for = 5;
    kernel.heavy_meets = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(kernel.heavy_began, 3);
    assert_int_equal(kernel.two_long, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(of[i]->result.state, BLASD_SUCCEEDED);
        snprintf(name, sizeof name, "%s.out", of[i]->id);
        blasd_store_remove(fake.store, name);
    }
    fake_check(&fake.jobs[2], heavy);
    for (int i = 3; i < 8; i++) fake_check(&fake.jobs[i], small);
}

static void test_a_heavy_job_is_stopped(void **state) {
    (void)state;
    fake_add(heavy);
    fake_add(small);
    kernel.heavy_spins = fake.unwanted = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(kernel.heavy_stopped, 1);
    assert_int_equal(fake.jobs[0].result.state, BLASD_FAILED);
    assert_int_equal(fake.jobs[0].result.error.code, BLASD_E_cancelled);
    assert_false(fake_blob_is_there(&fake.jobs[0], "out"));
    fake_check(&fake.jobs[1], small);
}

static void test_a_lost_lease_stops_both_threads(void **state) {
    (void)state;
    fake_add(heavy);
    fake.finish_lost = 1; /* that of the small one, which comes once the heavy one runs */
    kernel.heavy_adds = kernel.heavy_spins = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.registers, 2);
    assert_int_equal(kernel.heavy_stopped, 1);
    fake_check(&fake.jobs[0], heavy);
    fake_check(&fake.jobs[1], small);
    assert_int_equal(fake.jobs[0].result.execution.attempts, 2);
    assert_int_equal(fake.jobs[1].result.execution.attempts, 2);
}

/* Over a new connection: what runs and what waits in the pool, or Redis would give it to others. */
static void test_what_it_holds_is_told(void **state) {
    struct fake_job *jobs[3];
    (void)state;
    for (int i = 0; i < 3; i++) jobs[i] = fake_add(heavy);
    kernel.heavy_moves = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.told, 1);
    for (int i = 0; i < 3; i++) {
        fake_check(jobs[i], heavy);
        assert_int_equal(jobs[i]->begun, 1);
    }
}

/* What the worker has is given to it once more, by a master that was a replica, and did not know of
 * that: it is the same job, and runs once. */
static void test_what_it_has_is_not_taken_twice(void **state) {
    struct fake_job *jobs[3];
    (void)state;
    for (int i = 0; i < 3; i++) jobs[i] = fake_add(heavy);
    kernel.heavy_is_lost = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(kernel.heavy_began, 3);
    for (int i = 0; i < 3; i++) {
        fake_check(jobs[i], heavy);
        assert_int_equal(jobs[i]->begun, 1);
    }
}

static void test_quarantined_runs_when_nothing_else_does(void **state) {
    struct fake_spec quarantined = small, large = heavy;
    (void)state;
    quarantined.value = large.value = 9;
    quarantined.attempts = large.attempts = 1;
    fake_add(heavy);
    fake_add(quarantined);
    fake_add(large);
    fake_add(small);
    kernel.heavy_waits_for = 1;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(kernel.beside_quarantined, 0);
    fake_check(&fake.jobs[0], heavy);
    fake_check(&fake.jobs[1], quarantined);
    fake_check(&fake.jobs[2], large);
    fake_check(&fake.jobs[3], small);
}

/* A wait for jobs that nothing ends but the end of all that is there, as if no more came. */
static void wait_for_all(void) {
    if (kernel.waits++ > 0) return;
    for (int ms = 0; ms < TIMEOUT_MS / 12 && ended_jobs() < fake.count; ms++) usleep(1000);
    kernel.overtaken = ended_jobs();
}

static void test_quarantined_does_not_wait_for_the_main_thread(void **state) {
    struct fake_spec quarantined = small;
    (void)state;
    quarantined.value = 9;
    quarantined.attempts = 1;
    fake_add(heavy);
    fake_add(quarantined);
    kernel.heavy_outlasts = true;
    fake.waiting = wait_for_all;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(kernel.overtaken, 2); /* both, within the main thread's first wait */
    assert_int_equal(kernel.beside_quarantined, 0);
    fake_check(&fake.jobs[0], heavy);
    fake_check(&fake.jobs[1], quarantined);
}

/* The second brief one waits for the quarantined one to begin, and ends before it. */
static void test_quarantined_delays_others_for_a_second(void **state) {
    struct fake_spec large = heavy;
    (void)state;
    large.value = 9;
    large.attempts = 1;
    for (int i = 0; i < 2; i++) fake_add(heavy);
    fake_add(large);
    kernel.quarantined_waits_for = 2;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(kernel.overtaken, 3);
    for (int i = 0; i < 2; i++) fake_check(&fake.jobs[i], heavy);
    fake_check(&fake.jobs[2], large);
}

static void test_a_device_that_fails_ends_the_worker(void **state) {
    char name[BLASD_BLOB_NAME];
    (void)state;
    fake_add(heavy);
    kernel.heavy_fails = true;
    assert_int_equal(fake_work(&limits, &err), -BLASD_E_device_error);
    assert_string_equal(err.detail, "it fell off the bus");
    assert_false(fake.jobs[0].ended);
    assert_int_equal(fake.releases, 1);
    snprintf(name, sizeof name, "%s.in", fake.jobs[0].id);
    blasd_store_remove(fake.store, name);
}

static bool stop_once_it_runs(void *arg) {
    (void)arg;
    return kernel.heavy_began > 0;
}

static void test_what_runs_ends_and_what_waits_goes_back(void **state) {
    struct blasd_worker_options options = {.queue = {.limits = &limits, .store = fake.store},
                                           .backend = &lane_backend,
                                           .name = "tester",
                                           .stopping = stop_once_it_runs,
                                           .ready = fake_ready};
    struct fake_spec other = heavy;
    char name[BLASD_BLOB_NAME];
    (void)state;
    other.dtype = BLASD_float32;
    other.priority = BLASD_PRIORITY_LOW;
    fake_add(heavy);
    fake_add(other);
    assert_int_equal(blasd_worker_run(&options, &err), 0);
    fake_check(&fake.jobs[0], heavy);
    assert_false(fake.jobs[1].ended);
    assert_false(fake.jobs[1].claimed);
    assert_int_equal(fake.jobs[1].begun, 0);
    assert_int_equal(fake.releases, 1);
    snprintf(name, sizeof name, "%s.in", fake.jobs[1].id);
    blasd_store_remove(fake.store, name);
}

/* On a device of two units the slow pool has two threads for brief jobs. */
static int setup_two(void **state) {
    int code = setup(state);
    fake.more_units = 1;
    return code;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fake_teardown)
/* by hand: versions of clang-format differ in how they lay out braces in a macro */
/* clang-format off */
#define TEST_TWO(name) {#name " (two units)", name, setup_two, fake_teardown, NULL}
/* clang-format on */

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_small_jobs_overtake_a_heavy_one),
        TEST(test_heavy_jobs_run_one_at_a_time),
        TEST(test_a_heavy_job_is_stopped),
        TEST(test_a_lost_lease_stops_both_threads),
        TEST(test_what_it_holds_is_told),
        TEST(test_what_it_has_is_not_taken_twice),
        TEST(test_quarantined_runs_when_nothing_else_does),
        TEST(test_quarantined_does_not_wait_for_the_main_thread),
        TEST(test_quarantined_delays_others_for_a_second),
        TEST(test_a_device_that_fails_ends_the_worker),
        TEST(test_what_runs_ends_and_what_waits_goes_back),
        TEST_TWO(test_brief_ones_run_two_at_a_time),
        TEST_TWO(test_long_ones_run_one_at_a_time_beside_others),
        TEST_TWO(test_small_jobs_overtake_a_heavy_one),
        TEST_TWO(test_a_heavy_job_is_stopped),
        TEST_TWO(test_a_lost_lease_stops_both_threads),
        TEST_TWO(test_what_it_holds_is_told),
        TEST_TWO(test_what_it_has_is_not_taken_twice),
        TEST_TWO(test_quarantined_runs_when_nothing_else_does),
        TEST_TWO(test_quarantined_does_not_wait_for_the_main_thread),
        TEST_TWO(test_a_device_that_fails_ends_the_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
