/* solve: what it says, and what it refuses; singular systems alone and in stacks; shapes, orders,
 * broadcasting and batches. Read next: test_solve.c, for how good the answers are. */
#include "kernel_support.h"
#include "kernels/cpu/ref.h"

#include <limits.h>
#include <sys/resource.h>

/* ---- words ---- */

static void a_known_system_and_its_report(void **state) {
    struct trial *t = trial_new("solve");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){2, 2});
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){2});
    (void)state;
    memcpy(a, (double[]){3, 1, 1, 2}, 4 * sizeof *a);
    memcpy(b, (double[]){9, 8}, 2 * sizeof *b);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(trial_output(t, "x")->rank, 1);
    ASSERT_CLOSE(trial_value(trial_output(t, "x"), 0), 2, 0);
    ASSERT_CLOSE(trial_value(trial_output(t, "x"), 1), 3, 0);
    assert_int_equal(trial_output(t, "info")->rank, 0);
    ASSERT_CLOSE(trial_value(trial_output(t, "rcond"), 0), 5.0 / 16, 1e-15);
    assert_int_equal(strncmp(t->task.method, "lu", 2), 0);
    assert_int_equal(t->task.warning_count, 0);
    trial_set_choice(t, "assume_a", "symmetric");
    a[2] = 1.5; /* not what stands in the upper triangle */
    assert_int_equal(trial_run(t), BLASD_OK);
    ASSERT_CLOSE(trial_value(trial_output(t, "x"), 0), 2, 0);
    assert_int_equal(t->task.warning_count, 1);
    assert_non_null(strstr(t->task.warnings[0].text, "not symmetric"));
    trial_free(t);
}

static void integers_are_taken_as_float64(void **state) {
    struct trial *t = trial_new("solve");
    int16_t *a = trial_input(t, "a", BLASD_int16, BLASD_COLUMN_MAJOR, 2, (int64_t[]){2, 2});
    float *b = trial_input(t, "b", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){2, 1});
    (void)state;
    memcpy(a, (int16_t[]){1, 3, 2, 4}, 4 * sizeof *a); /* [[1, 2], [3, 4]] */
    memcpy(b, (float[]){5, 11}, 2 * sizeof *b);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(trial_output(t, "x")->dtype, BLASD_float64);
    assert_int_equal(trial_output(t, "x")->rank, 2);
    ASSERT_CLOSE(trial_value(trial_output(t, "x"), 0), 1, 0);
    ASSERT_CLOSE(trial_value(trial_output(t, "x"), 1), 2, 0);
    trial_free(t);
}

static void refused(void **state) {
    static const struct {
        int ra, rb;
        int64_t a[4], b[4];
        double value;
        enum blasd_code code;
        const char *field;
    } cases[] = {
        {2, 1, {2, 3}, {2}, 1, BLASD_E_invalid_shape, "inputs.a"},
        {1, 1, {2}, {2}, 1, BLASD_E_invalid_shape, "inputs.a"},
        {2, 0, {2, 2}, {0}, 1, BLASD_E_invalid_shape, "inputs.b"},
        {2, 1, {2, 2}, {3}, 1, BLASD_E_shape_mismatch, "inputs.b"},
        {3, 2, {4, 2, 2}, {4, 2}, 1, BLASD_E_shape_mismatch, "inputs.b"}, /* not a stack of vectors
                                                                           */
        {3, 3, {4, 2, 2}, {3, 2, 1}, 1, BLASD_E_shape_mismatch, "inputs.b"},
        {2, 1, {2, 2}, {2}, NAN, BLASD_E_not_finite, "inputs.a"},
        {2, 1, {2, 2}, {2}, INFINITY, BLASD_E_not_finite, "inputs.a"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial *t = trial_new("solve");
        double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, cases[i].ra, cases[i].a);
        a[0] = cases[i].value;
        trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, cases[i].rb, cases[i].b);
        assert_int_equal(trial_plan(t), cases[i].code);
        assert_string_equal(t->err.field, cases[i].field);
        trial_free(t);
    }
}

/* ---- singular and not ---- */

static void singular_fails_alone(void **state) {
    static const struct {
        const char *assume;
        double a[9];
        enum blasd_code code;
        const char *text;
    } cases[] = {
        {"general", {1, 2, 0, 2, 4, 0, 0, 0, 1}, BLASD_E_singular_matrix, "column 2"},
        {"general", {0}, BLASD_E_singular_matrix, "column 1"},
        {"general", {1, 1, 1, 1, 1, 1, 1, 1, 1}, BLASD_E_singular_matrix, "column 2"},
        {"general", {1e300, 0, 0, 0, 0, 0, 0, 0, 1e-300}, BLASD_E_singular_matrix, "column"},
        {"symmetric", {0}, BLASD_E_singular_matrix, "column"},
        {"symmetric", {1, 1, 1, 1, 1, 1, 1, 1, 1}, BLASD_E_singular_matrix, "column"},
        {"positive_definite",
         {1, 0, 0, 0, -1, 0, 0, 0, 1},
         BLASD_E_not_positive_definite,
         "order 2"},
        {"positive_definite",
         {1, 2, 0, 2, 1, 0, 0, 0, 1},
         BLASD_E_not_positive_definite,
         "order 2"},
        {"positive_definite", /* overflows where it is scaled */
         {1e-300, 0, 1e300, 0, 1, 0, 1e300, 0, 1},
         BLASD_E_not_positive_definite,
         "order 3"},
        {"positive_definite", {1, 1, 0, 1, 1, 0, 0, 0, 1}, BLASD_E_singular_matrix, "column 2"},
        {"lower_triangular", {1, 9, 9, 1, 0, 9, 1, 1, 1}, BLASD_E_singular_matrix, "column 2"},
        {"upper_triangular", {1, 1, 1, 9, 1, 1, 9, 9, 0}, BLASD_E_singular_matrix, "column 3"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial *t = trial_new("solve");
        double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){3, 3});
        trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){3});
        memcpy(a, cases[i].a, sizeof cases[i].a);
        trial_set_choice(t, "assume_a", cases[i].assume);
        assert_int_equal(trial_run(t), cases[i].code);
        assert_string_equal(t->task.err.field, "inputs.a");
        if (strstr(t->task.err.detail, cases[i].text) == NULL)
            fail_msg("case %d: %s", (int)i, t->task.err.detail);
        trial_free(t);
    }
}

static void singular_ones_in_a_stack_are_marked(void **state) {
    static const char *const assumes[] = {"general", "symmetric", "positive_definite",
                                          "lower_triangular", "upper_triangular"};
    (void)state;
    for (int64_t n = 1; n <= 50; n += n < 6 ? 1 : 11)
        for (int which = 0; which < 5; which++) {
            int64_t count = trial_between(1, 23);
            struct trial *t = trial_new("solve");
            float *a =
                trial_input(t, "a", BLASD_float32, BLASD_ROW_MAJOR, 3, (int64_t[]){count, n, n});
            float *b =
                trial_input(t, "b", BLASD_float32, BLASD_ROW_MAJOR, 3, (int64_t[]){count, n, 2});
            bool bad[32];
            const struct blasd_tensor *x;
            for (int64_t s = 0; s < count; s++) {
                bad[s] = trial_between(0, 2) == 0;
                for (int64_t i = 0; i < n; i++) a[s * n * n + i * n + i] = (float)(s + 2);
                for (int64_t i = 0; i < 2 * n; i++) b[s * n * 2 + i] = (float)(i * (s + 2));
                if (bad[s]) a[s * n * n + (n - 1) * (n + 1)] = 0;
            }
            trial_set_choice(t, "assume_a", assumes[which]);
            assert_int_equal(trial_run(t), BLASD_OK);
            x = trial_output(t, "x");
            for (int64_t s = 0; s < count; s++) {
                ASSERT_CLOSE(trial_value(trial_output(t, "info"), s), bad[s] ? n : 0, 0);
                ASSERT_CLOSE(trial_value(trial_output(t, "rcond"), s), bad[s] ? 0 : 1, 1e-6);
                for (int64_t i = 0; i < 2 * n; i++) {
                    double got = trial_value(x, s * 2 * n + i);
                    if (bad[s])
                        assert_true(isnan(got));
                    else
                        ASSERT_CLOSE(got, i, 0);
                }
            }
            trial_free(t);
        }
}

/* ---- shapes ---- */

static void stacks_broadcast(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        int64_t n = trial_between(1, 12), k = trial_between(1, 3), p = trial_between(1, 4);
        int64_t q = trial_between(1, 5);
        bool vector = trial_between(0, 3) == 0;
        int64_t sa[4] = {trial_between(0, 1) ? p : 1, trial_between(0, 1) ? q : 1, n, n};
        int64_t sb[4] = {trial_between(0, 1) ? p : 1, trial_between(0, 1) ? q : 1, n, k};
        int skip_a = (int)trial_between(0, 2), skip_b = (int)trial_between(0, 2);
        struct trial *t = trial_new("solve");
        double *a = trial_input(t, "a", BLASD_float64,
                                trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR,
                                4 - skip_a, sa + skip_a);
        double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, vector ? 1 : 4 - skip_b,
                                vector ? &n : sb + skip_b);
        struct blasd_tensor ta = t->job.inputs[0].tensor, tb = t->job.inputs[1].tensor;
        const struct blasd_tensor *x;
        int64_t columns = vector ? 1 : k, batch;
        ta.data = a;
        tb.data = b;
        for (int64_t i = 0; i < blasd_tensor_elements(&ta); i++) a[i] = trial_normal();
        for (int64_t i = 0; i < blasd_tensor_elements(&tb); i++) b[i] = trial_normal();
        assert_int_equal(trial_run(t), BLASD_OK);
        x = trial_output(t, "x");
        batch = blasd_tensor_elements(trial_output(t, "info"));
        assert_int_equal(blasd_tensor_elements(x), batch * n * columns);
        assert_int_equal(x->rank, trial_output(t, "info")->rank + (vector ? 1 : 2));
        for (int64_t s = 0; s < batch; s++) {
            int rank = trial_output(t, "info")->rank;
            int64_t q_here = rank > 0 ? trial_output(t, "info")->shape[rank - 1] : 1;
            int64_t at[4] = {s / q_here, s % q_here, 0, 0};
            for (int64_t i = 0; i < n; i++)
                for (int64_t c = 0; c < columns; c++) {
                    long double r, size;
                    at[2] = i;
                    at[3] = c;
                    r = blasd_ref_at(&tb, vector ? &at[2] : at + skip_b);
                    size = fabsl(r);
                    for (int64_t j = 0; j < n; j++) {
                        long double v = trial_value(x, (s * n + j) * columns + c), e;
                        at[3] = j;
                        e = blasd_ref_at(&ta, at + skip_a);
                        r -= e * v;
                        size += fabsl(e * v);
                    }
                    ASSERT_CLOSE(r, 0, 16 * (double)n * 0x1p-53 * (double)size);
                }
        }
        trial_free(t);
    }
}

static void results_do_not_depend_on_who_is_in_the_batch(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 44; n += n < 10 ? 1 : 7)
        for (int single = 0; single < 2; single++) {
            enum { COUNT = 21 };
            enum blasd_dtype dtype = single ? BLASD_float32 : BLASD_float64;
            size_t size = blasd_dtype_size(dtype), in_a = (size_t)(n * n) * size;
            struct trial *list[COUNT], *alone;
            for (int i = 0; i < COUNT; i++) {
                void *a, *b;
                list[i] = trial_new("solve");
                a = trial_input(list[i], "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
                b = trial_input(list[i], "b", dtype, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
                for (int64_t e = 0; e < n * n; e++)
                    trial_put(a, dtype, e,
                              i == 3   ? 0 /* singular */
                              : i == 7 ? trial_normal() * ldexp(1, (int)(-9 * (e / n)))
                              : i == 8 && e >= n * (n - 1)
                                  ? trial_value(&(struct blasd_tensor){.dtype = dtype, .data = a},
                                                e % n) +
                                        (single ? 1e-6 : 1e-14) * trial_normal()
                                  : trial_normal());
                for (int64_t e = 0; e < n; e++) trial_put(b, dtype, e, trial_normal());
            }
            assert_int_equal(trial_run_batch(list, COUNT), BLASD_OK);
            for (int i = 0; i < COUNT; i++) {
                alone = trial_new("solve");
                memcpy(trial_input(alone, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n}),
                       list[i]->given[0], in_a);
                memcpy(trial_input(alone, "b", dtype, BLASD_ROW_MAJOR, 1, (int64_t[]){n}),
                       list[i]->given[1], (size_t)n * size);
                assert_int_equal(trial_run(alone), list[i]->task.err.code);
                if (i == 3) assert_int_equal(list[i]->task.err.code, BLASD_E_singular_matrix);
                assert_string_equal(alone->task.method, list[i]->task.method);
                if (list[i]->task.err.code == BLASD_OK)
                    assert_memory_equal(trial_output(alone, "x")->data,
                                        trial_output(list[i], "x")->data, (size_t)n * size);
                assert_memory_equal(trial_output(alone, "rcond")->data,
                                    trial_output(list[i], "rcond")->data, sizeof(double));
                trial_free(alone);
            }
            for (int i = 0; i < COUNT; i++) trial_free(list[i]);
        }
}

static void empty_shapes(void **state) {
    static const struct {
        int ra, rb;
        int64_t a[3], b[3];
    } cases[] = {
        {2, 2, {0, 0}, {0, 4}},       {2, 1, {0, 0}, {0}},          {2, 2, {3, 3}, {3, 0}},
        {3, 3, {0, 3, 3}, {0, 3, 1}}, {3, 3, {5, 3, 3}, {5, 3, 0}}, {3, 2, {2, 0, 0}, {0, 2}},
        {2, 3, {3, 3}, {0, 3, 2}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial *t = trial_new("solve");
        double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, cases[i].ra, cases[i].a);
        int64_t elements = blasd_tensor_elements(&t->job.inputs[0].tensor);
        const struct blasd_tensor *info;
        for (int64_t e = 0; e < elements; e++) a[e] = e % 9 % 4 == 0;
        trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, cases[i].rb, cases[i].b);
        assert_int_equal(trial_run(t), BLASD_OK);
        info = trial_output(t, "info");
        assert_int_equal(blasd_tensor_elements(trial_output(t, "x")), 0);
        for (int64_t e = 0; e < blasd_tensor_elements(info); e++) {
            ASSERT_CLOSE(trial_value(info, e), 0, 0);
            ASSERT_CLOSE(trial_value(trial_output(t, "rcond"), e), 1, 0);
            ASSERT_CLOSE(trial_value(trial_output(t, "backward_error"), e), 0, 0);
        }
        trial_free(t);
    }
}

/* ---- memory ---- */

static long faults_of_a_run(struct trial *t) {
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    assert_int_equal(trial_run(t), BLASD_OK);
    getrusage(RUSAGE_THREAD, &after);
    return after.ru_minflt - before.ru_minflt;
}

/* Fresh pages for each job cost as much as its factors. */
static void a_job_works_in_the_memory_of_the_last(void **state) {
#if defined __SANITIZE_ADDRESS__ || !defined TRIAL_ON_THE_CPU
    skip(); /* an allocator that keeps what was freed from use; memory of a device */
#endif
    const int64_t n = 400, pages = 2 * n * n * 8 / 4096; /* of the matrix and its factors */
    struct trial *t = trial_new("solve");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
    long least = LONG_MAX;
    (void)state;
    for (int64_t i = 0; i < n * n; i++) a[i] = trial_uniform() + (i % (n + 1) == 0 ? 4 : 0);
    for (int64_t i = 0; i < n; i++) b[i] = trial_uniform();
    faults_of_a_run(t);
    for (int run = 0; run < 5; run++) {
        long faults = faults_of_a_run(t);
        least = faults < least ? faults : least;
    }
    if (least > pages / 4) fail_msg("%ld page faults, matrices have %lld", least, (long long)pages);
    trial_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_system_and_its_report),
        cmocka_unit_test(integers_are_taken_as_float64),
        cmocka_unit_test(refused),
        cmocka_unit_test(singular_fails_alone),
        cmocka_unit_test(singular_ones_in_a_stack_are_marked),
        cmocka_unit_test(stacks_broadcast),
        cmocka_unit_test(results_do_not_depend_on_who_is_in_the_batch),
        cmocka_unit_test(empty_shapes),
        cmocka_unit_test(a_job_works_in_the_memory_of_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
