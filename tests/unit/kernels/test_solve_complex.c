/* solve of complex systems: what is promised of real ones holds for them. Matrices and solutions of
 * small whole numbers make right-hand sides without rounding, so truths are exact.
 * Read next: test_solve.c. */
#include "kernel_support.h"

#include <complex.h>
#include <float.h>

typedef double complex number;

static const char *const structures[] = {"general",           "symmetric",
                                         "positive_definite", "lower_triangular",
                                         "upper_triangular",  "hermitian"};
enum { GENERAL, SYMMETRIC, DEFINITE, LOWER, UPPER, HERMITIAN, STRUCTURES };

static enum blasd_dtype complex_of(bool single) {
    return single ? BLASD_complex64 : BLASD_complex128;
}
static double unit(bool single) {
    return single ? 0x1p-24 : 0x1p-53;
}
static void put(void *data, bool single, int64_t at, number value) {
    trial_put(data, single ? BLASD_float32 : BLASD_float64, 2 * at, creal(value));
    trial_put(data, single ? BLASD_float32 : BLASD_float64, 2 * at + 1, cimag(value));
}
static number get(const struct trial *t, const char *output, int64_t at) {
    const struct blasd_tensor *tensor = trial_output(t, output);
    if (tensor->dtype == BLASD_complex64) return (number)((float complex *)tensor->data)[at];
    assert_int_equal(tensor->dtype, BLASD_complex128);
    return ((number *)tensor->data)[at];
}
static long double complex element(const struct blasd_tensor *tensor, int64_t at) {
    if (tensor->dtype == BLASD_complex64)
        return (long double complex)((const float complex *)tensor->data)[at];
    return (long double complex)((const number *)tensor->data)[at];
}
static long double size_of(long double complex value, bool parts) {
    return parts ? fabsl(creall(value)) + fabsl(cimagl(value)) : cabsl(value);
}
static double scalar(const struct trial *t, const char *name) {
    return trial_value(trial_output(t, name), 0);
}
static bool warned(const struct trial *t, const char *text) {
    for (int i = 0; i < t->task.warning_count; i++)
        if (strstr(t->task.warnings[i].text, text) != NULL) return true;
    return false;
}
static number whole(int64_t most) {
    return (double)trial_between(-most, most) + I * (double)trial_between(-most, most);
}

/* A matrix of the structure, row-major, as it is in full; well conditioned by its diagonal. */
static void fill(number *a, int64_t n, int structure) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            number v = whole(3);
            if (i == j)
                v = (double)(8 * n + trial_between(0, 5)) +
                    (structure == HERMITIAN || structure == DEFINITE ? 0 : I * cimag(v));
            if (i == j && structure == HERMITIAN && i % 2 == 1) v = -v;
            if (i > j && structure == SYMMETRIC) v = a[j * n + i];
            if (i > j && (structure == HERMITIAN || structure == DEFINITE)) v = conj(a[j * n + i]);
            if ((i < j && structure == LOWER) || (i > j && structure == UPPER)) v = 0;
            a[i * n + j] = v;
        }
}

struct system {
    int64_t n, columns;
    int structure;
    bool single, transposed, by_columns, vector;
    double scale; /* of a, a power of two; b and so x is left */
};

static struct trial *make(const struct system *s, number **x) {
    enum blasd_order order = s->by_columns ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR;
    int64_t n = s->n, k = s->columns;
    number *a = trial_alloc((size_t)(n * n) * sizeof *a);
    struct trial *t = trial_new("solve");
    void *to = trial_input(t, "a", complex_of(s->single), order, 2, (int64_t[]){n, n});
    void *b = trial_input(t, "b", complex_of(s->single), s->vector ? BLASD_ROW_MAJOR : order,
                          s->vector ? 1 : 2, (int64_t[]){n, k});
    *x = trial_alloc((size_t)(n * k) * sizeof **x);
    fill(a, n, s->structure);
    for (int64_t i = 0; i < n * k; i++) (*x)[i] = whole(99) / 8;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++)
            put(to, s->single, s->by_columns ? j * n + i : i * n + j, a[i * n + j] * s->scale);
        for (int64_t c = 0; c < k; c++) {
            number sum = 0;
            for (int64_t j = 0; j < n; j++)
                sum += (s->transposed ? a[j * n + i] : a[i * n + j]) * (*x)[j * k + c];
            put(b, s->single, s->by_columns && !s->vector ? c * n + i : i * k + c, sum);
        }
    }
    trial_set_choice(t, "assume_a", structures[s->structure]);
    trial_set_bool(t, "transposed", s->transposed);
    free(a);
    return t;
}

static void try_system(const struct system *s) {
    number *x;
    struct trial *t = make(s, &x);
    double worst = 0, size = 0;
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(trial_output(t, "x")->rank, s->vector ? 1 : 2);
    for (int64_t i = 0; i < s->n * s->columns; i++) {
        number wish = x[i] / s->scale;
        worst = fmax(worst, cabs(get(t, "x", i) - wish));
        size = fmax(size, cabs(wish));
    }
    if (!(worst <= 4 * unit(s->single) * size))
        fail_msg("%s n %lld, %lld columns, complex%d%s: %g off, of %g", structures[s->structure],
                 (long long)s->n, (long long)s->columns, s->single ? 64 : 128,
                 s->transposed ? ", transposed" : "", worst, size);
    assert_int_equal(scalar(t, "info"), 0);
    assert_true(scalar(t, "backward_error") <= 3 * unit(s->single));
    assert_true(scalar(t, "rcond") > 0.01 && scalar(t, "rcond") <= 1);
    assert_int_equal(t->task.warning_count, 0);
    trial_free(t);
    free(x);
}

static void solutions_are_right_to_the_last_digits(void **state) {
    static const int64_t sizes[] = {1, 2, 3, 5, 16, 17, 20, 21, 33, 70};
    (void)state;
    for (int i = 0; i < 10 * STRUCTURES * 4; i++) {
        struct system s = {.n = sizes[i % 10], .structure = i / 10 % STRUCTURES, .scale = 1};
        s.columns = i % 3 == 0 ? 1 : i % 3 == 1 ? 3 : 17;
        s.single = i / 60 % 2 == 1;
        s.transposed = i % 2 == 1;
        s.by_columns = trial_between(0, 1) == 1;
        s.vector = s.columns == 1 && trial_between(0, 1) == 1;
        if (i / 120 == 1) s.scale = s.single ? 0x1p-100 : 0x1p-990;
        if (i / 120 == 1 && i % 2 == 0) s.scale = 1 / s.scale;
        try_system(&s);
    }
    try_system(&(struct system){.n = 300, .columns = 2, .structure = DEFINITE, .scale = 1});
    try_system(&(struct system){.n = 520, .columns = 1, .scale = 1}); /* the device's large way */
}

static bool said(const struct trial *t) {
    for (int i = 0; i < t->task.warning_count; i++)
        if (strstr(t->task.warnings[i].text, "digit") != NULL) return true;
    return false;
}

/* Rows far from each other in size, in a and in b: right to the last digit, or doubted. */
static void numbers_of_all_sizes(void **state) {
    (void)state;
    for (int64_t n = 1; n < 40; n += 3) {
        void *a, *b;
        struct trial *t = trial_new("solve");
        double size[40];
        a = trial_input(t, "a", BLASD_complex128, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
        b = trial_input(t, "b", BLASD_complex128, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
        for (int64_t i = 0; i < n; i++) {
            size[i] = ldexp(1, (int)trial_between(-900, 900));
            put(a, false, i * n + i, (3 + 4 * I) * (n % 2 == 0 ? 1 : size[i]));
            put(b, false, i, 25 * size[i]);
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t i = 0; i < n && !said(t); i++) {
            number wish = (3 - 4 * I) * (n % 2 == 0 ? size[i] : 1);
            assert_true(cabs(get(t, "x", i) - wish) <= 4 * 0x1p-53 * cabs(wish));
        }
        trial_free(t);
    }
}

/* Triangles far beyond 1/u in condition, which substitution solves to the last digits: two
 * diagonals and an x of whole numbers. */
static void triangles_of_any_condition(void **state) {
    (void)state;
    for (int round = 0; round < 24; round++) {
        int64_t n = round % 3 == 0 ? 30 : 90;
        bool single = round % 2 == 0, lower = round / 2 % 2 == 0, transposed = round / 4 % 2 == 0;
        void *a, *b;
        struct trial *t = trial_new("solve");
        number wish[90], next = 1;
        a = trial_input(t, "a", complex_of(single), BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
        b = trial_input(t, "b", complex_of(single), BLASD_ROW_MAJOR, 1, (int64_t[]){n});
        for (int64_t i = 0; i < n; i++) {
            int64_t at = lower != transposed ? i : n - 1 - i;
            wish[at] = next;
            next = cabs(next) > 1000 ? 1 : next * (2 + I);
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t before = lower != transposed ? i - 1 : i + 1;
            number sum = wish[i] * I;
            put(a, single, i * n + i, I);
            if (before >= 0 && before < n) {
                put(a, single, transposed ? before * n + i : i * n + before, 3 - 2 * I);
                sum += wish[before] * (3 - 2 * I);
            }
            put(b, single, i, sum);
        }
        trial_set_choice(t, "assume_a", lower ? "lower_triangular" : "upper_triangular");
        trial_set_bool(t, "transposed", transposed);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(scalar(t, "rcond") < (n == 30 ? 1e-12 : 1e-40));
        for (int64_t i = 0; i < n; i++)
            if (!(cabs(get(t, "x", i) - wish[i]) <= 8 * unit(single) * cabs(wish[i])))
                fail_msg("n %lld, x[%lld]: %g + %g i", (long long)n, (long long)i,
                         creal(get(t, "x", i)), cimag(get(t, "x", i)));
        trial_free(t);
    }
}

/* Only the upper triangle is read, and a lower one that differs is told of, also where a diagonal
 * that must be real is not. */
static void triangles_that_differ(void **state) {
    (void)state;
    for (int structure = 0; structure < STRUCTURES; structure++)
        for (int where = 0; where < 2; where++) {
            struct system s = {.n = 7, .columns = 1, .structure = structure, .scale = 1};
            bool triangles =
                structure == SYMMETRIC || structure == HERMITIAN || structure == DEFINITE;
            number *x;
            struct trial *t;
            if (!triangles || (where == 1 && structure == SYMMETRIC)) continue;
            t = make(&s, &x);
            ((number *)t->given[0])[where == 0 ? 4 * 7 + 2 : 3 * 7 + 3] += where == 0 ? 5 : 5 * I;
            assert_int_equal(trial_run(t), BLASD_OK);
            assert_true(
                warned(t, structure == SYMMETRIC ? "a is not symmetric:" : "a is not Hermitian:"));
            assert_int_equal(t->task.warning_count, 1);
            for (int64_t i = 0; i < s.n; i++)
                assert_true(cabs(get(t, "x", i) - x[i]) <= 0x1p-50 * 20);
            trial_free(t);
            free(x);
        }
}

/* i times a row is that row once more. */
static void singular_ones(void **state) {
    static const int expected[] = {BLASD_E_singular_matrix, BLASD_E_singular_matrix,
                                   BLASD_E_not_positive_definite};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct trial *t = trial_new("solve");
        number *a = trial_input(t, "a", BLASD_complex128, BLASD_ROW_MAJOR, 2, (int64_t[]){3, 3});
        number *b = trial_input(t, "b", BLASD_complex128, BLASD_ROW_MAJOR, 1, (int64_t[]){3});
        a[0] = 1;
        a[4] = 1;
        a[5] = a[7] = I;
        a[8] = -1;
        if (i == 1) a[5] = 1, a[7] = 1, a[8] = 1;
        if (i == 2) a[5] = 2 * I, a[7] = -2 * I, a[8] = 1; /* a determinant of -3 */
        b[0] = 1;
        trial_set_choice(t, "assume_a", structures[i]);
        assert_int_equal(trial_run(t), expected[i]);
        assert_non_null(strstr(t->task.err.detail, i == 2 ? "order 3" : "column 3"));
        trial_free(t);
    }
}

/* A stack with a singular member, one right-hand side for all; real ones beside complex ones. */
static void stacks_and_mixed_dtypes(void **state) {
    (void)state;
    for (int round = 0; round < 4; round++) {
        struct trial *t = trial_new("solve");
        bool single = round % 2 == 0;
        void *a = trial_input(t, "a", complex_of(single), BLASD_ROW_MAJOR, 3, (int64_t[]){3, 2, 2});
        void *b = trial_input(t, "b", round < 2 ? BLASD_float32 : BLASD_int64, BLASD_ROW_MAJOR, 2,
                              (int64_t[]){2, 2});
        for (int i = 0; i < 4; i++) {
            put(a, single, i, i == 0 || i == 3 ? 2 * I : 0);
            put(a, single, 4 + i, I);
            put(a, single, 8 + i, i == 1 ? 1 + I : i == 2 ? 1 - I : 0);
            if (round < 2)
                ((float *)b)[i] = (float)(2 * i);
            else
                ((int64_t *)b)[i] = 2 * i;
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(trial_output(t, "x")->dtype, complex_of(round == 0));
        assert_int_equal(trial_value(trial_output(t, "info"), 0), 0);
        assert_int_equal(trial_value(trial_output(t, "info"), 1), 2);
        assert_int_equal(trial_value(trial_output(t, "info"), 2), 0);
        for (int i = 0; i < 4; i++) {
            assert_true(get(t, "x", i) == -I * (double)i);
            assert_true(isnan(creal(get(t, "x", 4 + i))));
            /* [[0, 1 + i], [1 - i, 0]] has the inverse [[0, (1 + i) / 2], [(1 - i) / 2, 0]] */
            assert_true(get(t, "x", 8 + i) ==
                        (i < 2 ? (1 + I) * (double)(i + 2) : (1 - I) * (double)(i - 2)));
        }
        trial_free(t);
    }
}

/* Jobs of a batch give the bits that they give alone. */
static void batches_change_nothing(void **state) {
    struct trial *list[5], *alone;
    number *x[5], *unused;
    (void)state;
    for (int structure = 0; structure < STRUCTURES; structure++) {
        struct system s = {.n = 9, .columns = 2, .structure = structure, .scale = 1};
        uint64_t seed = trial_random();
        trial_seed = seed;
        for (int i = 0; i < 5; i++) list[i] = make(&s, &x[i]);
        assert_int_equal(trial_run_batch(list, 5), BLASD_OK);
        trial_seed = seed;
        for (int i = 0; i < 5; i++) {
            alone = make(&s, &unused);
            assert_int_equal(trial_run(alone), BLASD_OK);
            assert_memory_equal(trial_output(alone, "x")->data, trial_output(list[i], "x")->data,
                                18 * sizeof(number));
            trial_free(alone);
            free(unused);
        }
        for (int i = 0; i < 5; i++) {
            trial_free(list[i]);
            free(x[i]);
        }
    }
}

static void bounds_are_bounds(void **state) {
    int64_t tight = 0, count = 0;
    (void)state;
    for (int round = 0; round < 24; round++) {
        struct system s = {
            .n = 1 + round, .columns = 2, .structure = round % STRUCTURES, .scale = 1};
        const struct blasd_tensor *bound;
        number *x;
        struct trial *t;
        s.single = round % 4 == 3;
        t = make(&s, &x);
        trial_set_bool(t, "certify", true);
        assert_int_equal(trial_run(t), BLASD_OK);
        bound = trial_output(t, "error_bound");
        assert_int_equal(bound->dtype, BLASD_float64);
        for (int64_t i = 0; i < s.n * 2; i++, count++) {
            assert_true(cabs(get(t, "x", i) - x[i]) <= trial_value(bound, i));
            tight += trial_value(bound, i) <= 4 * unit(s.single) * cabs(x[i]);
        }
        trial_free(t);
        free(x);
    }
    assert_true(tight >= count * 9 / 10);
}

/* Whether a number's size is its modulus or the sum of its parts' sizes. */
static void backward_errors_are_bounds(void **state) {
    (void)state;
    for (int round = 0; round < 60; round++) {
        const int64_t n = 1 + round % 6;
        const bool single = round % 2 == 1;
        struct trial *t = trial_new("solve");
        void *a = trial_input(t, "a", complex_of(single), BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
        void *b = trial_input(t, "b", complex_of(single), BLASD_ROW_MAJOR, 1, &n);
        const struct blasd_tensor left = {.dtype = complex_of(single), .data = a};
        const struct blasd_tensor right = {.dtype = complex_of(single), .data = b};
        for (int64_t i = 0; i < n * n; i++)
            put(a, single, i, trial_uniform() + I * trial_uniform());
        for (int64_t i = 0; i < n; i++) put(b, single, i, trial_uniform() + I * trial_uniform());
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int parts = 0; parts < 2; parts++) {
            long double most_r = 0, most_a = 0, most_x = 0, most_b = 0;
            for (int64_t i = 0; i < n; i++) {
                long double complex r = element(&right, i);
                long double row = 0;
                for (int64_t j = 0; j < n; j++) {
                    r -= element(&left, i * n + j) * (long double complex)get(t, "x", j);
                    row += size_of(element(&left, i * n + j), parts);
                }
                most_r = fmaxl(most_r, size_of(r, parts));
                most_a = fmaxl(most_a, row);
                most_x = fmaxl(most_x, size_of((long double complex)get(t, "x", i), parts));
                most_b = fmaxl(most_b, size_of(element(&right, i), parts));
            }
            assert_true(most_r <=
                        (long double)scalar(t, "backward_error") * (most_a * most_x + most_b));
        }
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(solutions_are_right_to_the_last_digits),
        cmocka_unit_test(numbers_of_all_sizes),
        cmocka_unit_test(triangles_of_any_condition),
        cmocka_unit_test(triangles_that_differ),
        cmocka_unit_test(singular_ones),
        cmocka_unit_test(stacks_and_mixed_dtypes),
        cmocka_unit_test(batches_change_nothing),
        cmocka_unit_test(bounds_are_bounds),
        cmocka_unit_test(backward_errors_are_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
