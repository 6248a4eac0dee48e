/* Rules: Philox against the known answers of Random123, elements against numbers made elsewhere,
 * lines as NumPy makes them, and what is said of elements that nobody has made. */
#include "core/job.h"
#include "core/rule_element.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct blasd_err err;
static struct blasd_rule rule;
static struct blasd_tensor tensor;
static unsigned char memory[1 << 16] __attribute__((aligned(64)));

static void known(const uint32_t counter[4], uint64_t key, const uint32_t want[4]) {
    struct blasd_philox from, got;
    memcpy(from.word, counter, sizeof from.word);
    got = blasd_philox(from, key);
    assert_memory_equal(got.word, want, sizeof got.word);
}

/* kat_vectors of Random123, philox4x32 10 */
static void philox_is_philox(void **state) {
    (void)state;
    known((uint32_t[]){0, 0, 0, 0}, 0,
          (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    known((uint32_t[]){0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, UINT64_MAX,
          (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    known((uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
          UINT64_C(0x299f31d0a4093822),
          (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

static void random_of(enum blasd_dtype dtype, enum blasd_rule_kind kind, uint64_t seed, int64_t n) {
    tensor = blasd_tensor_make(dtype, 1, &n);
    tensor.data = memory;
    assert_int_equal(blasd_rule_random(&rule, &tensor, kind, seed, "a", &err), 0);
    blasd_rule_fill(&rule, &tensor);
}

static void expect(const void *want, size_t bytes) {
    assert_int_equal(blasd_tensor_bytes(&tensor), bytes);
    assert_memory_equal(memory, want, bytes);
}

/* What seed 7 makes is what it always made: checked once against Python's integers, and in the case
 * of `normal` against logarithm, sine and cosine of 64 bits. */
static void seeds_stay_what_they_are(void **state) {
    (void)state;
    random_of(BLASD_float64, BLASD_RULE_UNIFORM, 7, 5);
    expect((double[]){0x1.8013f3b9e8c0fp-1, 0x1.5edac821d3ab8p-4, 0x1.972f7826d05d1p-1,
                      0x1.ea6bdd4c57f5fp-1, 0x1.14fdda00c7100p-7},
           40);
    random_of(BLASD_float64, BLASD_RULE_NORMAL, 7, 6);
    expect((double[]){0x1.4d586bf318c2fp-1, 0x1.8e02314da0316p-2, 0x1.4e7654a935a2dp-1,
                      -0x1.6acbbd7f7a717p-3, 0x1.cb99a6f92cee4p+0, -0x1.41deebc965118p+1},
           48);
    random_of(BLASD_float32, BLASD_RULE_UNIFORM, 7, 6);
    expect((float[]){0x1.e8c0f4p-1f, 0x1.8013f2p-1f, 0x1.d3abap-4f, 0x1.5edacp-4f, 0x1.a0ba38p-2f,
                     0x1.972f78p-1f},
           24);
    random_of(BLASD_float32, BLASD_RULE_NORMAL, 7, 6);
    expect((float[]){0x1.31bb08p-12f, -0x1.3829cep-2f, 0x1.c9ecp+0f, 0x1.116018p+0f, 0x1.816fecp-2f,
                     -0x1.49799ap+0f},
           24);
    random_of(BLASD_float16, BLASD_RULE_UNIFORM, 7, 6);
    expect((uint16_t[]){0x3ba3, 0x3a00, 0x2f48, 0x2d78, 0x3682, 0x3a5c}, 12);
    random_of(BLASD_float16, BLASD_RULE_NORMAL, 7, 6);
    expect((uint16_t[]){0x0cc7, 0xb4e1, 0x3f28, 0x3c46, 0x3606, 0xbd26}, 12);
    random_of(BLASD_bfloat16, BLASD_RULE_UNIFORM, 7, 6);
    expect((uint16_t[]){0x3f74, 0x3f40, 0x3de8, 0x3da8, 0x3ed0, 0x3f4b}, 12);
    random_of(BLASD_bfloat16, BLASD_RULE_NORMAL, 7, 6);
    expect((uint16_t[]){0x3999, 0xbe9c, 0x3fe5, 0x3f89, 0x3ec1, 0xbfa5}, 12);
}

/* A complex tensor is one of floats with twice the elements. */
static void complex_elements_are_two_parts(void **state) {
    double parts[10];
    (void)state;
    random_of(BLASD_float64, BLASD_RULE_NORMAL, 3, 10);
    memcpy(parts, memory, sizeof parts);
    random_of(BLASD_complex128, BLASD_RULE_NORMAL, 3, 5);
    expect(parts, sizeof parts);
}

/* Made in pieces from any element on, it is the same tensor. */
static void pieces_are_the_whole(void **state) {
    static const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_bfloat16,
                                              BLASD_complex64};
    static unsigned char whole[16000];
    (void)state;
    for (int d = 0; d < 4; d++) {
        size_t size = blasd_dtype_size(dtypes[d]);
        random_of(dtypes[d], BLASD_RULE_NORMAL, 1, 1000);
        memcpy(whole, memory, 1000 * size);
        for (int64_t first = 0; first < 1000; first += 1 + first / 3) {
            int64_t n = 1000 - first < 301 ? 1000 - first : 301;
            blasd_rule_make(&rule, &tensor, first, n, memory);
            assert_memory_equal(memory, whole + (size_t)first * size, (size_t)n * size);
        }
    }
}

static void distributions_are_what_they_are_called(void **state) {
    static const int64_t n = 8000;
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        double mean = 0, square = 0, fourth = 0;
        random_of(BLASD_float64, BLASD_RULE_NORMAL, seed, n);
        for (int64_t i = 0; i < n; i++) {
            double x = ((const double *)tensor.data)[i];
            mean += x / (double)n;
            square += x * x / (double)n;
            fourth += x * x * x * x / (double)n;
        }
        /* six standard errors */
        assert_true(fabs(mean) < 6 * sqrt(1.0 / (double)n));
        assert_true(fabs(square - 1) < 6 * sqrt(2.0 / (double)n));
        assert_true(fabs(fourth - 3) < 6 * sqrt(96.0 / (double)n));
        random_of(BLASD_float64, BLASD_RULE_UNIFORM, seed, n);
        for (int64_t i = 0; i < n; i++) {
            double x = ((const double *)tensor.data)[i];
            assert_true(x >= 0 && x < 1);
        }
    }
}

/* The ends of what the transformation is given. */
static void transformation_at_its_ends(void **state) {
    double a, b;
    (void)state;
    assert_true(blasd_rule_log(1) == 0);
    blasd_rule_pair(1, 0.3, &a, &b);
    assert_true(a == 0 && b == 0);
    blasd_rule_pair(0x1p-53, 0, &a, &b);
    assert_true(fabs(a - 8.571674348652905) < 4e-15 && b == 0);
    blasd_rule_pair(0x1p-53, 0.25, &a, &b);
    assert_true(a == 0 && fabs(b - 8.571674348652905) < 4e-15);
    blasd_rule_pair(0.5, 1 - 0x1p-53, &a, &b);
    assert_true(a > 1.17 && b < 0 && b > -1e-15);
    for (double x = 1; x > 0x1p-53; x *= 0.7)
        assert_true(fabs(blasd_rule_log(x) - log(x)) <= 4e-16 * fabs(log(x)));
}

static int arange(enum blasd_dtype dtype, double start, double stop, double step) {
    tensor = (struct blasd_tensor){.dtype = dtype};
    err = (struct blasd_err){0};
    if (blasd_rule_arange(&rule, &tensor, start, stop, step, "inputs.a", &err) != 0)
        return -(int)err.code;
    tensor.data = memory;
    blasd_rule_fill(&rule, &tensor);
    return 0;
}

static int linspace(enum blasd_dtype dtype, double start, double stop, int64_t n) {
    tensor = (struct blasd_tensor){.dtype = dtype};
    err = (struct blasd_err){0};
    if (blasd_rule_linspace(&rule, &tensor, start, stop, n, "inputs.a", &err) != 0)
        return -(int)err.code;
    tensor.data = memory;
    blasd_rule_fill(&rule, &tensor);
    return 0;
}

/* What NumPy 1.24 says; tests/integration/test_rules.py asks the one that is installed. */
static void lines(void **state) {
    (void)state;
    assert_int_equal(arange(BLASD_float64, 0, 1, 0.3), 0);
    expect((double[]){0, 0.3, 0.6, 3 * 0.3}, 32);
    assert_int_equal(arange(BLASD_float64, 1, 1.3, 0.1), 0); /* 4 elements, as is well known */
    expect((double[]){1, 1.1, 1.2000000000000002, 1.3000000000000003}, 32);
    assert_int_equal(arange(BLASD_float32, 5, 0, -2), 0);
    expect((float[]){5, 3, 1}, 12);
    assert_int_equal(arange(BLASD_float64, 3, 1, 1), 0);
    expect("", 0);
    assert_int_equal(arange(BLASD_float64, 0, 1e-200, 1e200), 0);
    expect((double[]){0}, 8);
    assert_int_equal(arange(BLASD_int8, -3, 9, 5), 0);
    expect((int8_t[]){-3, 2, 7}, 3);
    assert_int_equal(arange(BLASD_uint64, 0x1p53 - 1, 0x1p53 - 5, -2), 0);
    expect((uint64_t[]){9007199254740991, 9007199254740989}, 16);
    assert_int_equal(arange(BLASD_complex64, 0, 2, 1), 0);
    expect((float[]){0, 0, 1, 0}, 16);
    assert_int_equal(linspace(BLASD_float64, 0, 1, 4), 0);
    expect((double[]){0, 1.0 / 3, 2 * (1.0 / 3), 1}, 32);
    assert_int_equal(linspace(BLASD_float64, 2, 3, 1), 0);
    expect((double[]){2}, 8);
    assert_int_equal(linspace(BLASD_float64, 2, 3, 0), 0);
    expect("", 0);
    assert_int_equal(linspace(BLASD_float64, 0, 0x1p-1074, 3), 0); /* the difference is lost */
    expect((double[]){0, 0, 0x1p-1074}, 24);
    assert_int_equal(linspace(BLASD_int32, -1.5, 1.5, 4), 0); /* rounded down */
    expect((int32_t[]){-2, -1, 0, 1}, 16);
    assert_int_equal(linspace(BLASD_bool, -1, 1, 3), 0);
    expect("\1\0\1", 3);
}

/* From one end of what float64 counts to the other: neither the difference of the ends nor the
 * steps made are whole numbers that it holds, the elements are. */
static void long_ways_of_integers(void **state) {
    const int64_t end = (INT64_C(1) << 53) - 1, step = (INT64_C(1) << 45) + 1;
    const int64_t *made = (const int64_t *)(const void *)memory;
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        assert_int_equal(
            arange(BLASD_int64, -sign * (double)end, sign * (double)end, sign * (double)step), 0);
        assert_int_equal(tensor.shape[0], 2 * end / step + 1);
        for (int64_t i = 0; i < tensor.shape[0]; i++)
            assert_int_equal(made[i], sign * (-end + i * step));
    }
    /* the last step but one is 2^53, of which the end is 1 away */
    assert_int_equal(arange(BLASD_int64, -0x1p52, 0x1p52 + 1, 0x1p45), 0);
    assert_int_equal(tensor.shape[0], 257);
    assert_int_equal(arange(BLASD_int64, -0x1p52 - 1, 0x1p52, 0x1p45), 0);
    assert_int_equal(tensor.shape[0], 257);
    assert_int_equal(made[256], (INT64_C(1) << 52) - 1);
    /* what 2^53 + 1 is read as, too */
    assert_int_equal(arange(BLASD_int64, 0x1p53, 0x1p53 - 4, -2), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(arange(BLASD_int64, 0, 1, -0x1p53), -(int)BLASD_E_invalid_tensor);
    assert_non_null(strstr(err.detail, "less than 2^53"));
}

static void lines_that_cannot_be(void **state) {
    (void)state;
    assert_int_equal(arange(BLASD_float64, 0, 1, 0), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(arange(BLASD_float64, 0, 1, 1e-300), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(arange(BLASD_float64, -1e308, 1e308, 1e306), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(arange(BLASD_int8, 0, 200, 100), 0);
    assert_int_equal(arange(BLASD_int8, 0, 201, 100), -(int)BLASD_E_invalid_tensor);
    assert_non_null(strstr(err.detail, "reach 200, which int8 cannot hold"));
    assert_int_equal(arange(BLASD_uint8, 1, -2, -1), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(arange(BLASD_int64, 0, 1, 0.5), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(arange(BLASD_int64, 0x1p53 + 2, 0x1p53 + 4, 1), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(arange(BLASD_bool, 0, 1, 1), -(int)BLASD_E_unsupported_dtype);
    assert_int_equal(arange(BLASD_float16, 0, 70000, 30000), 0);
    assert_int_equal(arange(BLASD_float16, 0, 100000, 30000), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(linspace(BLASD_float64, -1e308, 1e308, 3), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(linspace(BLASD_float32, 0, 1e39, 3), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(linspace(BLASD_uint8, 0, 255.9, 3), 0);
    assert_int_equal(linspace(BLASD_uint8, 0, 256, 3), -(int)BLASD_E_invalid_tensor);
    assert_int_equal(linspace(BLASD_float64, 0, 1, INT64_MAX), -(int)BLASD_E_invalid_tensor);
    tensor.dtype = BLASD_float64;
    assert_int_equal(blasd_rule_eye(&rule, &tensor, INT64_C(1) << 40, "a", &err),
                     -(int)BLASD_E_invalid_tensor);
    tensor = blasd_tensor_make(BLASD_int32, 0, NULL);
    assert_int_equal(blasd_rule_random(&rule, &tensor, BLASD_RULE_NORMAL, 1, "a", &err),
                     -(int)BLASD_E_unsupported_dtype);
}

static void eye_and_full(void **state) {
    const float value[2] = {2, -3};
    (void)state;
    tensor = (struct blasd_tensor){.dtype = BLASD_int16};
    assert_int_equal(blasd_rule_eye(&rule, &tensor, 3, "a", &err), 0);
    tensor.data = memory;
    blasd_rule_fill(&rule, &tensor);
    expect((int16_t[]){1, 0, 0, 0, 1, 0, 0, 0, 1}, 18);
    tensor.dtype = BLASD_complex64;
    assert_int_equal(blasd_rule_eye(&rule, &tensor, 2, "a", &err), 0);
    tensor.data = memory;
    blasd_rule_fill(&rule, &tensor);
    expect((float[]){1, 0, 0, 0, 0, 0, 1, 0}, 32);
    tensor = blasd_tensor_make(BLASD_complex64, 1, (int64_t[]){600});
    tensor.data = memory;
    rule = (struct blasd_rule){.kind = BLASD_RULE_FULL};
    memcpy(rule.value, value, sizeof value);
    blasd_rule_fill(&rule, &tensor);
    for (int i = 0; i < 600; i++) assert_memory_equal(memory + 8 * i, value, 8);
}

#define ALL_VALUES (BLASD_VALUES_NOT_NEGATIVE | BLASD_VALUES_POSITIVE | BLASD_VALUES_NOT_ALL_ZERO)

/* What is said of the elements is what one finds who makes them. */
static void looked_at(void) {
    struct blasd_input input;
    int64_t n = blasd_tensor_elements(&tensor);
    blasd_input_init(&input);
    input.tensor = tensor;
    input.source.kind = BLASD_SOURCE_RULE;
    input.source.rule = rule;
    assert_int_equal(blasd_rule_look(&input, ALL_VALUES, "a", &err), 0);
    tensor.data = memory;
    blasd_rule_fill(&rule, &tensor);
    assert_int_equal(input.first_negative,
                     blasd_tensor_first_negative(tensor.dtype, memory, n, false));
    assert_int_equal(input.first_not_positive,
                     blasd_tensor_first_negative(tensor.dtype, memory, n, true));
    assert_int_equal(input.all_zero, n > 0 && blasd_tensor_all_zero(tensor.dtype, memory, n));
    assert_int_equal(input.first_nonfinite,
                     blasd_dtype_kind(tensor.dtype) == 'f'
                         ? blasd_tensor_first_nonfinite(tensor.dtype, memory, n)
                         : -1);
}

static void looks(void **state) {
    static const double lines_of[][3] = {{3, -3, -0.7}, {-3, 3, 0.5}, {0, 5, 1},   {5, 0, -1},
                                         {1, 9, 2},     {-9, -1, 2},  {0, -5, -1}, {4, 4, 1}};
    const double values[] = {0, -0.0, 1, -1, INFINITY, NAN};
    (void)state;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(arange(BLASD_float64, lines_of[i][0], lines_of[i][1], lines_of[i][2]), 0);
        looked_at();
        for (int64_t n = 0; n < 9; n++) {
            assert_int_equal(linspace(BLASD_float32, lines_of[i][0], lines_of[i][1], n), 0);
            looked_at();
            assert_int_equal(linspace(BLASD_bool, lines_of[i][0], lines_of[i][1], n), 0);
            looked_at(); /* whose one 0 lies between its ends */
            assert_int_equal(linspace(BLASD_int8, lines_of[i][0], lines_of[i][1], n), 0);
            looked_at();
        }
    }
    assert_int_equal(linspace(BLASD_float64, 0, 0, 7), 0);
    looked_at();
    for (int i = 0; i < 6; i++)
        for (int64_t n = 0; n < 3; n++) {
            tensor = blasd_tensor_make(BLASD_float64, 1, &n);
            rule = (struct blasd_rule){.kind = BLASD_RULE_FULL};
            memcpy(rule.value, &values[i], sizeof values[i]);
            if (values[i] == values[i]) looked_at();
        }
    for (int64_t n = 0; n < 3; n++) {
        tensor.dtype = BLASD_float64;
        assert_int_equal(blasd_rule_eye(&rule, &tensor, n, "a", &err), 0);
        looked_at();
    }
    random_of(BLASD_float64, BLASD_RULE_NORMAL, 5, 900);
    looked_at();
    random_of(BLASD_float64, BLASD_RULE_UNIFORM, 5, 900);
    looked_at();
    random_of(BLASD_bfloat16, BLASD_RULE_UNIFORM, 5, 9000); /* one in 256 is 0 */
    looked_at();
}

/* Nobody waits for the front end to make millions of numbers. */
static void looks_have_an_end(void **state) {
    struct blasd_input input;
    (void)state;
    blasd_input_init(&input);
    input.source.kind = BLASD_SOURCE_RULE;
    input.source.rule = (struct blasd_rule){.kind = BLASD_RULE_UNIFORM, .seed = 1};
    input.tensor = blasd_tensor_make(BLASD_float64, 1, (int64_t[]){1 << 20});
    assert_int_equal(blasd_rule_look(&input, BLASD_VALUES_POSITIVE, "inputs.V", &err), 0);
    input.tensor.shape[0]++;
    assert_int_equal(blasd_rule_look(&input, BLASD_VALUES_POSITIVE, "inputs.V", &err),
                     -(int)BLASD_E_out_of_range);
    input.tensor.shape[0] = INT64_C(1) << 50;
    assert_int_equal(
        blasd_rule_look(&input, BLASD_VALUES_NOT_NEGATIVE | BLASD_VALUES_NOT_ALL_ZERO, "a", &err),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_is_philox),
        cmocka_unit_test(seeds_stay_what_they_are),
        cmocka_unit_test(complex_elements_are_two_parts),
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(distributions_are_what_they_are_called),
        cmocka_unit_test(transformation_at_its_ends),
        cmocka_unit_test(lines),
        cmocka_unit_test(long_ways_of_integers),
        cmocka_unit_test(lines_that_cannot_be),
        cmocka_unit_test(eye_and_full),
        cmocka_unit_test(looks),
        cmocka_unit_test(looks_have_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
