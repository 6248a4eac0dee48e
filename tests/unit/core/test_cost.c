/* Predicting what a job takes: between points, beyond them, and for work that makes no sense. */
#include "core/cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) fail_msg("%.12g is not %.12g", got, want);
}

/* 1 us for a call and 1e10 operations a second, where no job has ended. */
static struct blasd_cost new_device(void) {
    return (struct blasd_cost){.launch_s = 1e-6, .flops_s = {1e10, 1e10}, .copy_bytes_s = 1e10};
}

/* Two points a factor of 100 apart in work: 10 and 1000 microseconds alone. */
static struct blasd_cost device(void) {
    struct blasd_cost cost = new_device();
    struct blasd_cost_curve *curve = &cost.curves[1][BLASD_COST_FLOAT64];
    assert_true(blasd_cost_add(curve, 1e4, 10e-6, 1e-6));
    assert_true(blasd_cost_add(curve, 1e6, 1000e-6, 900e-6));
    return cost;
}

static struct blasd_cost_guess predict(const struct blasd_cost *cost, double flops, double items,
                                       double bytes) {
    struct blasd_cost_work work = {.op = 1, .flops = flops, .items = items, .bytes = bytes};
    struct blasd_cost_guess guess = {.alone_s = -1};
    assert_true(blasd_cost_predict(cost, &work, &guess));
    assert_true(guess.alone_s > 0 && isfinite(guess.alone_s));
    assert_true(guess.share_s > 0 && guess.share_s <= guess.alone_s * (1 + 1e-12));
    return guess;
}

static void at_and_between_points(void **state) {
    struct blasd_cost cost = device();
    (void)state;
    assert_near(predict(&cost, 1e4, 1, 0).alone_s, 10e-6 + BLASD_COST_JOB_S);
    assert_near(predict(&cost, 1e6, 1, 0).alone_s, 1000e-6 + BLASD_COST_JOB_S);
    assert_near(predict(&cost, 1e5, 1, 0).alone_s, 100e-6 + BLASD_COST_JOB_S); /* in logarithms */
    assert_near(predict(&cost, 1e5, 1, 0).share_s, sqrt(900) * 1e-6 + BLASD_COST_JOB_S);
    assert_near(predict(&cost, 1e6, 1, 1e8).alone_s, 11000e-6 + BLASD_COST_JOB_S);
}

/* Each way at a rate of its own where both are known. */
static void phases_apart(void **state) {
    struct blasd_cost cost = device();
    struct blasd_cost_work work = {
        .op = 1, .flops = 1e6, .items = 1, .bytes = 1e8, .out_bytes = 4e7};
    struct blasd_cost_guess guess;
    (void)state;
    assert_true(blasd_cost_predict(&cost, &work, &guess));
    assert_true(guess.upload_s == 0 && guess.download_s == 0);
    cost.upload_bytes_s = 2e9;
    assert_true(blasd_cost_predict(&cost, &work, &guess));
    assert_near(guess.alone_s, 11000e-6 + BLASD_COST_JOB_S);
    cost.download_bytes_s = 4e9;
    assert_true(blasd_cost_predict(&cost, &work, &guess));
    assert_near(guess.upload_s, 0.03);
    assert_near(guess.download_s, 0.01);
    assert_near(guess.alone_s, 0.041 + BLASD_COST_JOB_S);
}

static void beyond_the_points(void **state) {
    struct blasd_cost cost = device(), fresh = new_device();
    (void)state;
    assert_near(predict(&cost, 1, 1, 0).alone_s, 10e-6 * 1.0001 / 2 + BLASD_COST_JOB_S);
    assert_near(predict(&cost, 1e9, 1, 0).alone_s, 1 + BLASD_COST_JOB_S); /* at its rate */
    assert_near(predict(&fresh, 1e9, 1, 0).alone_s, 0.100001 + BLASD_COST_JOB_S);
    assert_near(predict(&fresh, 1e6, 100, 0).share_s, 1e-4 + BLASD_COST_JOB_S);
}

/* Whatever small jobs took, of which starting a call is all. */
static void small_jobs_say_little_of_the_least_that_large_ones_take(void **state) {
    struct blasd_cost cost = new_device();
    struct blasd_cost_work work = {.op = 1, .flops = 1e10, .items = 1, .least = true};
    struct blasd_cost_guess guess;
    struct blasd_cost_curve *curve = &cost.curves[1][BLASD_COST_FLOAT64];
    const double least = 1.000001 / 20 + BLASD_COST_JOB_S;
    (void)state;
    assert_true(blasd_cost_predict(&cost, &work, &guess)); /* it may be faster than is usual */
    assert_near(guess.alone_s, least);
    work.items = 1e4; /* in many problems as in one */
    assert_true(blasd_cost_predict(&cost, &work, &guess));
    assert_near(guess.alone_s, least);
    work.items = 1;
    assert_true(blasd_cost_add(curve, 2, 8e-6, 1e-6));
    assert_true(blasd_cost_add(curve, 16, 20e-6, 1e-6)); /* at that rate hours */
    assert_true(blasd_cost_predict(&cost, &work, &guess));
    assert_near(guess.alone_s, least + 20e-6 - (1e-6 + 1.6e-9) / 20);
    assert_near(predict(&cost, 1e10, 1, 0).alone_s, 1 + 20e-6 - 1.6e-9 + BLASD_COST_JOB_S);
    assert_true(blasd_cost_add(curve, 8e9, 8, 8)); /* one that is nearly as large does */
    assert_true(blasd_cost_predict(&cost, &work, &guess));
    assert_near(guess.alone_s, 8 + 2.0 / 20 + BLASD_COST_JOB_S);
    work.flops = 1e5;
    assert_true(blasd_cost_predict(&cost, &work, &guess));
    assert_near(guess.alone_s, predict(&cost, 1e5, 1, 0).alone_s);
}

static void many_problems_in_a_job(void **state) {
    struct blasd_cost cost = device();
    (void)state;
    assert_near(predict(&cost, 1e4 * 101, 101, 0).alone_s, 110e-6 + BLASD_COST_JOB_S);
    assert_near(predict(&cost, 1e4 * 101, 101, 0).share_s, 101e-6 + BLASD_COST_JOB_S);
    /* a large one of the same work takes longer than many small ones */
    assert_true(predict(&cost, 1e6, 1, 0).alone_s > predict(&cost, 1e6, 100, 0).alone_s);
}

/* What rules make is not moved; a processor makes it at a rate of its own. */
static void inputs_that_are_made(void **state) {
    struct blasd_cost cost = device();
    struct blasd_plan plan = {.flops = 1e6, .input_bytes = 3 << 20, .made_bytes = 2 << 20};
    struct blasd_cost_work work;
    struct blasd_cost_guess guess;
    (void)state;
    blasd_cost_work(&plan, 1, &work);
    assert_near(work.bytes, 1 << 20);
    assert_true(blasd_cost_predict(&cost, &work, &guess));
    assert_near(guess.alone_s,
                predict(&cost, 1e6, 1, 1 << 20).alone_s + (2 << 20) / BLASD_COST_MADE_BYTES_S);
}

static void work_that_makes_no_sense(void **state) {
    static const double odd[] = {0, -1, -INFINITY, INFINITY, NAN, 1e308, 5e-324};
    struct blasd_cost cost = device();
    int count = (int)(sizeof odd / sizeof *odd);
    (void)state;
    for (int f = 0; f < count; f++)
        for (int i = 0; i < count; i++)
            for (int b = 0; b < count; b++) predict(&cost, odd[f], odd[i], odd[b]);
}

static void what_is_not_known(void **state) {
    struct blasd_cost cost = device(), none = {0}, no_rate = device();
    struct blasd_cost_work work = {.op = 2, .flops = 1, .items = 1, .bytes = 1};
    struct blasd_cost_guess guess = {.alone_s = 7, .share_s = 7};
    (void)state;
    work.op = -1;
    assert_false(blasd_cost_predict(&cost, &work, &guess));
    work.op = BLASD_OPS_MOST;
    assert_false(blasd_cost_predict(&cost, &work, &guess));
    work.op = 1;
    assert_false(blasd_cost_predict(&none, &work, &guess));
    no_rate.copy_bytes_s = NAN;
    assert_false(blasd_cost_predict(&no_rate, &work, &guess));
    assert_true(guess.alone_s == 7 && guess.share_s == 7);
    assert_false(blasd_cost_known(&none));
    assert_false(blasd_cost_known(&no_rate));
    assert_true(blasd_cost_known(&cost));
    work.precision = BLASD_COST_FLOAT32; /* only float64 has run */
    assert_true(blasd_cost_predict(&cost, &work, &guess));
}

static void points_that_are_refused(void **state) {
    struct blasd_cost_curve curve = {0};
    (void)state;
    assert_false(blasd_cost_add(&curve, 0, 1, 1));
    assert_false(blasd_cost_add(&curve, NAN, 1, 1));
    assert_false(blasd_cost_add(&curve, INFINITY, 1, 1));
    assert_false(blasd_cost_add(&curve, 1, 0, 1));
    assert_false(blasd_cost_add(&curve, 1, 1, 0));
    assert_false(blasd_cost_add(&curve, 1, NAN, 1));
    assert_false(blasd_cost_add(&curve, 1, 1, INFINITY));
    assert_int_equal(curve.count, 0);
    assert_true(blasd_cost_add(&curve, 10, 1, 5)); /* each is never more than alone */
    assert_true(curve.points[0].each_s == 1);
    assert_false(blasd_cost_add(&curve, 10, 1, 1));
    assert_false(blasd_cost_add(&curve, 9, 1, 1));
    for (int i = 1; i < BLASD_COST_POINTS; i++) assert_true(blasd_cost_add(&curve, 10 + i, 1, 1));
    assert_false(blasd_cost_add(&curve, 1e9, 1, 1));
    assert_int_equal(curve.count, BLASD_COST_POINTS);
}

/* A larger problem may have run faster than a smaller one, by noise or by more threads. */
static void a_curve_that_falls(void **state) {
    struct blasd_cost cost = new_device();
    struct blasd_cost_curve *curve = &cost.curves[1][BLASD_COST_FLOAT64];
    double last = 1;
    (void)state;
    assert_true(blasd_cost_add(curve, 1e3, 1e-3, 1e-3));
    assert_true(blasd_cost_add(curve, 1e6, 1e-4, 1e-4));
    for (double flops = 1e3; flops <= 1e6; flops *= 1.5) {
        double now = predict(&cost, flops, 1, 0).alone_s;
        assert_true(now < last && now > 1e-4);
        last = now;
    }
}

static void a_plan_as_work(void **state) {
    struct blasd_plan plan = {.flops = 12, .items = 3, .input_bytes = 100, .output_bytes = 28};
    struct blasd_cost_work work;
    (void)state;
    plan.input_dtype[0] = BLASD_float64;
    memset(&work, 1, sizeof work); /* as memory may be that nobody has cleared */
    blasd_cost_work(&plan, 4, &work);
    assert_false(work.ends_early || work.least);
    assert_int_equal(work.op, 4);
    assert_int_equal(work.precision, BLASD_COST_FLOAT64);
    assert_true(work.flops == 12 && work.items == 3 && work.bytes == 128);
    plan.slower = 10; /* its operations take longer than a product's */
    blasd_cost_work(&plan, 4, &work);
    assert_true(work.flops == 120);
    plan.input_dtype[0] = BLASD_float32;
    plan.input_bytes = plan.output_bytes = UINT64_MAX; /* no overflow on the way */
    blasd_cost_work(&plan, 4, &work);
    assert_int_equal(work.precision, BLASD_COST_FLOAT32);
    assert_true(work.bytes > 3e19);
}

static struct blasd_cost_work work_of(int op, double flops) {
    return (struct blasd_cost_work){.op = op, .flops = flops, .items = 1};
}

static void learn(struct blasd_cost *cost, int op, double flops, double seconds) {
    struct blasd_cost_work work = work_of(op, flops);
    blasd_cost_learn(cost, &work, seconds);
}

static void jobs_teach(void **state) {
    struct blasd_cost cost = new_device(), none = {0};
    const struct blasd_cost_curve *curve = &cost.curves[1][BLASD_COST_FLOAT64];
    struct blasd_cost_work many = work_of(2, 1e9);
    struct blasd_cost_guess guess;
    (void)state;
    learn(&none, 1, 1e9, 1);
    assert_int_equal(none.curves[1][BLASD_COST_FLOAT64].count, 0); /* of no device */
    learn(&cost, 1, 1e9, 0.5); /* five times as long as usual, */
    assert_near(predict(&cost, 1e9, 1, 0).alone_s, 0.5 + BLASD_COST_JOB_S);
    assert_near(predict(&cost, 1e11, 1, 0).alone_s, 50 + BLASD_COST_JOB_S);
    assert_true(predict(&cost, 128, 1, 0).alone_s < 10e-6 + BLASD_COST_JOB_S); /* so are others */
    learn(&cost, 1, 1e9, 5); /* somebody was in the way */
    assert_near(predict(&cost, 1e9, 1, 0).alone_s, 0.5 + BLASD_COST_JOB_S);
    learn(&cost, 1, 1e8, 0.05); /* other sizes, and faster ones */
    learn(&cost, 1, 1.2e9, 0.096);
    assert_near(predict(&cost, 1e8, 1, 0).alone_s, 0.05 + BLASD_COST_JOB_S);
    assert_near(predict(&cost, 1e9, 1, 0).alone_s, 0.08 + BLASD_COST_JOB_S);
    assert_int_equal(curve->count, 2);
    for (int i = 0; i < 300; i++) learn(&cost, 1, pow(2.5, i), 1e-3 * (1 + i % 3));
    assert_int_equal(curve->count, BLASD_COST_POINTS);
    for (int i = 1; i < curve->count; i++)
        assert_true(curve->points[i].flops > curve->points[i - 1].flops);
    many.items = 1000;
    blasd_cost_learn(&cost, &many, 1); /* one of a call with many, and the call */
    assert_true(blasd_cost_predict(&cost, &many, &guess));
    assert_near(guess.share_s, 1 + BLASD_COST_JOB_S);
    assert_near(guess.alone_s, 1 + 1e-6 + BLASD_COST_JOB_S);
}

static void usual_figures(void **state) {
    struct blasd_cost one, eight, card;
    (void)state;
    blasd_cost_usual(BLASD_DEVICE_CPU, 1, &one);
    blasd_cost_usual(BLASD_DEVICE_CPU, 8, &eight);
    blasd_cost_usual(BLASD_DEVICE_CUDA, 100, &card);
    assert_true(blasd_cost_known(&one) && blasd_cost_known(&eight) && blasd_cost_known(&card));
    assert_true(predict(&one, 1e3, 1, 0).alone_s < predict(&card, 1e3, 1, 0).alone_s);
    assert_true(predict(&card, 1e11, 1, 1e6).alone_s < predict(&eight, 1e11, 1, 1e6).alone_s);
    assert_true(predict(&eight, 1e11, 1, 0).alone_s < predict(&one, 1e11, 1, 0).alone_s);
}

static void what_ends_early_as_a_rule(void **state) {
    struct blasd_cost cost = device();
    struct blasd_cost_work most = work_of(1, 1e9), certain = work_of(1, 1e9);
    struct blasd_cost_guess guess;
    (void)state;
    most.ends_early = true;
    for (int i = 0; i < 50; i++) blasd_cost_learn(&cost, &most, 0.01); /* a hundredth */
    assert_true(blasd_cost_predict(&cost, &most, &guess));
    assert_true(guess.alone_s > 0.009 && guess.alone_s < 0.011);
    assert_true(blasd_cost_predict(&cost, &certain, &guess)); /* says nothing of what does not */
    assert_near(guess.alone_s, 1 + BLASD_COST_JOB_S);
    for (int i = 0; i < 50; i++) blasd_cost_learn(&cost, &most, i % 2 ? 1e9 : NAN);
    assert_true(blasd_cost_predict(&cost, &most, &guess));
    assert_true(guess.alone_s > 0 && guess.alone_s <= 1 + BLASD_COST_JOB_S);
}

static void steps_one_after_the_other(void **state) {
    struct blasd_cost cost = device();
    const struct blasd_cost_step steps[] = {{.work = work_of(1, 1e6)},
                                            {.work = work_of(1, 1e9), .flops_least = 1}},
                                 unknown[] = {{.work = work_of(1, 1e6)},
                                              {.work = work_of(-1, 1e6)}};
    struct blasd_cost_guess first, second, guess;
    (void)state;
    assert_true(blasd_cost_predict(&cost, &steps[0].work, &first));
    assert_true(blasd_cost_predict(&cost, &steps[1].work, &second));
    assert_true(blasd_cost_predict_steps(&cost, steps, 1, &guess));
    assert_near(guess.alone_s, first.alone_s);
    assert_true(blasd_cost_predict_steps(&cost, steps, 2, &guess));
    assert_near(guess.alone_s, first.alone_s + second.alone_s - BLASD_COST_JOB_S);
    assert_near(guess.share_s, guess.alone_s);
    guess.alone_s = -1;
    assert_false(blasd_cost_predict_steps(&cost, unknown, 2, &guess));
    assert_false(blasd_cost_predict_steps(&cost, steps, 0, &guess));
    assert_true(guess.alone_s < 0);
}

static void figures_for_people(void **state) {
    struct blasd_cost cost = device();
    (void)state;
    assert_near(blasd_cost_best_rate(&cost, 1, BLASD_COST_FLOAT64), 1e9);
    assert_true(blasd_cost_best_rate(&cost, 1, BLASD_COST_FLOAT32) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_and_between_points),
        cmocka_unit_test(phases_apart),
        cmocka_unit_test(beyond_the_points),
        cmocka_unit_test(small_jobs_say_little_of_the_least_that_large_ones_take),
        cmocka_unit_test(many_problems_in_a_job),
        cmocka_unit_test(inputs_that_are_made),
        cmocka_unit_test(work_that_makes_no_sense),
        cmocka_unit_test(what_is_not_known),
        cmocka_unit_test(points_that_are_refused),
        cmocka_unit_test(a_curve_that_falls),
        cmocka_unit_test(a_plan_as_work),
        cmocka_unit_test(steps_one_after_the_other),
        cmocka_unit_test(figures_for_people),
        cmocka_unit_test(jobs_teach),
        cmocka_unit_test(usual_figures),
        cmocka_unit_test(what_ends_early_as_a_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
