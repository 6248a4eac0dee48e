/* solve on CUDA where it differs from the CPU's: the ways that systems take by size, stacks whose
 * factors come from the library in one call or one by one, columns shared out among blocks, and
 * systems that the host leads through. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
int test_solve_main(void);
#define main test_solve_main
#include "../kernels/test_solve.c"
#undef main

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

extern uint64_t blasd_shim_seed;

/* A stack of `count` systems, of these kinds by turns; PERMUTATION stands for all zeros. With
 * `shared` one matrix, the first kind's, serves them all. */
struct stack {
    int64_t count, n, columns;
    enum blasd_dtype dtype;
    const char *assume;
    bool shared;
    int kind_count;
    enum kind kinds[4];
};

static struct trial *make_stack(const struct stack *s) {
    int64_t n = s->n, matrices = s->shared ? 1 : s->count;
    int shape_up = strcmp(s->assume, "symmetric") == 0           ? 1
                   : strcmp(s->assume, "positive_definite") == 0 ? 2
                                                                 : 0;
    struct trial *t = trial_new("solve");
    void *a = trial_input(t, "a", s->dtype, BLASD_ROW_MAJOR, 3, (int64_t[]){matrices, n, n});
    void *b =
        trial_input(t, "b", s->dtype, BLASD_ROW_MAJOR, 3, (int64_t[]){s->count, n, s->columns});
    for (int64_t m = 0; m < matrices; m++) {
        enum kind kind = s->kinds[m % s->kind_count];
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = shape_up > 0 ? i : 0; j < n; j++) {
                double v =
                    kind == PERMUTATION ? 0 : element(kind, n, i, j, s->dtype == BLASD_float32);
                if (shape_up == 2 && kind != PERMUTATION)
                    v = i == j ? 2 * (double)n * (fabs(v) + 10) : v;
                trial_put(a, s->dtype, (m * n + i) * n + j, v);
                if (shape_up > 0) trial_put(a, s->dtype, (m * n + j) * n + i, v);
            }
    }
    for (int64_t i = 0; i < s->count * n * s->columns; i++)
        trial_put(b, s->dtype, i, trial_normal());
    trial_set_choice(t, "assume_a", s->assume);
    return t;
}

static void check_stack(struct trial *t, const struct stack *s) {
    int64_t n = s->n, k = s->columns;
    double u = unit(s->dtype);
    bool plain = k > 16 && k > n / 32 && n > 40; /* then residuals are in working precision */
    struct sizes sizes = {.n = n, .columns = k, .dtype = s->dtype};
    struct blasd_tensor given_a = {.dtype = s->dtype, .data = t->given[0]};
    struct blasd_tensor given_b = {.dtype = s->dtype, .data = t->given[1]};
    struct blasd_tensor x = *trial_output(t, "x");
    char *solutions = x.data;
    long double *a = trial_alloc((size_t)(n * n) * sizeof *a);
    long double *b = trial_alloc((size_t)(n * k) * sizeof *b);
    for (int64_t m = 0; m < s->count; m++) {
        enum kind kind = s->kinds[s->shared ? 0 : m % s->kind_count];
        double info = trial_value(trial_output(t, "info"), m), error, reported;
        if (kind == PERMUTATION) {
            ASSERT_CLOSE(info, 1, 0);
            assert_true(isnan(trial_value(&x, m * n * k)));
            ASSERT_CLOSE(trial_value(trial_output(t, "method"), m), 0, 0);
            continue;
        }
        assert_true(info <= 0); /* solved, or solved and in doubt */
        for (int64_t i = 0; i < n * n; i++)
            a[i] = trial_value(&given_a, (s->shared ? 0 : m) * n * n + i);
        if (strcmp(s->assume, "lower_triangular") == 0)
            for (int64_t i = 0; i < n * n; i++) a[i] = i % n > i / n ? 0 : a[i];
        for (int64_t i = 0; i < n * k; i++) b[i] = trial_value(&given_b, m * n * k + i);
        x.data = solutions + m * n * k * (int64_t)blasd_dtype_size(s->dtype);
        error = measured_error(&sizes, a, b, &x);
        x.data = solutions;
        reported = trial_value(trial_output(t, "backward_error"), m);
        if (!(error <= (plain ? 8 + (double)n / 2 : 3) * u))
            fail_msg("%s %s n %lld, %lld: backward error %.3g u", kind_names[kind], s->assume,
                     (long long)n, (long long)m, error / u);
        if (!(fabs(reported - error) <= (plain ? 4 * u : 0.1 * error + 0.02 * u)))
            fail_msg("%s %s n %lld: reports %.3g u, is %.3g u", kind_names[kind], s->assume,
                     (long long)n, reported / u, error / u);
    }
    free(a);
    free(b);
}

static void try_stack(const struct stack *s) {
    struct trial *t = make_stack(s);
    enum blasd_code code = trial_run(t);
    if (code != BLASD_OK) fail_msg("%s", t->task.err.detail);
    check_stack(t, s);
    trial_free(t);
}

/* Beyond what shared memory holds: in one call (many) and one by one (few), with systems among them
 * that are singular, need scaling, or QR. */
static void stacks_between_small_and_large(void **state) {
    static const struct stack stacks[] = {
        {5,
         180,
         1,
         BLASD_float64,
         "general",
         false,
         4,
         {RANDOM, GRADED_ROWS, PERMUTATION, TRIANGLE}},
        {2, 180, 3, BLASD_float64, "general", false, 2, {WILKINSON, GRADED_BOTH}},
        {12, 250, 1, BLASD_float32, "general", false, 3, {RANDOM, GRADED_COLUMNS, INTEGER}},
        {4, 180, 2, BLASD_float64, "positive_definite", false, 2, {RANDOM, PERMUTATION}},
        {1, 180, 2, BLASD_float64, "positive_definite", false, 1, {INTEGER}},
        {3, 180, 2, BLASD_float64, "symmetric", false, 3, {RANDOM, GRADED_BOTH, PERMUTATION}},
        {2, 180, 2, BLASD_float64, "lower_triangular", false, 1, {INTEGER}},
        {6, 180, 2, BLASD_float64, "general", true, 1, {RANDOM}},
        {3, 180, 1, BLASD_float64, "general", true, 1, {PERMUTATION}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) try_stack(&stacks[i]);
}

/* Estimated conditions never say that a matrix is better than it is, and seldom three times worse;
 * with 32 x 32 blocks on the diagonal that are whole, and that end earlier. */
static void conditions_at_the_blocks_edges(void **state) {
    static const int64_t sizes[] = {1, 4, 5, 8, 9, 16, 17, 24, 25, 31, 32, 33, 63, 64, 65, 97, 150};
    static const enum kind kinds[] = {RANDOM, INTEGER, WILKINSON};
    (void)state;
    for (size_t i = 0; i < 3 * (sizeof sizes / sizeof *sizes); i++) {
        int64_t n = sizes[i / 3];
        struct stack s = {1, n, 1, BLASD_float64, "general", false, 1, {kinds[i % 3]}};
        struct trial *t = make_stack(&s);
        long double *a = trial_alloc((size_t)(n * n) * sizeof *a);
        double rcond, truth;
        for (int64_t e = 0; e < n * n; e++) a[e] = ((double *)t->given[0])[e];
        truth = true_rcond(n, a);
        assert_int_equal(trial_run(t), BLASD_OK);
        rcond = trial_value(trial_output(t, "rcond"), 0);
        if (!(rcond >= truth * 0.99 && rcond <= 10 * truth))
            fail_msg("%s n %lld: rcond %.6g, is %.6g", kind_names[kinds[i % 3]], (long long)n,
                     rcond, truth);
        free(a);
        trial_free(t);
    }
}

/* A pivot so small that an inverse of its block overflows. */
static void pivots_without_an_inverse(void **state) {
    (void)state;
    for (int64_t n = 40; n <= 160; n += 120) {
        struct trial *t = trial_new("solve");
        double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
        double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
        for (int64_t i = 0; i < n; i++) {
            a[i * n + i] = 1;
            b[i] = (double)i;
        }
        for (int64_t j = 0; j < n; j++) a[(n - 1) * n + j] = a[(n - 2) * n + j];
        a[(n - 1) * n + n - 1] = 0x1p-1060; /* all that tells it from the row before */
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(trial_value(trial_output(t, "rcond"), 0) < 0x1p-1000);
        trial_free(t);
    }
}

/* A stack at each edge of the short way's sizes, of systems that it takes and that it leaves; each
 * as if it were alone. */
static void short_ways_have_edges(void **state) {
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 32, 33};
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof sizes / sizeof *sizes); i++) {
        enum blasd_dtype dtype = i % 2 == 0 ? BLASD_float64 : BLASD_float32;
        int64_t n = sizes[i / 2];
        struct stack s = {5,         n,     2, dtype,
                          "general", false, 4, {RANDOM, GRADED_ROWS, PERMUTATION, INTEGER}};
        size_t size = blasd_dtype_size(dtype), a_bytes = (size_t)(n * n) * size;
        size_t b_bytes = (size_t)(n * 2) * size;
        struct trial *t = make_stack(&s);
        assert_int_equal(trial_run(t), BLASD_OK);
        check_stack(t, &s);
        for (int64_t m = 0; m < s.count; m++) {
            struct stack one = {1, n, 2, dtype, "general", false, 1, {RANDOM}};
            struct trial *alone = make_stack(&one);
            memcpy(alone->given[0], (char *)t->given[0] + (size_t)m * a_bytes, a_bytes);
            memcpy(alone->given[1], (char *)t->given[1] + (size_t)m * b_bytes, b_bytes);
            assert_int_equal(trial_run(alone), BLASD_OK);
            assert_memory_equal(trial_output(alone, "x")->data,
                                (char *)trial_output(t, "x")->data + (size_t)m * b_bytes, b_bytes);
            assert_memory_equal(trial_output(alone, "rcond")->data,
                                (double *)trial_output(t, "rcond")->data + m, sizeof(double));
            trial_free(alone);
        }
        trial_free(t);
    }
}

static void columns_are_shared_out(void **state) {
    static const struct stack stacks[] = {
        {1, 3, 70, BLASD_float64, "general", false, 1, {RANDOM}},
        {2, 20, 33, BLASD_float32, "general", false, 1, {GRADED_ROWS}},
        {2, 30, 40, BLASD_float64, "symmetric", false, 1, {RANDOM}},
        {2, 60, 50, BLASD_float64, "positive_definite", false, 2, {RANDOM, PERMUTATION}},
        {2, 64, 50, BLASD_float64, "general", false, 2, {WILKINSON, RANDOM}},
        {3, 40, 65, BLASD_float64, "general", true, 1, {WILKINSON}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) try_stack(&stacks[i]);
}

/* One system of n = 1100 that the host leads through; its method. */
static void try_large(enum kind kind, enum blasd_dtype dtype, int shape_up, const char *assume,
                      int64_t columns, bool transposed, const char *method) {
    struct sizes s = {.n = 1100,
                      .columns = columns,
                      .dtype = dtype,
                      .order = transposed ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR,
                      .transposed = transposed};
    struct trial *t = make(kind, &s, shape_up, assume);
    long double *a = trial_alloc((size_t)(s.n * s.n) * sizeof *a);
    long double *b = trial_alloc((size_t)(s.n * columns) * sizeof *b);
    enum blasd_code code = trial_run(t);
    double error, reported, u = unit(dtype);
    bool plain = columns > 16 && columns > s.n / 32;
    if (code != BLASD_OK) fail_msg("%s %s: %s", kind_names[kind], assume, t->task.err.detail);
    meaning(t, &s, assume, a, b);
    error = measured_error(&s, a, b, trial_output(t, "x"));
    reported = trial_value(trial_output(t, "backward_error"), 0);
    if (!(error <= (plain ? 8 + (double)s.n / 2 : 3) * u))
        fail_msg("%s %s: backward error %.3g u by %s", kind_names[kind], assume, error / u,
                 t->task.method);
    if (!(fabs(reported - error) <= (plain ? 4 * u : 0.1 * error + 0.02 * u)))
        fail_msg("%s %s: reports %.3g u, is %.3g u", kind_names[kind], assume, reported / u,
                 error / u);
    if (strcmp(t->task.method, method) != 0)
        fail_msg("%s %s: by %s, rcond %.3g, steps %g", kind_names[kind], assume, t->task.method,
                 trial_value(trial_output(t, "rcond"), 0),
                 trial_value(trial_output(t, "refinement_steps"), 0));
    if (strcmp(assume, "general") == 0) assert_true(trial_value(trial_output(t, "rcond"), 0) > 0);
    free(a);
    free(b);
    trial_free(t);
}

static void large_systems(void **state) {
    (void)state;
    TRIAL_FULL();
    try_large(RANDOM, BLASD_float64, 0, "general", 2, true, "lu+refine");
    try_large(GRADED_ROWS, BLASD_float64, 0, "general", 1, false, "lu+refine");
    try_large(RANDOM, BLASD_float32, 0, "general", 40, false, "lu+refine");
    try_large(RANDOM, BLASD_float64, 1, "symmetric", 1, false, "lu+refine");
    try_large(RANDOM, BLASD_float64, 2, "positive_definite", 1, false, "cholesky+refine");
    try_large(INTEGER, BLASD_float64, 0, "upper_triangular", 2, true, "substitution+refine");
    try_large(WILKINSON, BLASD_float64, 0, "general", 1, false, "qr+refine");
}

static void large_and_without_a_solution(void **state) {
    static const struct {
        const char *assume;
        double diagonal;
        enum blasd_code code;
    } cases[] = {{"general", 0, BLASD_E_singular_matrix},
                 {"positive_definite", -1, BLASD_E_not_positive_definite},
                 {"positive_definite", 0, BLASD_E_singular_matrix},
                 {"lower_triangular", 0, BLASD_E_singular_matrix}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n = 1030;
        struct trial *t = trial_new("solve");
        double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
        trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
        for (int64_t j = 0; j < n; j++) a[j * n + j] = j == 700 ? cases[i].diagonal : 2;
        trial_set_choice(t, "assume_a", cases[i].assume);
        assert_int_equal(trial_run(t), cases[i].code);
        if (strstr(t->task.err.detail, "701") == NULL) fail_msg("%s", t->task.err.detail);
        trial_free(t);
    }
}

/* Whichever call fails, the job says so, nothing stays behind, and the next one is right. */
static void a_call_that_fails(void **state) {
    static const struct stack stacks[] = {
        {2, 180, 2, BLASD_float64, "general", false, 1, {RANDOM}},
        {1, 1030, 1, BLASD_float64, "general", false, 1, {RANDOM}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        struct trial *t = make_stack(&stacks[i]);
        long blocks, before;
        enum blasd_code code;
        int calls, failed = 0;
        assert_int_equal(trial_run(t), BLASD_OK);
        before = blasd_standin.calls;
        assert_int_equal(trial_run(t), BLASD_OK);
        blocks = blasd_standin.host_blocks;
        calls = (int)(blasd_standin.calls - before);
        for (int n = 1; n <= calls; n += 1 + calls / 12) {
            blasd_standin.fail_at = n;
            blasd_standin.fail_code = BLASD_E_internal_error;
            code = trial_run(t);
            blasd_standin.fail_at = 0;
            if (code == BLASD_OK) /* a clock that could not be read */
                check_stack(t, &stacks[i]);
            else
                assert_int_equal(code, BLASD_E_internal_error);
            failed += code != BLASD_OK;
            assert_int_equal(blasd_standin.host_blocks, blocks);
        }
        assert_true(failed > 4);
        assert_int_equal(trial_run(t), BLASD_OK);
        check_stack(t, &stacks[i]);
        trial_free(t);
    }
}

/* Threads in other orders: a barrier that is missing shows. */
static void other_orders_of_threads(void **state) {
    static const int64_t sizes[] = {3, 6, 13, 29, 41, 70};
    uint64_t before = blasd_shim_seed;
    (void)state;
    for (uint64_t seed = 0; seed < 5; seed += (uint64_t)trial_step(4)) {
        blasd_shim_seed = seed < 2 ? seed : seed * 7919;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            try_kind(RANDOM, sizes[i], 0, "general");
            try_kind(GRADED_BOTH, sizes[i], 1, "symmetric");
            try_kind(RANDOM, sizes[i], 2, "positive_definite");
            try_kind(WILKINSON, sizes[i], 0, "general");
        }
        try_stack(
            &(struct stack){2, 170, 2, BLASD_float64, "general", false, 2, {RANDOM, GRADED_ROWS}});
    }
    blasd_shim_seed = before;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conditions_at_the_blocks_edges),
        cmocka_unit_test(pivots_without_an_inverse),
        cmocka_unit_test(short_ways_have_edges),
        cmocka_unit_test(stacks_between_small_and_large),
        cmocka_unit_test(columns_are_shared_out),
        cmocka_unit_test(large_systems),
        cmocka_unit_test(large_and_without_a_solution),
        cmocka_unit_test(a_call_that_fails),
        cmocka_unit_test(other_orders_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
