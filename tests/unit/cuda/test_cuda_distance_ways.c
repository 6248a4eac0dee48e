/* distance on CUDA where it goes ways of its own: products and their repairs, matrices that do not
 * fit, many neighbours, whole tiles. Under several orders of threads and streams. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
int test_distance_main(void);
#define main test_distance_main
#include "../kernels/test_distance.c"
#undef main

#include "kernels/cuda/device.h"
#include "kernels/distance/pair_limits.h"
#include "tests/standin/library_standin.h"

extern uint64_t blasd_shim_seed;

static const enum blasd_dtype floats[] = {BLASD_float64, BLASD_float32, BLASD_float16,
                                          BLASD_bfloat16};

static void shuffle(int round) {
    blasd_standin.seed = (uint64_t)round;
    blasd_shim_seed = (uint64_t)round;
}

static const char *method_of(struct trial *t) {
    assert_int_equal(trial_run(t), BLASD_OK);
    return t->task.method;
}

/* The bits of an entry of d. */
static uint64_t bits_of(const struct trial *t, int64_t i) {
    const struct blasd_tensor *d = trial_output(t, "d");
    size_t size = blasd_dtype_size(d->dtype);
    uint64_t bits = 0;
    memcpy(&bits, (char *)d->data + (size_t)i * size, size);
    return bits;
}

/* The same inputs and metric with another output. */
static struct trial *with_output(const struct trial *t, const char *output) {
    struct trial *copy = trial_new("distance");
    for (int i = IN_X; i <= IN_VI; i++) {
        const struct blasd_tensor *tensor = &t->job.inputs[i].tensor;
        if (!blasd_job_has(&t->job, i)) continue;
        memcpy(trial_input(copy, t->job.op->inputs[i].name, tensor->dtype, tensor->order,
                           tensor->rank, tensor->shape),
               t->given[i], blasd_tensor_bytes(tensor));
    }
    memcpy(copy->job.params, t->job.params, sizeof copy->job.params);
    trial_set_choice(copy, "output", output);
    return copy;
}

static void symmetric_with_zeros(const struct trial *t, int64_t m, int64_t a, int64_t b) {
    for (int64_t i = 0; i < m; i++) {
        assert_true(trial_value(trial_output(t, "d"), i * m + i) == 0);
        for (int64_t j = 0; j < i; j++)
            if (bits_of(t, i * m + j) != bits_of(t, j * m + i))
                fail_msg("%ld, %ld: not symmetric", (long)i, (long)j);
    }
    assert_true(trial_value(trial_output(t, "d"), a * m + b) == 0);
}

static void condensed_is_as_full(struct trial *full, int64_t m) {
    struct trial *t = with_output(full, "condensed");
    int64_t at = 0;
    assert_int_equal(trial_run(t), 0);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i + 1; j < m; j++, at++)
            assert_true(bits_of(t, at) == bits_of(full, i * m + j));
    trial_free(t);
}

/* Element `i` of points of any dtype. */
static void set_point(struct trial *t, int input, int64_t i, double value) {
    enum blasd_dtype dtype = t->job.inputs[input].tensor.dtype;
    struct blasd_tensor from = blasd_tensor_make(BLASD_float64, 0, NULL);
    struct blasd_tensor to = blasd_tensor_make(dtype, 0, NULL);
    from.data = &value;
    to.data = (char *)t->given[input] + (size_t)i * blasd_dtype_size(dtype);
    blasd_tensor_convert(&from, &to);
}

static void products_keep_what_differences_have(void **state) {
    static const char *const metrics[] = {"euclidean",   "sqeuclidean", "cosine",
                                          "correlation", "seuclidean",  "minkowski"};
    static const int64_t shapes[][3] = {{70, 130, 64}, {128, 64, 96}, {5, 9, 65}, {131, 68, 200}};
    struct blasd_distance_limits kept = blasd_distance_limits;
    (void)state;
    blasd_distance_limits.product_pairs = 1;
    blasd_distance_limits.product_deep_f64 = blasd_distance_limits.product_deep_f32 = 64;
    for (int round = 0; round < 96; round += trial_step(5)) {
        const int64_t *s = shapes[round % 4];
        enum blasd_dtype dtype = floats[round / 4 % 4];
        const char *metric = metrics[round / 16];
        bool alone = trial_random() % 2 == 0, exact = dtype <= BLASD_float32;
        struct distance_shape shape;
        struct trial *t = make(metric, dtype, s[0], s[1], s[2], alone);
        int64_t a = trial_between(0, s[0] - 1), b = trial_between(0, s[0] - 1);
        shuffle(round);
        blasd_distance_limits.product_bytes = trial_random() % 2 ? 1 : 1 << 20;
        if (strcmp(metric, "minkowski") == 0) trial_set_float(t, "p", 2);
        if (strcmp(metric, "seuclidean") != 0 && trial_random() % 2) weigh(t, s[2]);
        if (alone)
            for (int64_t d = 0; d < s[2]; d++)
                set_point(
                    t, IN_X, b * s[2] + d,
                    trial_value(&(struct blasd_tensor){.dtype = dtype, .data = t->given[IN_X]},
                                a * s[2] + d));
        assert_int_equal(blasd_distance_read(&t->job, &shape, &t->err), 0);
        assert_string_equal(method_of(t), shape.arithmetic == BLASD_float64
                                              ? "dgemm and direct float64"
                                              : "dgemm and direct float32");
        check_full(t);
        if (alone) symmetric_with_zeros(t, s[0], a, b);
        if (alone && exact) condensed_is_as_full(t, s[0]);
        trial_free(t);
    }
    blasd_distance_limits = kept;
}

/* Far from the origin, and in clusters: few or many entries of a tile cancel. */
static void what_cancels_is_computed_again(void **state) {
    struct blasd_distance_limits kept = blasd_distance_limits;
    (void)state;
    blasd_distance_limits.product_pairs = 1;
    blasd_distance_limits.product_deep_f64 = blasd_distance_limits.product_deep_f32 = 64;
    for (int round = 0; round < 24; round++) {
        const int64_t m = 150, n = 140, k = 64 + round;
        enum blasd_dtype dtype = floats[round % 2];
        int64_t clusters = round % 3 == 0 ? 2 : round % 3 == 1 ? 60 : m;
        struct trial *t =
            make(round % 4 < 2 ? "sqeuclidean" : "euclidean", dtype, m, n, k, round % 8 < 4);
        shuffle(round);
        for (int input = IN_X; input <= IN_Y; input++) {
            if (!blasd_job_has(&t->job, input)) continue;
            for (int64_t i = 0; i < (input == IN_X ? m : n); i++)
                for (int64_t d = 0; d < k; d++) {
                    double centre = 1e3 * sin((double)(i % clusters * 31 + d * 7));
                    set_point(t, input, i * k + d, 1e6 + centre + trial_normal());
                }
        }
        assert_non_null(strstr(method_of(t), "dgemm"));
        check_full(t);
        if (!blasd_job_has(&t->job, IN_Y)) symmetric_with_zeros(t, m, 0, 0);
        trial_free(t);
    }
    blasd_distance_limits = kept;
}

/* Rows of opposite directions are 2 apart by way of a product, too, and not more. */
static void products_of_opposite_rows(void **state) {
    const int64_t m = 70, k = 64;
    struct blasd_distance_limits kept = blasd_distance_limits;
    (void)state;
    blasd_distance_limits.product_pairs = 1;
    blasd_distance_limits.product_deep_f64 = 64;
    for (int round = 0; round < 8; round++) {
        struct trial *t =
            make(round % 2 ? "cosine" : "correlation", floats[round / 2 % 2], m, m, k, false);
        const struct blasd_tensor x = {.dtype = floats[round / 2 % 2], .data = t->given[IN_X]};
        for (int64_t i = 0; i < m * k; i++) set_point(t, IN_Y, i, -trial_value(&x, i));
        assert_non_null(strstr(method_of(t), "dgemm"));
        for (int64_t i = 0; i < m; i++) {
            double d = trial_value(trial_output(t, "d"), i * m + i);
            assert_true(d <= 2 && d > 1.999999);
        }
        trial_free(t);
    }
    blasd_distance_limits = kept;
}

static void products_of_odd_numbers(void **state) {
    static const double odd[] = {NAN, INFINITY, -INFINITY, 1e200, 1e-200, 1e300};
    struct blasd_distance_limits kept = blasd_distance_limits;
    (void)state;
    blasd_distance_limits.product_pairs = 1;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct trial *t = make("euclidean", BLASD_float64, 70, 66, 64, false);
        for (int64_t d = 0; isfinite(odd[i]) && d < 70 * 64; d++)
            ((double *)t->given[IN_X])[d] *= odd[i];
        for (int64_t d = 0; isfinite(odd[i]) && d < 66 * 64; d++)
            ((double *)t->given[IN_Y])[d] *= odd[i];
        if (!isfinite(odd[i])) ((double *)t->given[IN_X])[3 * 64 + 5] = odd[i];
        /* what leaves the range is the host's */
        assert_int_equal(strstr(method_of(t), "dgemm") != NULL, !isfinite(odd[i]));
        if (isfinite(odd[i])) check_full(t);
        for (int64_t e = 0; e < 70 * 66; e++) {
            double d = trial_value(trial_output(t, "d"), e);
            if (isnan(odd[i]) && e / 66 == 3)
                assert_true(isnan(d));
            else if (isinf(odd[i]) && e / 66 == 3)
                assert_true(isinf(d));
            else
                assert_true(isfinite(d) && d > 0);
        }
        trial_free(t);
    }
    blasd_distance_limits = kept;
}

/* On a device of a few kB, which is what the kernel believes here, matrices go down in rows. */
static void what_does_not_fit_goes_down_in_rows(void **state) {
    struct blasd_gpu_facts *facts = &trial_device()->facts;
    uint64_t memory = facts->memory_bytes;
    (void)state;
    for (int round = 0; round < 48; round += trial_step(5)) {
        int64_t m = trial_between(1, 200), n = trial_between(1, 200);
        bool alone = round % 3 != 0;
        struct trial *t =
            make(round % 2 ? "cityblock" : "jensenshannon", floats[round % 4], m, n, 3, alone);
        struct trial *rows = with_output(t, round % 3 == 2 ? "condensed" : "full"), *whole;
        whole = with_output(rows, round % 3 == 2 ? "condensed" : "full");
        shuffle(round);
        assert_null(strstr(method_of(whole), "in rows"));
        facts->memory_bytes = (uint64_t)trial_between(200, 100000);
        assert_non_null(strstr(method_of(rows), "in rows"));
        facts->memory_bytes = memory;
        assert_memory_equal(trial_output(rows, "d")->data, trial_output(whole, "d")->data,
                            blasd_tensor_bytes(trial_output(rows, "d")));
        trial_free(rows);
        trial_free(whole);
        trial_free(t);
    }
}

/* Row numbers in the order of neighbours of row i of a full matrix. */
static const struct trial *compare_full;
static int64_t compare_from;
static int compare_near(const void *a, const void *b) {
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    double x = trial_value(trial_output(compare_full, "d"), compare_from + i);
    double y = trial_value(trial_output(compare_full, "d"), compare_from + j);
    if (isnan(x) != isnan(y)) return isnan(x) ? 1 : -1;
    if (x < y || x > y) return x < y ? -1 : 1;
    return i < j ? -1 : i > j;
}

static void check_neighbours(struct trial *full, struct trial *t, int64_t m, int64_t n, int64_t k,
                             bool alone) {
    int64_t *order = calloc((size_t)n, sizeof *order);
    const int64_t *index = trial_output(t, "index")->data;
    assert_non_null(order);
    compare_full = full;
    for (int64_t i = 0; i < m; i++) {
        int64_t count = 0;
        for (int64_t j = 0; j < n; j++)
            if (!alone || j != i) order[count++] = j;
        compare_from = i * n;
        qsort(order, (size_t)count, sizeof *order, compare_near);
        for (int64_t place = 0; place < k; place++) {
            double d = trial_value(trial_output(full, "d"), i * n + order[place]);
            double got = trial_value(trial_output(t, "d"), i * k + place);
            assert_int_equal(index[i * k + place], order[place]);
            assert_true(got == d || (isnan(got) && isnan(d)));
        }
    }
    free(order);
}

/* Few neighbours are kept at once, many are selected; in parts of rows or whole. */
static void neighbours_of_every_number(void **state) {
    static const int64_t numbers[] = {1, 2, 31, 64, 65, 100, 256, 299};
    struct blasd_distance_limits kept = blasd_distance_limits;
    struct blasd_gpu_facts *facts = &trial_device()->facts;
    int units = facts->units;
    (void)state;
    for (int round = 0; round < 32; round += trial_step(5)) {
        int64_t m = trial_between(1, 90), n = 300, k = numbers[round % 8];
        bool alone = round % 16 >= 8;
        struct trial *full, *t;
        if (alone) m = n;
        full = make("cityblock", floats[round / 4 % 4 == 2 ? 0 : round / 4 % 4], m, n, 2, alone);
        shuffle(round);
        for (int input = IN_X; input <= (alone ? IN_X : IN_Y); input++)
            for (int64_t i = 0; i < 2 * (input == IN_X ? m : n); i++)
                set_point(full, input, i,
                          trial_random() % 50 == 0 ? NAN : (double)trial_between(-9, 9));
        blasd_distance_limits.select_bytes = trial_between(1, 1 << 16);
        facts->units = (int)trial_between(1, 60);
        assert_int_equal(trial_run(full), 0);
        t = with_output(full, "topk");
        trial_set_int(t, "k", k);
        if (k > 64)
            assert_non_null(strstr(method_of(t), "selected"));
        else
            assert_null(strstr(method_of(t), "selected"));
        check_neighbours(full, t, m, n, k, alone);
        trial_free(t);
        t = with_output(full, "within");
        trial_set_float(t, "radius", 7);
        trial_set_int(t, "max_pairs", m * n);
        assert_int_equal(trial_run(t), 0);
        for (int64_t i = 0, at = 0; i < m; i++) {
            assert_int_equal(((int64_t *)trial_output(t, "row_splits")->data)[i], at);
            for (int64_t j = 0; j < n; j++) {
                double d = trial_value(trial_output(full, "d"), i * n + j);
                if (!(d <= 7) || (alone && i == j)) continue;
                assert_int_equal(((int64_t *)trial_output(t, "index")->data)[at], j);
                assert_true(trial_value(trial_output(t, "d"), at++) == d);
            }
        }
        trial_free(t);
        trial_free(full);
    }
    facts->units = units;
    blasd_distance_limits = kept;
}

/* Rows that are aligned to whole vectors, and problems of more tiles than one. */
static void whole_tiles_of_every_metric(void **state) {
    static const int64_t shapes[][3] = {{128, 64, 3}, {64, 192, 17}, {65, 64, 33}, {192, 192, 4}};
    (void)state;
    for (int metric = 0; metric < DISTANCE_METRIC_COUNT; metric++) {
        for (int s = 0; s < 4; s++) {
            struct trial *t = make(blasd_distance_metrics[metric].name, floats[(metric + s) % 4],
                                   shapes[s][0], shapes[s][1], shapes[s][2], s == 3);
            shuffle(metric + s);
            assert_int_equal(trial_run(t), 0);
            check_full(t);
            trial_free(t);
        }
    }
}

/* Problem `b` of a trial with x (2, m, k) and y (1, n, k) or (2, n, k), by itself. */
static struct trial *one_of(const struct trial *t, int64_t b) {
    struct trial *one = trial_new("distance");
    for (int i = IN_X; i <= IN_VI; i++) {
        const struct blasd_tensor *tensor = &t->job.inputs[i].tensor;
        size_t bytes = blasd_tensor_bytes(tensor);
        bool batch = i <= IN_Y;
        if (!blasd_job_has(&t->job, i)) continue;
        if (batch) bytes /= (size_t)tensor->shape[0];
        memcpy(trial_input(one, t->job.op->inputs[i].name, tensor->dtype, tensor->order,
                           tensor->rank - batch, tensor->shape + batch),
               (char *)t->given[i] + (batch && tensor->shape[0] > 1 ? (size_t)b * bytes : 0),
               bytes);
    }
    memcpy(one->job.params, t->job.params, sizeof one->job.params);
    return one;
}

/* Jobs of several problems in one batch give what each problem gives alone. */
static void batches_are_as_single_problems(void **state) {
    static const char *const metrics[] = {"euclidean", "seuclidean",  "mahalanobis",
                                          "cosine",    "correlation", "jensenshannon",
                                          "canberra",  "hamming",     "rogerstanimoto"};
    static const char *const outputs[] = {"full", "topk", "within", "argmin"};
    struct blasd_distance_limits kept = blasd_distance_limits;
    struct blasd_gpu_facts *facts = &trial_device()->facts;
    uint64_t memory = facts->memory_bytes;
    (void)state;
    for (int round = 0; round < 54; round += trial_step(5)) {
        const char *metric = metrics[round % 9], *output = outputs[round / 9 % 4];
        enum blasd_dtype dtype = floats[round / 2 % 2];
        int64_t m = trial_between(20, 80), n = trial_between(20, 80), k = trial_between(2, 9);
        int64_t both = trial_between(1, 2);
        bool weighted = trial_random() % 2 == 0 && strcmp(metric, "seuclidean") != 0 &&
                        strcmp(metric, "mahalanobis") != 0 && strcmp(metric, "jensenshannon") != 0;
        struct trial *list[3];
        shuffle(round);
        blasd_distance_limits.product_pairs = round >= 36 ? INT64_MAX : 1; /* then in rows */
        blasd_distance_limits.product_deep_f64 = blasd_distance_limits.product_deep_f32 = 2;
        if (round >= 36) facts->memory_bytes = 50000;
        for (int i = 0; i < 3; i++) {
            list[i] = trial_new("distance");
            fill(trial_input(list[i], "x", dtype, BLASD_ROW_MAJOR, 3, (int64_t[]){2, m, k}), dtype,
                 2 * m * k, metric, 0);
            fill(trial_input(list[i], "y", dtype, BLASD_ROW_MAJOR, 3, (int64_t[]){both, n, k}),
                 dtype, both * n * k, metric, 0);
            trial_set_choice(list[i], "metric", metric);
            trial_set_choice(list[i], "output", output);
            if (strcmp(output, "topk") == 0) trial_set_int(list[i], "k", 5);
            if (strcmp(output, "within") == 0) trial_set_float(list[i], "radius", 1);
            if (strcmp(output, "within") == 0) trial_set_int(list[i], "max_pairs", m * n);
            if (weighted) weigh(list[i], k);
            if (weighted) ((double *)list[i]->given[IN_W])[0] = i + 1;
        }
        assert_int_equal(trial_run_batch(list, 3), 0);
        if (round >= 36 && round < 45) assert_non_null(strstr(list[0]->task.method, "in rows"));
        facts->memory_bytes = memory;
        for (int i = 0; i < 6; i++) {
            struct trial *one = one_of(list[i / 2], i % 2);
            assert_int_equal(trial_run(one), 0);
            for (int o = 0; o < 3; o++) {
                size_t bytes =
                    one->task.outputs[o].rank < 0 ? 0 : blasd_tensor_bytes(&one->task.outputs[o]);
                if (bytes > 0)
                    assert_memory_equal((char *)list[i / 2]->task.outputs[o].data +
                                            (size_t)(i % 2) * bytes,
                                        one->task.outputs[o].data, bytes);
            }
            trial_free(one);
        }
        for (int i = 0; i < 3; i++) trial_free(list[i]);
    }
    blasd_distance_limits = kept;
}

/* A task whose weights are wrong, or whose points have no inverse covariance, fails alone. */
static void bad_tasks_fail_alone(void **state) {
    struct trial *list[4];
    (void)state;
    for (int c = 0; c < 2; c++) {
        for (int i = 0; i < 4; i++) {
            list[i] = make("cityblock", BLASD_float64, 12, 9, 3, true);
            if (c == 0) weigh(list[i], 3);
            if (c == 0 && i == 2) ((double *)list[i]->given[IN_W])[1] = -1;
            if (c == 1) trial_set_choice(list[i], "metric", "mahalanobis");
            for (int64_t p = 0; c == 1 && i == 1 && p < 12; p++)
                ((double *)list[i]->given[IN_X])[3 * p] =
                    ((double *)list[i]->given[IN_X])[3 * p + 1];
        }
        assert_int_equal(trial_run_batch(list, 4), 0);
        for (int i = 0; i < 4; i++) {
            enum blasd_code expected = c == 0 && i == 2   ? BLASD_E_out_of_range
                                       : c == 1 && i == 1 ? BLASD_E_singular_matrix
                                                          : BLASD_OK;
            assert_int_equal(list[i]->task.err.code, expected);
            if (c == 0 && i != 2) check_full(list[i]);
            trial_free(list[i]);
        }
    }
}

/* Every call of the library fails once: the job fails or is right, and the next one is right. */
static void faults_are_errors_and_no_more(void **state) {
    static const struct {
        const char *metric, *output;
        int64_t k;
        bool rows;
    } cases[] = {{"cosine", "full", 3, false},     {"mahalanobis", "full", 2, false},
                 {"euclidean", "full", 64, false}, {"cityblock", "condensed", 2, true},
                 {"euclidean", "topk", 2, false},  {"seuclidean", "topk", 2, false},
                 {"euclidean", "within", 2, false}};
    struct blasd_distance_limits kept = blasd_distance_limits;
    struct blasd_gpu_facts *facts = &trial_device()->facts;
    uint64_t memory = facts->memory_bytes;
    (void)state;
    blasd_distance_limits.product_pairs = 1;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct trial *t = trial_new("distance"), *again;
        bool more = true;
        int failed = 0;
        fill(trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){30, cases[c].k}),
             BLASD_float64, 30 * cases[c].k, "", 0);
        trial_set_choice(t, "metric", cases[c].metric);
        trial_set_choice(t, "output", cases[c].output);
        if (strcmp(cases[c].output, "within") == 0) trial_set_float(t, "radius", 1);
        if (strcmp(cases[c].output, "topk") == 0) trial_set_int(t, "k", c == 4 ? 3 : 29);
        if (c == 5) blasd_distance_limits.nearest_most = 4;
        again = with_output(t, cases[c].output);
        if (cases[c].rows) facts->memory_bytes = 1000;
        assert_int_equal(trial_run(again), 0);
        for (int at = 1; more; at += trial_step(5)) {
            enum blasd_code code;
            blasd_standin.fail_at = at;
            blasd_standin.fail_code = at % 2 ? BLASD_E_internal_error : BLASD_E_out_of_memory;
            code = trial_run(t);
            more = blasd_standin.fail_at == 0; /* it has come */
            blasd_standin.fail_at = 0;
            if (code != BLASD_OK) {
                failed++;
                assert_true(code == BLASD_E_internal_error || code == BLASD_E_out_of_memory);
                continue;
            }
            for (int o = 0; o < 3; o++)
                if (t->task.outputs[o].rank >= 0)
                    assert_memory_equal(t->task.outputs[o].data, again->task.outputs[o].data,
                                        blasd_tensor_bytes(&t->task.outputs[o]));
        }
        assert_true(failed > 0);
        facts->memory_bytes = memory;
        trial_free(t);
        trial_free(again);
    }
    blasd_distance_limits = kept;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_keep_what_differences_have),
        cmocka_unit_test(what_cancels_is_computed_again),
        cmocka_unit_test(products_of_odd_numbers),
        cmocka_unit_test(products_of_opposite_rows),
        cmocka_unit_test(what_does_not_fit_goes_down_in_rows),
        cmocka_unit_test(neighbours_of_every_number),
        cmocka_unit_test(whole_tiles_of_every_metric),
        cmocka_unit_test(batches_are_as_single_problems),
        cmocka_unit_test(bad_tasks_fail_alone),
        cmocka_unit_test(faults_are_errors_and_no_more),
    };
    blasd_cuda_sizes = (struct blasd_cuda_sizes){
        .chunk_bytes = 4096, .part_bytes = (size_t)1 << 20, .block_bytes = 4096};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
