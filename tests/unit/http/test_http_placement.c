/* Choosing the class of devices for a job: by size, by what waits, by who lives, by memory. */
#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "core/graph.h"
#include "http/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000000)
#define GB UINT64_C(1000000000)

/* A CPU that starts at once and does 1 GFLOP/s; a card that takes 100 us to start, then does 1000
 * and moves 10 GB/s. */
#define CPU_COST                                                                                   \
    "{\"copy_gbytes_s\":10,\"curves\":{\"matmul\":{\"float64\":[[1000,1,1],[1e9,1e6,1e6]]}}}"
#define CUDA_COST                                                                                  \
    "{\"copy_gbytes_s\":10,\"curves\":{\"matmul\":{\"float64\":[[1000,100,0.01],[1e9,1000,1000]]}" \
    "}}"
#define NO_COST "{}"

static struct http_placement *choice;
static struct blasd_queue_view view;
static struct blasd_err err;
static const struct blasd_op *matmul;
static int64_t look_ns; /* when learn looks */

static int setup(void **state) {
    (void)state;
    choice = calloc(1, sizeof *choice);
    look_ns = S;
    view = (struct blasd_queue_view){.available = true, .workers = 2, .workers_of = {0, 1, 1}};
    err = (struct blasd_err){0};
    matmul = blasd_op_find("matmul");
    return choice == NULL || matmul == NULL ? -1 : 0;
}

static int teardown(void **state) {
    (void)state;
    free(choice);
    return 0;
}

/* A look at the queue: `cpu` and `cuda` jobs wait; one worker of each class. */
static void learn_ops(const char *cpu_cost, const char *cuda_cost, const char *cuda_ops, int cpu,
                      int cuda, double busy) {
    struct blasd_buf text;
    blasd_buf_init(&text, BLASD_MIB);
    assert_int_equal(
        blasd_buf_printf(
            &text,
            "{\"workers\":{\"c\":{\"class\":\"cpu\",\"ops\":[\"matmul\",\"solve\"],\"memory_"
            "bytes\":"
            "16000000000,\"host_memory_bytes\":16000000000,\"busy_share\":%g,\"jobs_per_s\":%g,"
            "\"cost\":%s},\"g\":{\"class\":\"cuda\",\"ops\":%s,\"memory_bytes\":8000000000,"
            "\"host_memory_bytes\":16000000000,\"cost\":%s}},\"queue\":{\"any\":{},\"cpu\":{"
            "\"high\":"
            "{\"queued\":%d,\"claimed\":0}},\"cuda\":{\"normal\":{\"queued\":0,\"claimed\":%d}}}}",
            busy, busy > 0 ? 1.0 : 0.0, cpu_cost, cuda_ops, cuda_cost, cpu, cuda),
        0);
    http_placement_learn(choice, text.data, text.len, 1, look_ns);
    blasd_buf_release(&text);
}

static void learn(int cpu, int cuda) {
    learn_ops(CPU_COST, CUDA_COST, "[\"matmul\",\"solve\"]", cpu, cuda, 0);
}

static struct blasd_plan plan_of(double flops) {
    struct blasd_plan plan = {.flops = flops, .items = 1};
    plan.input_dtype[0] = BLASD_float64;
    return plan;
}

static enum blasd_device_class pick_at(double flops, int64_t now_ns) {
    struct blasd_plan plan = plan_of(flops);
    return http_placement_pick(choice, &view, matmul, &plan, 0, now_ns);
}

static enum blasd_device_class pick(double flops) {
    return pick_at(flops, S);
}

static void small_to_the_cpu_large_to_the_card(void **state) {
    (void)state;
    learn(0, 0);
    for (int64_t i = 0; i < 1000; i++) { /* far enough apart that none waits */
        assert_int_equal(pick_at(1e3, (i + 1) * 10 * S), BLASD_DEVICE_CPU);
        assert_int_equal(pick_at(1e8, (i + 1) * 10 * S), BLASD_DEVICE_CUDA);
    }
}

/* To ask is not to send. */
static void what_is_only_asked_about(void **state) {
    struct blasd_plan plan = plan_of(1e9);
    struct blasd_cost_guess guess;
    double share_s = 0;
    (void)state;
    learn(0, 0);
    assert_true(http_placement_predict(choice, BLASD_DEVICE_CPU, matmul, &plan, &guess));
    assert_true(guess.alone_s > 0.9 && guess.alone_s < 1.1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(http_placement_best(choice, &view, matmul, &plan, 0, S, &share_s),
                         BLASD_DEVICE_CUDA);
    assert_true(share_s > 0);
    assert_true(choice->of[BLASD_DEVICE_CUDA].work_s == 0);
    assert_int_equal(choice->of[BLASD_DEVICE_CUDA].sent, 0);
    assert_int_equal(http_placement_pick(choice, &view, matmul, &plan, 0, S), BLASD_DEVICE_CUDA);
    assert_true(choice->of[BLASD_DEVICE_CUDA].work_s > 0);
}

static void what_must_be_moved_counts(void **state) {
    struct blasd_plan plan = plan_of(1e6); /* 1 ms here; 130 us there, */
    (void)state;
    learn_ops("{\"copy_gbytes_s\":100,\"curves\":{\"matmul\":{\"float64\":[[1e6,1000,1000]]}}}",
              CUDA_COST, "[\"matmul\"]", 0, 0, 0);
    assert_int_equal(http_placement_pick(choice, &view, matmul, &plan, 0, S), BLASD_DEVICE_CUDA);
    plan.input_bytes = 10000000; /* and 1 ms more for the way there */
    assert_int_equal(http_placement_pick(choice, &view, matmul, &plan, 0, 9 * S), BLASD_DEVICE_CPU);
    plan.made_bytes = 10000000; /* what a rule makes is made where it is used */
    assert_int_equal(http_placement_pick(choice, &view, matmul, &plan, 0, 99 * S),
                     BLASD_DEVICE_CUDA);
}

static void work_that_waits_counts(void **state) {
    int cpu = 0, cuda = 0;
    (void)state;
    learn(0, 0);
    for (int i = 0; i < 100; i++) { /* all at once: 100 us each here, about 150 there */
        if (pick(1e5) == BLASD_DEVICE_CPU)
            cpu++;
        else
            cuda++;
    }
    assert_true(cpu >= 1 && cuda >= 50); /* the card takes many together */
    /* once time has passed they are done */
    assert_int_equal(pick_at(1e5, 10 * S), BLASD_DEVICE_CPU);
}

static void the_queue_tells_what_is_left(void **state) {
    (void)state;
    learn(0, 0);
    for (int i = 0; i < 8; i++) assert_int_equal(pick_at(1e4, (i + 1) * S), BLASD_DEVICE_CPU);
    learn(400, 0); /* others have sent as much, and all of it waits: 400 x 10 us */
    assert_int_equal(pick(1e4), BLASD_DEVICE_CUDA);
    learn(4, 0);
    assert_int_equal(pick(1e4), BLASD_DEVICE_CPU);
    learn(400, 40000); /* and the card has more than that */
    choice->of[BLASD_DEVICE_CUDA].work_s = 1;
    assert_int_equal(pick(1e4), BLASD_DEVICE_CPU);
}

/* A front end that has sent nothing takes the workers' word for what a job takes. */
static void what_others_sent(void **state) {
    (void)state;
    learn_ops(CPU_COST, CUDA_COST, "[\"matmul\"]", 10, 0, 0.5);
    assert_true(choice->of[BLASD_DEVICE_CPU].work_s == 5);
    assert_int_equal(pick(1e3), BLASD_DEVICE_CUDA);
}

static void large_jobs_among_small_ones(void **state) {
    struct blasd_plan large = plan_of(1e9);
    (void)state;
    learn(0, 0);
    for (int i = 0; i < 1000; i++) pick_at(1e3, (i + 1) * S);
    for (int i = 0; i < 3; i++) /* the user wants them on the CPU: 1 s each */
        http_placement_sent(choice, &view, BLASD_DEVICE_CPU, matmul, &large, 2000 * S);
    learn(3, 0); /* what waits is the last three, not three of the usual */
    assert_true(choice->of[BLASD_DEVICE_CPU].work_s > 2.9);
    assert_int_equal(pick(1e3), BLASD_DEVICE_CUDA);
}

/* A class that gets nothing done is not taken to have done it because time has passed. */
static void a_class_that_is_slower_than_it_says(void **state) {
    (void)state;
    learn(0, 0);
    for (int i = 0; i < 8; i++) pick_at(1e4, S); /* 20 us each here with what a job costs */
    for (int look = 2; look < 12; look++) {
        look_ns = look * S;
        learn(8, 0); /* they are all there still */
    }
    assert_true(choice->of[BLASD_DEVICE_CPU].rate < 0.04);
    assert_int_equal(pick_at(1e3, look_ns + 1000000), BLASD_DEVICE_CUDA);
    for (int look = 12; look < 22; look++) {
        look_ns = look * S;
        learn(0, 0);
    }
    assert_true(choice->of[BLASD_DEVICE_CPU].rate > 0.9);
    assert_int_equal(pick_at(1e3, look_ns + 1000000), BLASD_DEVICE_CPU);
}

static void more_workers_wait_less(void **state) {
    (void)state;
    learn(0, 0);
    choice->of[BLASD_DEVICE_CPU].work_s = 450e-6;
    assert_int_equal(pick(1e3), BLASD_DEVICE_CUDA);
    learn(0, 0);
    choice->of[BLASD_DEVICE_CPU].work_s = 450e-6;
    view.workers_of[BLASD_DEVICE_CPU] = 8;
    assert_int_equal(pick(1e3), BLASD_DEVICE_CPU);
}

static void a_dead_class_is_not_chosen(void **state) {
    (void)state;
    learn(0, 0);
    view.workers_of[BLASD_DEVICE_CUDA] = 0;
    assert_int_equal(pick(1e8), BLASD_DEVICE_ANY); /* which the CPU alone reads */
    view.workers_of[BLASD_DEVICE_CUDA] = 1;
    view.workers_of[BLASD_DEVICE_CPU] = 0;
    assert_int_equal(pick(1e3), BLASD_DEVICE_ANY);
    view.workers_of[BLASD_DEVICE_CPU] = 1;
    assert_int_equal(pick(1e8), BLASD_DEVICE_CUDA);
    /* alive by the count, but not there at the last look */
    choice->of[BLASD_DEVICE_CUDA].seen = false;
    assert_int_equal(pick(1e8), BLASD_DEVICE_CPU);
}

static void nothing_known_nothing_chosen(void **state) {
    struct blasd_op stranger = {.name = "stranger"};
    struct blasd_plan plan = plan_of(1e8);
    (void)state;
    assert_int_equal(pick(1e8), BLASD_DEVICE_ANY); /* no look yet */
    learn_ops(CPU_COST, NO_COST, "[\"matmul\"]", 0, 0, 0);
    assert_int_equal(pick(1e8), BLASD_DEVICE_ANY); /* the card says nothing yet */
    learn(0, 0);
    assert_int_equal(http_placement_pick(choice, &view, &stranger, &plan, 0, S), BLASD_DEVICE_ANY);
    /* an operation without a curve on either goes by usual figures */
    assert_int_equal(http_placement_pick(choice, &view, blasd_op_find("solve"), &plan, 0, S),
                     BLASD_DEVICE_CPU);
}

static void an_operation_that_only_one_class_has(void **state) {
    struct blasd_plan plan = plan_of(1e9);
    (void)state;
    learn_ops(NO_COST, NO_COST, "[\"matmul\"]", 0, 0, 0);
    assert_int_equal(http_placement_pick(choice, &view, blasd_op_find("solve"), &plan, 0, S),
                     BLASD_DEVICE_CPU);
}

static void memory(void **state) {
    struct blasd_plan plan = plan_of(1e9);
    (void)state;
    /* before the first look nothing is refused */
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_ANY, &plan, 99 * GB, &err),
                     0);
    learn(0, 0);
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_ANY, &plan, 16 * GB, &err),
                     0);
    assert_int_equal(
        http_placement_check(choice, &view, BLASD_DEVICE_ANY, &plan, 16 * GB + 1, &err),
        -(int)BLASD_E_job_too_large);
    assert_non_null(strstr(err.detail, "16000000001"));
    assert_non_null(strstr(err.detail, "host_memory_bytes"));
    /* what the card cannot hold goes to the CPU, and is refused where that was not wanted */
    plan.device_bytes = plan.device_least_bytes = 9 * GB;
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_ANY, &plan, GB, &err), 0);
    assert_int_equal(http_placement_pick(choice, &view, matmul, &plan, GB, S), BLASD_DEVICE_CPU);
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_CUDA, &plan, GB, &err),
                     -(int)BLASD_E_job_too_large);
    assert_non_null(strstr(err.detail, "8000000000"));
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_CPU, &plan, GB, &err), 0);
    /* what would have to go through it in slices is not sent there unasked */
    plan.device_least_bytes = 0;
    assert_int_equal(http_placement_pick(choice, &view, matmul, &plan, GB, S), BLASD_DEVICE_CPU);
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_CUDA, &plan, GB, &err), 0);
    /* without the CPU's workers nobody can hold it */
    plan.device_least_bytes = 9 * GB;
    view.workers_of[BLASD_DEVICE_CPU] = 0;
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_ANY, &plan, GB, &err),
                     -(int)BLASD_E_job_too_large);
    /* and with nobody there, it is not a matter of size */
    view.workers_of[BLASD_DEVICE_CUDA] = 0;
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_ANY, &plan, 99 * GB, &err),
                     0);
}

static void what_a_card_does_not_take(void **state) {
    struct blasd_plan plan = plan_of(1e9);
    (void)state;
    plan.host_only = "a card takes up to 7 of them";
    learn(0, 0);
    assert_int_equal(http_placement_pick(choice, &view, matmul, &plan, GB, S), BLASD_DEVICE_CPU);
    learn_ops(NO_COST, NO_COST, "[\"matmul\"]", 0, 0, 0); /* nor before anything is measured */
    assert_int_equal(http_placement_pick(choice, &view, matmul, &plan, GB, S), BLASD_DEVICE_CPU);
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_ANY, &plan, GB, &err), 0);
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_CUDA, &plan, GB, &err),
                     -(int)BLASD_E_job_too_large);
    assert_string_equal(err.field, "device");
    assert_non_null(strstr(err.detail, "up to 7 of them"));
    view.workers_of[BLASD_DEVICE_CPU] = 0;
    assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_ANY, &plan, GB, &err),
                     -(int)BLASD_E_job_too_large);
    assert_non_null(strstr(err.detail, "no worker of class cpu is alive"));
}

static void stats_that_are_odd(void **state) {
    static const char *const odd[] = {
        "",
        "{",
        "[]",
        "{\"workers\":[],\"queue\":7}",
        "{\"workers\":{\"a\":1,\"b\":null,\"c\":{\"class\":3}},\"queue\":{\"cpu\":[]}}",
        ("{\"workers\":{\"a\":{\"class\":\"cpu\",\"ops\":[1,\"none\"],\"host_memory_bytes\":-5,"
         "\"cost\":{\"copy_gbytes_s\":\"x\"}}},\"queue\":{\"cpu\":{\"high\":{\"queued\":-9}}}}"),
    };
    struct blasd_plan plan = plan_of(1e9);
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        http_placement_learn(choice, odd[i], strlen(odd[i]), 1, S);
        assert_int_equal(pick(1e9), BLASD_DEVICE_ANY);
        assert_int_equal(http_placement_check(choice, &view, BLASD_DEVICE_ANY, &plan, GB, &err), 0);
    }
}

/* A day of jobs: what is remembered stays finite and near. */
static void very_many_jobs(void **state) {
    (void)state;
    learn(0, 0);
    for (int64_t i = 0; i < 300000; i++) pick_at(i % 2 ? 1e3 : 1e12, i * 2000 * S);
    learn(2, 0);
    assert_true(choice->of[BLASD_DEVICE_CPU].work_s < 1);
    assert_int_equal(pick(1e3), BLASD_DEVICE_CPU);
}

/* Too long for the CPU and not for the card; for both; for a class whose speed nobody knows. */
static void what_takes_too_long_is_refused(void **state) {
    struct blasd_plan plan = plan_of(1e13); /* hours here, 10 s there */
    (void)state;
    learn(0, 0);
    choice->most_s = 60;
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_CPU, matmul, &plan, 0, 0, &err),
        -(int)BLASD_E_job_too_long);
    assert_non_null(strstr(err.detail, "60 s (limit job_s)"));
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_CUDA, matmul, &plan, 0, 0, &err), 0);
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_ANY, matmul, &plan, 0, 0, &err), 0);
    assert_int_equal(pick(1e13), BLASD_DEVICE_CUDA);
    plan.flops = 1e16;
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_ANY, matmul, &plan, 0, 0, &err),
        -(int)BLASD_E_job_too_long);
    plan.flops_least = 1e10; /* it may end early */
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_ANY, matmul, &plan, 0, 0, &err), 0);
    plan = plan_of(0); /* many problems of nothing */
    plan.items = 1e9;
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_CPU, matmul, &plan, 0, 0, &err),
        -(int)BLASD_E_job_too_long);
    choice->most_s = 0;
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_CPU, matmul, &plan, 0, 0, &err), 0);
    assert_int_equal(/* whose key gives it less */
                     http_placement_check_time(choice, &view, BLASD_DEVICE_CPU, matmul, &plan, 0,
                                               30, &err),
                     -(int)BLASD_E_job_too_long);
    assert_non_null(strstr(err.detail, "30 s (of its key)"));
    choice->most_s = 20; /* the service's own limit is the lesser */
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_CPU, matmul, &plan, 0, 30, &err),
        -(int)BLASD_E_job_too_long);
    assert_non_null(strstr(err.detail, "20 s (limit job_s)"));
    choice->most_s = 60;
    learn_ops(NO_COST, CUDA_COST, "[\"matmul\"]", 0, 0, 0);
    choice->of[BLASD_DEVICE_CPU].measured = false;
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_CPU, matmul, &plan, 0, 0, &err), 0);
}

/* A graph takes what its steps take: many small ones are no large one. */
static void a_graph_goes_where_its_steps_end_first(void **state) {
    struct blasd_cost_step steps[1000] = {0};
    struct blasd_plan plan = {.steps = steps, .step_count = 1000, .items = 1};
    const struct blasd_op *graph = &blasd_op_graph;
    struct blasd_cost_guess guess;
    (void)state;
    learn_ops(CPU_COST, CUDA_COST, "[\"matmul\"]", 0, 0, 0);
    choice->most_s = 20;
    for (int s = 0; s < 1000; s++) {
        steps[s].work = (struct blasd_cost_work){.op = blasd_op_position(matmul), .items = 1};
        steps[s].work.flops = 1e5; /* 100 us here, more there */
        plan.flops += 1e5;
    }
    assert_int_equal(http_placement_pick(choice, &view, graph, &plan, 0, S), BLASD_DEVICE_CPU);
    assert_true(http_placement_predict(choice, BLASD_DEVICE_CPU, graph, &plan, &guess));
    assert_true(guess.alone_s > 0.09 && guess.alone_s < 0.11);
    plan.step_count = 10;
    for (int s = 0; s < 10; s++) steps[s].work.flops = 1e8;
    assert_int_equal(http_placement_pick(choice, &view, graph, &plan, 0, 9 * S), BLASD_DEVICE_CUDA);
    for (int s = 0; s < 10; s++) { /* 10 GB to move, if they were not on the card already */
        steps[s].work.bytes = 1e9;
        steps[s].work.out_bytes = 5e8;
    }
    assert_true(http_placement_predict(choice, BLASD_DEVICE_CUDA, graph, &plan, &guess));
    assert_true(guess.alone_s > 1);
    for (int s = 0; s < 10; s++) steps[s].resident_in = steps[s].resident_out = 5e8;
    assert_true(http_placement_predict(choice, BLASD_DEVICE_CUDA, graph, &plan, &guess));
    assert_true(guess.alone_s < 0.2);
    assert_true(http_placement_predict(choice, BLASD_DEVICE_CPU, graph, &plan, &guess));
    assert_true(guess.alone_s > 1.9);
    for (int s = 0; s < 10; s++) {
        steps[s].work.bytes = steps[s].work.out_bytes = 0;
        steps[s].resident_in = steps[s].resident_out = 0;
    }
    plan.step_count = 30;
    for (int s = 0; s < 30; s++) steps[s].work.flops = 1e9;
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_CPU, graph, &plan, 0, 0, &err),
        -(int)BLASD_E_job_too_long);
    for (int s = 0; s < 30; s++) steps[s].flops_least = 1e8; /* it may end early */
    assert_int_equal(
        http_placement_check_time(choice, &view, BLASD_DEVICE_CPU, graph, &plan, 0, 0, &err), 0);
    choice->most_s = 0;
    steps[7].work.op = blasd_op_position(blasd_op_find("solve")); /* the CPU alone has it */
    assert_int_equal(http_placement_pick(choice, &view, graph, &plan, 0, 99 * S), BLASD_DEVICE_CPU);
    assert_true(http_placement_predict(choice, BLASD_DEVICE_CPU, graph, &plan, &guess));
    learn(0, 0);
    plan.steps = NULL;
    plan.step_count = 0;
    assert_int_equal(http_placement_pick(choice, &view, graph, &plan, 0, 99 * S), BLASD_DEVICE_ANY);
    assert_false(http_placement_predict(choice, BLASD_DEVICE_CPU, graph, &plan, &guess));
}

/* The card would have it later, but the CPU would need more than a job may take. */
static void a_class_that_takes_too_long_is_not_chosen(void **state) {
    (void)state;
    learn(0, 0);
    choice->most_s = 0;
    for (int i = 0; i < 20; i++) (void)pick_at(1e12, S);  /* 1 s each on the card */
    assert_int_equal(pick_at(1e10, S), BLASD_DEVICE_CPU); /* 10 s here, 20 s there */
    choice->most_s = 5;
    assert_int_equal(pick_at(1e10, S), BLASD_DEVICE_CUDA);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(small_to_the_cpu_large_to_the_card),
        TEST(what_is_only_asked_about),
        TEST(what_must_be_moved_counts),
        TEST(work_that_waits_counts),
        TEST(the_queue_tells_what_is_left),
        TEST(what_others_sent),
        TEST(large_jobs_among_small_ones),
        TEST(a_class_that_is_slower_than_it_says),
        TEST(more_workers_wait_less),
        TEST(a_dead_class_is_not_chosen),
        TEST(nothing_known_nothing_chosen),
        TEST(an_operation_that_only_one_class_has),
        TEST(memory),
        TEST(what_a_card_does_not_take),
        TEST(stats_that_are_odd),
        TEST(very_many_jobs),
        TEST(what_takes_too_long_is_refused),
        TEST(a_class_that_takes_too_long_is_not_chosen),
        TEST(a_graph_goes_where_its_steps_end_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
