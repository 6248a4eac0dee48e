/* Grids and blocks of the regression's kernels at shapes that no test could compute: the shim
 * checks what they may be, and runs nothing. */
#include "kernels/regression/gram.cuh"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>

extern "C" {
#include <cmocka.h>
}

static void all_launches(const struct gram_shape &shape) {
    struct gram_arrays none = {};
    struct gram_way way = {};
    struct blasd_err err = {};
    assert_int_equal(gram_products(&shape, &none, &way, &err), 0);
    assert_int_equal(gram_slopes(&shape, &none, &way, &err), 0);
    assert_int_equal(gram_weighted(&shape, &none, 0, nullptr, &way, &err), 0);
    assert_int_equal(gram_totals(&shape, &none, &way, &err), 0);
    assert_int_equal(gram_correct(&shape, &none, true, &way, &err), 0);
    assert_int_equal(gram_leave(&shape, &none, &way, &err), 0);
    assert_int_equal(gram_sandwich(&shape, &none, 0, nullptr, nullptr, &way, &err), 0);
}

static struct gram_shape shape_of(int64_t n, int q, int t, int64_t problems) {
    struct gram_shape shape = {};
    shape.n = n;
    shape.problems = problems;
    shape.p = shape.q = q;
    shape.t = t;
    shape.weighted = true;
    shape.units = 132;
    return shape;
}

static void many_coefficients_and_targets(void **) {
    blasd_shim_checks_alone = true;
    all_launches(shape_of(2000, 1024, 1, 1));
    all_launches(shape_of(2000, 1016, 131072, 1));
    all_launches(shape_of(2000, 1017, 131072, 1));
    all_launches(shape_of(1025, 1024, 1000000, 1));
    all_launches(shape_of(10, 3, 200000000, 1));
    blasd_shim_checks_alone = false;
}

static void many_problems(void **) {
    blasd_shim_checks_alone = true;
    all_launches(shape_of(3, 1, 1, 1000000));
    all_launches(shape_of(100, 40, 3, 100000));
    blasd_shim_checks_alone = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_coefficients_and_targets),
        cmocka_unit_test(many_problems),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
