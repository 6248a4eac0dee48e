/* NAME against its definition. What every operation owes is asked by test_conformance.c. */
#include "kernel_support.h"
#include "kernels/NAME/NAME.h"

#include <float.h>

static void results_are_those_of_the_definition(void **state) {
    (void)state;
    for (int64_t n = 0; n < 50; n += 7) {
        struct trial *t = trial_new("NAME");
        double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
        trial_set_float(t, "scale", -1.5);
        for (int64_t i = 0; i < n; i++) x[i] = trial_normal();
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t i = 0; i < n; i++) {
            long double wide = x[i], wish;
            blasd_ref_NAME(1, &wide, -1.5L, &wish);
            ASSERT_CLOSE(trial_value(trial_output(t, "y"), i), wish, DBL_EPSILON * fabsl(wish));
        }
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_those_of_the_definition)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
