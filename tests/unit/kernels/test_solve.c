/* solve: known answers and backward errors on matrices that are easy and hard. */
#include "kernel_support.h"

#include <float.h>

static int64_t *shape(int64_t a, int64_t b, int64_t c) {
    static int64_t s[3];
    s[0] = a;
    s[1] = b;
    s[2] = c;
    return s;
}

static void a_known_system(void **state) {
    struct trial *t = trial_new("solve");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, shape(2, 2, 0));
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, shape(2, 0, 0));
    (void)state;
    memcpy(a, (double[]){3, 1, 1, 2}, 4 * sizeof *a);
    memcpy(b, (double[]){9, 8}, 2 * sizeof *b);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(trial_output(t, "x")->rank, 1);
    ASSERT_CLOSE(trial_value(trial_output(t, "x"), 0), 2, 1e-15);
    ASSERT_CLOSE(trial_value(trial_output(t, "x"), 1), 3, 1e-15);
    assert_int_equal(trial_output(t, "info")->rank, 0);
    ASSERT_CLOSE(trial_value(trial_output(t, "rcond"), 0), 5.0 / 16, 1e-15);
    trial_free(t);
}

static void singular_fails_alone_and_is_marked_in_a_stack(void **state) {
    struct trial *t = trial_new("solve");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, shape(2, 2, 0));
    (void)state;
    trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, shape(2, 0, 0));
    memcpy(a, (double[]){1, 2, 2, 4}, 4 * sizeof *a);
    assert_int_equal(trial_run(t), BLASD_E_singular_matrix);
    assert_string_equal(t->task.err.field, "inputs.a");
    assert_non_null(strstr(t->task.err.detail, "column 2"));
    a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 3, shape(3, 2, 2));
    memcpy(a, (double[]){1, 0, 0, 1, 1, 2, 2, 4, 2, 0, 0, 2}, 12 * sizeof *a);
    memcpy(trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, shape(2, 0, 0)), (double[]){6, 8},
           2 * sizeof *a);
    assert_int_equal(trial_run(t), BLASD_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal((int)trial_value(trial_output(t, "info"), i), i == 1 ? 2 : 0);
    ASSERT_CLOSE(trial_value(trial_output(t, "x"), 1), 8, 0);
    assert_true(isnan(trial_value(trial_output(t, "x"), 2)));
    ASSERT_CLOSE(trial_value(trial_output(t, "x"), 5), 4, 0);
    trial_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_system),
        cmocka_unit_test(singular_fails_alone_and_is_marked_in_a_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
