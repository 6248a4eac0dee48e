/* What solve promises whatever is beside a system and whoever solves it: no singular matrix without
 * a word, pivots that grow are no excuse, members of a stack are answered as they are alone, and
 * threads change no bit. Read next: test_solve_quality.c. */
#include "solve_support.h"

#ifdef TRIAL_ON_THE_CPU
#include "kernels/cpu/cpu.h"
#endif

/* A singular matrix of integers, n x n: a row is a sum of others. */
static void put_singular(void *a, enum blasd_dtype dtype, int64_t n, int64_t of) {
    int64_t most = trial_between(2, 60), bad = trial_between(0, (int)n - 1);
    double sum[16] = {0};
    for (int64_t i = 0; i < n; i++) {
        int times = (int)trial_between(-3, 3);
        for (int64_t j = 0; j < n && i != bad; j++) {
            double value = (double)trial_between((int)-most, (int)most);
            trial_put(a, dtype, i * of + j, value);
            sum[j] += times * value;
        }
    }
    for (int64_t j = 0; j < n; j++) trial_put(a, dtype, bad * of + j, sum[j]);
}

/* Beside a right-hand side that is far larger elsewhere, where norms say nothing of it. */
static void no_singular_matrix_is_solved_without_a_word(void **state) {
    (void)state;
    for (int round = 0; round < 600; round++) {
        enum blasd_dtype dtype = round % 3 == 2 ? BLASD_float32 : BLASD_float64;
        int64_t block = 2 + round % 8, n = block + round / 8 % 3;
        double large = ldexp(1, (int)trial_between(20, dtype == BLASD_float32 ? 60 : 90));
        void *a, *b;
        struct trial *t = system_of(n, 1, dtype, &a, &b);
        enum blasd_code code;
        put_singular(a, dtype, block, n);
        for (int64_t i = 0; i < n; i++) {
            if (i >= block) trial_put(a, dtype, i * n + i, (double)trial_between(1, 9));
            trial_put(b, dtype, i, (double)trial_between(-9, 9) * (i == n - 1 ? large : 1));
        }
        code = trial_run(t);
        if (code == BLASD_OK && !warned(t, "nearly singular"))
            fail_msg("round %d: rcond %.3g, no word", round, scalar(t, "rcond"));
        if (code == BLASD_OK) {
            assert_true(scalar(t, "error_estimate") >= 1);
        }
        trial_free(t);
    }
}

/* Random matrices, of which float32's have conditions that say little. */
static void ordinary_systems_raise_no_word(void **state) {
    static const int64_t orders[] = {300, 700, 1100};
    int quiet = 0;
    (void)state;
    for (int round = 0; round < 6; round++) {
        int64_t n = orders[round / 2];
        void *a, *b;
        struct trial *t = system_of(n, 1, BLASD_float32, &a, &b);
        for (int64_t i = 0; i < n * n; i++) trial_put(a, BLASD_float32, i, trial_normal());
        for (int64_t i = 0; i < n; i++) trial_put(b, BLASD_float32, i, trial_normal());
        assert_int_equal(trial_run(t), BLASD_OK);
        if (scalar(t, "rcond") > 64 * 0x1p-24) {
            if (t->task.warning_count > 0) fail_msg("%s", t->task.warnings[0].text);
            assert_true(scalar(t, "error_estimate") <= 0x1p-23);
            quiet++;
        }
        trial_free(t);
    }
    assert_true(quiet >= 3);
}

/* Pivots of LU double in each step; QR does it, down to where the warning begins. */
static void growing_pivots_are_no_excuse(void **state) {
    int said = 0;
    (void)state;
    for (int round = 0; round < 70; round++) {
        int64_t n = 30 + round / 2;
        int near = 28 + round % 2 * 8; /* two columns agree to so many bits */
        void *a, *b;
        struct trial *t = system_of(n, 1, BLASD_float64, &a, &b);
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) {
                double value = j == n - 1 || i == j ? 1 : i > j ? -1 : 0;
                if (j == 3) value = (i == 4 ? 1 : i > 4 ? -1 : 0) + (i == j ? ldexp(1, -near) : 0);
                trial_put(a, BLASD_float64, i * n + j, value);
                sum += value * (double)(j % 7 - 3);
            }
            trial_put(b, BLASD_float64, i, sum); /* exact */
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        said += warned(t, "digit");
        for (int64_t i = 0; i < n && !warned(t, "digit"); i++)
            if (!(fabs(x_at(t, i) - (double)(i % 7 - 3)) <= 0x1p-30))
                fail_msg("n %lld: x[%lld] is %g", (long long)n, (long long)i, x_at(t, i));
        trial_free(t);
    }
    assert_true(said <= 35);
}

/* Many systems that are looked at again, alike but for a few: each as it is alone. */
static void members_of_a_stack_are_answered_as_alone(void **state) {
    const int64_t count = 240, n = 9;
    int64_t shape[] = {count, n, n}, columns[] = {count, n, 1}, bad = 0;
    struct trial *t = trial_new("solve");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 3, shape);
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 3, columns);
    const double *x;
    (void)state;
    put_singular(a, BLASD_float64, n - 1, n);
    for (int64_t i = 0; i < n; i++) b[i] = i == n - 1 ? 1e20 : 1;
    a[n * n - 1] = 1;
    for (int64_t s = 1; s < count; s++) {
        memcpy(a + s * n * n, a, (size_t)(n * n) * sizeof *a);
        memcpy(b + s * n, b, (size_t)n * sizeof *b);
    }
    for (int64_t s = 7; s < count; s += 11)
        for (int64_t i = 0; i < n - 1; i++) a[s * n * n + i * (n + 1)] += 1000; /* regular */
    assert_int_equal(trial_run(t), BLASD_OK);
    x = trial_output(t, "x")->data;
    for (int64_t s = 0; s < count; s++) {
        int info = (int)trial_value(trial_output(t, "info"), s);
        if (s % 11 != 7 && info == 0) fail_msg("system %lld: no doubt", (long long)s);
        if (s % 11 == 7) assert_int_equal(info, 0);
        if (s % 11 != 7) bad += info < 0;
        assert_memory_equal(x + s * n, x + (s % 11 == 7 ? 7 : 0) * n, (size_t)n * sizeof *x);
    }
    if (bad > 0) {
        char text[64];
        snprintf(text, sizeof text, "%lld systems, the first at 0,", (long long)bad);
        assert_true(warned(t, text));
    }
    trial_free(t);
}

#ifdef TRIAL_ON_THE_CPU
static void threads_change_no_bit(void **state) {
    static const char *const structures[] = {"general", "symmetric", "positive_definite"};
    static const char *const outputs[] = {"x", "rcond", "backward_error", "error_estimate"};
    static const int64_t orders[] = {130, 520, 700};
    int own = trial_device()->threads;
    (void)state;
    for (int round = 0; round < 18; round++) {
        enum blasd_dtype dtype = round / 3 % 2 == 0 ? BLASD_float64 : BLASD_float32;
        int64_t n = orders[round % 3], columns = round % 4 == 0 ? 150 : round % 2 * 20 + 1;
        struct trial *trials[3];
        unsigned seed = 7 + (unsigned)round;
        for (int i = 0; i < 3; i++) {
            void *a, *b;
            uint32_t h = seed;
            struct trial *t = trials[i] = system_of(n, columns, dtype, &a, &b);
            trial_set_choice(t, "assume_a", structures[round / 6]);
            for (int64_t k = 0; k < n * n; k++) {
                int64_t row = k / n, column = k % n, low = row < column ? row : column;
                h = (uint32_t)(low * n + row + column) * 0x9e3779b9u + seed;
                trial_put(a, dtype, k,
                          (double)(h >> 8) * 0x1p-24 + (row == column ? (double)n : 0));
            }
            for (int64_t k = 0; k < n * columns; k++)
                trial_put(b, dtype, k, (double)((uint32_t)k * 0x85ebca6bu >> 8) * 0x1p-24);
            trial_device()->threads = 1 << i;
            assert_int_equal(trial_run(t), BLASD_OK);
        }
        for (int i = 1; i < 3; i++)
            for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++) {
                const struct blasd_tensor *one = trial_output(trials[0], outputs[o]);
                const struct blasd_tensor *other = trial_output(trials[i], outputs[o]);
                if (memcmp(one->data, other->data, (size_t)blasd_tensor_bytes(one)) != 0)
                    fail_msg("%s, n %lld, %lld columns: other bits of %s on %d threads",
                             structures[round / 6], (long long)n, (long long)columns, outputs[o],
                             1 << i);
            }
        for (int i = 0; i < 3; i++) trial_free(trials[i]);
    }
    trial_device()->threads = own;
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_singular_matrix_is_solved_without_a_word),
        cmocka_unit_test(ordinary_systems_raise_no_word),
        cmocka_unit_test(growing_pivots_are_no_excuse),
        cmocka_unit_test(members_of_a_stack_are_answered_as_alone),
#ifdef TRIAL_ON_THE_CPU
        cmocka_unit_test(threads_change_no_bit),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
