/* What the frame does for work that comes again: algorithms timed once and used from then on,
 * batches recorded as graphs. On matmul jobs over the stand-in, whose clock tests can bend. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

#define MOST 24

/* Integers, so that every result is exact whatever ran it. */
static struct trial *job(enum blasd_dtype dtype, int64_t m, int64_t k, int64_t n, bool add) {
    struct trial *t = trial_new("matmul");
    const char *names[] = {"a", "b", "c"};
    int64_t shapes[][2] = {{m, k}, {k, n}, {m, n}};
    for (int i = 0; i < (add ? 3 : 2); i++) {
        void *data = trial_input(t, names[i], dtype, BLASD_ROW_MAJOR, 2, shapes[i]);
        for (int64_t j = 0; j < shapes[i][0] * shapes[i][1]; j++) {
            int value = (int)trial_between(-9, 9);
            if (dtype == BLASD_float64)
                ((double *)data)[j] = value;
            else
                ((float *)data)[j] = (float)value;
        }
    }
    return t;
}

static double given(const struct trial *t, int input, int64_t i) {
    if (t->job.inputs[input].tensor.dtype == BLASD_float64)
        return ((const double *)t->given[input])[i];
    return (double)((const float *)t->given[input])[i];
}

static bool right(const struct trial *t, const struct blasd_task *task) {
    const struct blasd_tensor *c = &task->outputs[0];
    int64_t k = t->job.inputs[0].tensor.shape[1];
    for (int64_t i = 0; i < c->shape[0]; i++)
        for (int64_t j = 0; j < c->shape[1]; j++) {
            double sum = blasd_job_has(&t->job, 2) ? given(t, 2, i * c->shape[1] + j) : 0;
            for (int64_t l = 0; l < k; l++)
                sum += given(t, 0, i * k + l) * given(t, 1, l * c->shape[1] + j);
            if (!(trial_value(c, i * c->shape[1] + j) == sum)) return false;
        }
    return true;
}

static struct blasd_device *open_device(void) {
    struct blasd_device *device;
    struct blasd_err err;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

static void close_device(struct blasd_device *device) {
    blasd_backend.device_close(device);
    assert_int_equal(blasd_standin.device_blocks, 0);
    assert_int_equal(blasd_standin.host_blocks, 0);
    assert_int_equal(blasd_standin.streams, 0);
    assert_int_equal(blasd_standin.events, 0);
    assert_int_equal(blasd_standin.graphs, 0);
}

/* Runs trials as one call and frees them; their results must be right where it went well. */
static int try_run(struct blasd_device *device, struct trial **trials, int count) {
    static struct blasd_task tasks[MOST];
    const struct blasd_kernel *kernel =
        blasd_backend_kernel(&blasd_backend, blasd_op_find("matmul"));
    struct blasd_err err = {0};
    int code;
    for (int i = 0; i < count; i++) {
        assert_int_equal(trial_plan(trials[i]), BLASD_OK);
        trial_bind(trials[i]);
        tasks[i] = trials[i]->task;
    }
    code = kernel->run(device, tasks, count, NULL, &err);
    for (int i = 0; i < count; i++) {
        if (code == 0 && tasks[i].err.code != BLASD_OK) code = -(int)tasks[i].err.code;
        if (code == 0) assert_true(right(trials[i], &tasks[i]));
        trial_free(trials[i]);
    }
    return code;
}

static void run(struct blasd_device *device, struct trial **trials, int count) {
    assert_int_equal(try_run(device, trials, count), 0);
}

static void run_one(struct blasd_device *device, int64_t n, bool add) {
    struct trial *t = job(BLASD_float64, n, 20, n, add);
    run(device, &t, 1);
}

static int setup(void **state) {
    uint64_t seed = blasd_standin.seed;
    (void)state;
    blasd_standin_mend();
    blasd_standin.choices = 0;
    blasd_standin.own_us = 0;
    blasd_standin.refuse_choices = blasd_standin.refuse_grouped = 0;
    blasd_standin.no_capture = blasd_standin.no_grouped = false;
    memset(blasd_standin.choice_us, 0, sizeof blasd_standin.choice_us);
    memset(blasd_standin.chosen, 0, sizeof blasd_standin.chosen);
    blasd_standin.asked = blasd_standin.captures = blasd_standin.replays = 0;
    blasd_standin.seed = seed;
    blasd_cuda_habits = (struct blasd_cuda_habits){
        .tune_flops = 0, .tune_seen = 3, .graph_seen = 3, .graph_nodes = 4};
    return 0;
}

static long chosen(void) {
    long sum = 0;
    for (int i = 0; i < BLASD_STANDIN_CHOICES; i++) sum += blasd_standin.chosen[i];
    return sum;
}

/* ---- algorithms ---- */

/* Times so far apart that no real delay of this machine changes their order; the library's own way
 * is told apart by what is slowed down: everything but choice 3. */
static void slow_choices(void) {
    blasd_standin.choices = 4;
    blasd_standin.own_us = 3e9;
    blasd_standin.choice_us[0] = 2e9;
    blasd_standin.choice_us[1] = 9e9;
    blasd_standin.choice_us[2] = 1e6;
    blasd_standin.choice_us[3] = 4e9;
}

static void a_shape_is_tuned_once_and_only_where_it_repeats(void **state) {
    struct blasd_device *device = open_device();
    long before;
    (void)state;
    slow_choices();
    for (int add = 0; add < 2; add++) {
        int64_t n = 30 + add; /* another shape: with c its beta is not 0 */
        long asked = blasd_standin.asked;
        for (int i = 0; i < 2; i++) run_one(device, n, add);
        assert_int_equal(blasd_standin.asked, asked);
        run_one(device, n, add);
        assert_int_equal(blasd_standin.asked, asked + 1);
        assert_true(blasd_standin.chosen[0] > 0 && blasd_standin.chosen[3] > 0);
        before = chosen();
        for (int i = 0; i < 10; i++) run_one(device, n, add);
        assert_int_equal(blasd_standin.asked, asked + 1);
        assert_int_equal(chosen() - before, 10);
        before = blasd_standin.chosen[2];
        run_one(device, n, add);
        assert_int_equal(blasd_standin.chosen[2], before + 1);
    }
    /* others have not been seen, and small ones never are */
    before = chosen();
    run_one(device, 40, false);
    assert_int_equal(chosen(), before);
    blasd_cuda_habits.tune_flops = 1e6;
    for (int i = 0; i < 10; i++) run_one(device, 33, false);
    assert_int_equal(chosen(), before);
    close_device(device);
}

static void the_librarys_own_way_stays_where_it_is_best(void **state) {
    struct blasd_device *device = open_device();
    long before;
    (void)state;
    slow_choices();
    blasd_standin.own_us = 0;
    for (int i = 0; i < 4; i++) run_one(device, 30, false);
    assert_int_equal(blasd_standin.asked, 1);
    before = chosen();
    for (int i = 0; i < 4; i++) run_one(device, 30, false);
    assert_int_equal(chosen(), before);
    /* a device that offers none is asked once too */
    blasd_standin.choices = 0;
    for (int i = 0; i < 8; i++) run_one(device, 31, false);
    assert_int_equal(blasd_standin.asked, 2);
    close_device(device);
}

static void an_algorithm_that_fails_is_dropped(void **state) {
    struct blasd_device *device = open_device();
    long before;
    (void)state;
    slow_choices();
    blasd_standin.refuse_choices = 1u << 2; /* while they are timed: the next best wins */
    for (int i = 0; i < 4; i++) run_one(device, 30, false);
    before = blasd_standin.chosen[0];
    run_one(device, 30, false);
    assert_int_equal(blasd_standin.chosen[0], before + 1);
    blasd_standin.refuse_choices = 1u << 0; /* later: the library's own way from then on */
    before = chosen();
    for (int i = 0; i < 3; i++) run_one(device, 30, false);
    blasd_standin.refuse_choices = 0;
    for (int i = 0; i < 3; i++) run_one(device, 30, false);
    assert_int_equal(chosen(), before);
    assert_int_equal(blasd_standin.asked, 1);
    close_device(device);
}

/* Timing needs memory of its own; where that is short there is no choice, and no error. */
static void tuning_survives_any_fault_that_does_not_stick(void **state) {
    (void)state;
    for (int n = 1; n < 400; n++) {
        struct blasd_device *device = open_device();
        struct trial *t = job(BLASD_float64, 30, 20, 30, false);
        bool more;
        int code;
        slow_choices();
        for (int i = 0; i < 2; i++) run_one(device, 30, false);
        blasd_standin.fail_at = n;
        blasd_standin.fail_code = n % 2 ? BLASD_E_out_of_memory : BLASD_E_internal_error;
        code = try_run(device, &t, 1);
        if (code != 0) assert_int_equal(code, -(int)blasd_standin.fail_code);
        more = blasd_standin.fail_at == 0;
        blasd_standin_mend();
        for (int i = 0; i < 2; i++) run_one(device, 30, false);
        close_device(device);
        if (!more) return;
    }
    fail_msg("the batch never ended");
}

static void the_table_of_shapes_is_bounded(void **state) {
    struct blasd_device *device = open_device();
    (void)state;
    slow_choices();
    for (int round = 0; round < 3; round++)
        for (int64_t n = 17; n < 17 + BLASD_CUDA_TUNED + 20; n++) run_one(device, n, false);
    assert_int_equal(device->tuner.count, BLASD_CUDA_TUNED);
    assert_int_equal(blasd_standin.asked, 0); /* each was forgotten before it came again */
    for (int i = 0; i < 3; i++) run_one(device, 20, false);
    assert_int_equal(blasd_standin.asked, 1);
    close_device(device);
}

/* ---- graphs ---- */

/* A batch of several shapes, each too large to be grouped with others here. */
static int make_shapes(struct trial **trials, int shapes, int each) {
    int count = 0;
    for (int i = 0; i < shapes; i++)
        for (int j = 0; j < each; j++)
            trials[count++] = job(BLASD_float32, 17 + i, 20, 18, i % 2 == 0);
    return count;
}

static void run_shapes(struct blasd_device *device, int shapes, int each) {
    struct trial *trials[MOST];
    run(device, trials, make_shapes(trials, shapes, each));
}

static void batches_that_repeat_become_graphs(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct blasd_device *device;
        long gemms, launches;
        blasd_standin.seed = seed;
        setup(state);
        blasd_standin.refuse_grouped = 1u << BLASD_float32;
        blasd_cuda_habits.tune_seen = 0;
        device = open_device();
        /* sizes settle, then the two slots take turns */
        for (int i = 0; i < 8; i++) run_shapes(device, 4, 2);
        assert_int_equal(blasd_standin.captures, BLASD_CUDA_SLOTS);
        gemms = blasd_standin.gemms;
        launches = blasd_standin.launches;
        for (int i = 0; i < 6; i++) {
            long replays = blasd_standin.replays;
            run_shapes(device, 4, 2); /* other numbers each time: right is checked */
            assert_int_equal(blasd_standin.replays, replays + 1);
        }
        assert_int_equal(blasd_standin.gemms, gemms);
        assert_int_equal(blasd_standin.launches, launches);
        /* another count, another order, other shapes: not that graph */
        run_shapes(device, 4, 3);
        run_shapes(device, 3, 2);
        assert_true(blasd_standin.gemms > gemms);
        assert_int_equal(blasd_standin.captures, BLASD_CUDA_SLOTS);
        close_device(device);
    }
    blasd_standin.seed = 1;
}

static void where_graphs_gain_nothing_there_are_none(void **state) {
    struct blasd_device *device;
    (void)state;
    blasd_cuda_habits.tune_seen = 0;
    device = open_device();
    for (int i = 0; i < 20; i++) run_shapes(device, 1, 3); /* one call */
    for (int i = 0; i < 20; i++) run_shapes(device, 4, 2); /* grouped: one call */
    assert_int_equal(blasd_standin.captures, 0);
    close_device(device);
    /* too few launches: found out once for each slot, then left alone */
    blasd_standin.refuse_grouped = 1u << BLASD_float32;
    blasd_cuda_habits.graph_nodes = 40;
    device = open_device();
    for (int i = 0; i < 20; i++) run_shapes(device, 4, 2);
    assert_int_equal(blasd_standin.captures, BLASD_CUDA_SLOTS);
    assert_int_equal(blasd_standin.replays, 0);
    close_device(device);
}

static void without_graphs_work_goes_on(void **state) {
    struct blasd_device *device;
    (void)state;
    blasd_standin.refuse_grouped = 1u << BLASD_float32;
    blasd_standin.no_capture = true;
    device = open_device();
    for (int i = 0; i < 12; i++) run_shapes(device, 4, 2);
    assert_int_equal(blasd_standin.captures, 0);
    close_device(device);
}

/* Each call fails in turn while the graph is made and while it is launched. */
static void fail_each_call(enum blasd_code code) {
    blasd_standin.refuse_grouped = 1u << BLASD_float32;
    blasd_cuda_habits.tune_seen = 0;
    for (int later = 0; later < 2; later++)
        for (int n = 1;; n++) {
            struct blasd_device *device = open_device();
            struct trial *trials[4];
            int got;
            bool more;
            /* the first batch lets sizes settle; a slot sees every second one */
            for (int i = 0; i < (later ? 6 : 4); i++) run_shapes(device, 4, 1);
            assert_int_equal(blasd_standin.graphs, later ? BLASD_CUDA_SLOTS : 0);
            make_shapes(trials, 4, 1);
            blasd_standin.fail_at = n;
            blasd_standin.fail_code = code;
            got = try_run(device, trials, 4);
            more = blasd_standin.fail_at == 0;
            blasd_standin.fail_at = 0;
            if (got != 0) assert_int_equal(got, -(int)code);
            make_shapes(trials, 4, 1);
            assert_int_equal(try_run(device, trials, 4),
                             blasd_standin.broken ? -(int)BLASD_E_device_error : 0);
            blasd_standin_mend();
            close_device(device);
            if (!more) break;
            assert_true(n < 1000);
        }
}

static void a_graph_that_cannot_be_made(void **state) {
    (void)state;
    fail_each_call(BLASD_E_internal_error);
}
static void a_graph_for_which_memory_is_short(void **state) {
    (void)state;
    fail_each_call(BLASD_E_out_of_memory);
}
static void a_device_that_breaks_while_a_graph_is_made(void **state) {
    (void)state;
    fail_each_call(BLASD_E_device_error);
}

static void graphs_are_bounded(void **state) {
    struct blasd_device *device;
    (void)state;
    blasd_standin.refuse_grouped = 1u << BLASD_float32;
    blasd_cuda_habits.tune_seen = 0;
    blasd_cuda_habits.graph_seen = 1;
    device = open_device();
    for (int round = 0; round < 3; round++)
        for (int each = 1; each <= 3; each++)
            for (int i = 2; i * each < MOST; i++) run_shapes(device, i, each);
    assert_true(blasd_standin.captures > BLASD_CUDA_SLOTS * BLASD_CUDA_GRAPHS);
    assert_true(blasd_standin.graphs <= BLASD_CUDA_SLOTS * BLASD_CUDA_GRAPHS);
    close_device(device);
}

/* A choice made later makes the graph stale. */
static void tuned_products_in_graphs(void **state) {
    struct blasd_device *device;
    long before;
    (void)state;
    blasd_standin.refuse_grouped = 1u << BLASD_float32;
    slow_choices();
    device = open_device();
    for (int i = 0; i < 24; i++) run_shapes(device, 4, 1);
    assert_true(blasd_standin.chosen[2] > 0);
    before = blasd_standin.gemms;
    for (int i = 0; i < 4; i++) run_shapes(device, 4, 1);
    assert_int_equal(blasd_standin.gemms, before); /* all by graphs now */
    close_device(device);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(a_shape_is_tuned_once_and_only_where_it_repeats),
        TEST(the_librarys_own_way_stays_where_it_is_best),
        TEST(an_algorithm_that_fails_is_dropped),
        TEST(tuning_survives_any_fault_that_does_not_stick),
        TEST(the_table_of_shapes_is_bounded),
        TEST(batches_that_repeat_become_graphs),
        TEST(where_graphs_gain_nothing_there_are_none),
        TEST(without_graphs_work_goes_on),
        TEST(a_graph_that_cannot_be_made),
        TEST(a_graph_for_which_memory_is_short),
        TEST(a_device_that_breaks_while_a_graph_is_made),
        TEST(graphs_are_bounded),
        TEST(tuned_products_in_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
