/* Shapes, conversions and the checks every operation shares. */
#include "base/err.h"
#include "core/half.h"
#include "core/job.h"
#include "core/kernel.h"
#include "core/record.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The value of a half by definition, in double arithmetic. */
static double half_value(unsigned bits) {
    unsigned exponent = (bits >> 10) & 31u, fraction = bits & 1023u;
    double sign = bits & 0x8000u ? -1.0 : 1.0;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, (int)exponent - 25);
}

static void every_float16_reads_as_defined_and_writes_back(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 65536; bits++) {
        double expected = half_value(bits);
        float got = blasd_float16_read((uint16_t)bits);
        if (isnan(expected)) {
            assert_true(isnan(got));
            assert_true(isnan(blasd_float16_read(blasd_float16_write(got))));
            continue;
        }
        assert_true((double)got == expected);
        assert_int_equal(blasd_float16_write(got), bits);
        assert_int_equal(blasd_bfloat16_write(blasd_bfloat16_read((uint16_t)bits)),
                         isnan(blasd_bfloat16_read((uint16_t)bits))
                             ? blasd_bfloat16_write(blasd_bfloat16_read((uint16_t)bits))
                             : bits);
    }
}

/* Between each pair of neighbours: below, at and above the middle, in double precision. A float in
 * between must not round twice. */
static void doubles_round_once_to_float16(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 0x7bff; bits++) {
        double low = half_value(bits), high = half_value(bits + 1), middle = (low + high) / 2;
        double values[3] = {nextafter(middle, low), middle, nextafter(middle, high)};
        unsigned expected[3] = {bits, bits % 2 == 0 ? bits : bits + 1, bits + 1};
        for (int i = 0; i < 3; i++) {
            uint16_t got;
            struct blasd_tensor from = {.dtype = BLASD_float64, .data = &values[i]};
            struct blasd_tensor to = {.dtype = BLASD_float16, .data = &got};
            blasd_tensor_convert(&from, &to);
            assert_int_equal(got, expected[i]);
            values[i] = -values[i];
            blasd_tensor_convert(&from, &to);
            assert_int_equal(got, expected[i] | 0x8000u);
        }
    }
}

/* Complex elements are pairs of floats: from real ones, from one another, in either order. */
static void numbers_become_complex(void **state) {
    int64_t shape[2] = {3, 200};
    static double doubles[1200], wide[1200];
    static float singles[1200];
    static int16_t shorts[600];
    struct blasd_tensor from = blasd_tensor_make(BLASD_complex128, 2, shape);
    struct blasd_tensor to = blasd_tensor_make(BLASD_complex64, 2, shape);
    (void)state;
    for (int i = 0; i < 1200; i++) doubles[i] = i % 7 == 0 ? -0.0 : 0.1 * i - 37;
    for (int i = 0; i < 600; i++) shorts[i] = (int16_t)(i - 300);
    from.data = doubles;
    to.data = singles;
    for (int order = 0; order < 2; order++) {
        from.order = order == 0 ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR;
        blasd_tensor_convert(&from, &to);
        for (int i = 0; i < 1200; i++) {
            int at = order == 0 ? i : 2 * (i / 2 / 200 + i / 2 % 200 * 3) + i % 2;
            assert_true(singles[i] == (float)doubles[at]);
            assert_int_equal(signbit(singles[i]) != 0, signbit(doubles[at]) != 0);
        }
    }
    from = blasd_tensor_make(BLASD_int16, 2, shape);
    to = blasd_tensor_make(BLASD_complex128, 2, shape);
    from.data = shorts;
    to.data = wide;
    blasd_tensor_convert(&from, &to);
    for (int i = 0; i < 600; i++) assert_true(wide[2 * i] == shorts[i] && wide[2 * i + 1] == 0);
    assert_int_equal(blasd_tensor_first_nonfinite(BLASD_complex128, wide, 600), -1);
    wide[601] = INFINITY;
    assert_int_equal(blasd_tensor_first_nonfinite(BLASD_complex128, wide, 600), 300);
    assert_int_equal(blasd_tensor_first_negative(BLASD_complex128, wide, 600, true), -1);
    assert_false(blasd_tensor_all_zero(BLASD_complex64, singles, 600));
    memset(singles, 0, sizeof singles);
    singles[3] = -0.0f;
    assert_true(blasd_tensor_all_zero(BLASD_complex64, singles, 600));
    assert_int_equal(BLASD_DTYPES_INTEGER & BLASD_DTYPES_COMPLEX, 0);
}

/* A dtype that no arithmetic is done in changes its order alone. */
static void integers_change_their_order(void **state) {
    int64_t shape[2] = {2, 3}, in[6] = {1, 4, 2, 5, 3, INT64_MAX}, out[6];
    struct blasd_tensor from = blasd_tensor_make(BLASD_int64, 2, shape);
    struct blasd_tensor to = from;
    (void)state;
    from.order = BLASD_COLUMN_MAJOR;
    from.data = in;
    to.data = out;
    blasd_tensor_convert(&from, &to);
    for (int i = 0; i < 6; i++) assert_true(out[i] == (i < 5 ? i + 1 : INT64_MAX));
}

static void column_major_becomes_row_major(void **state) {
    int64_t shape[3] = {2, 3, 4};
    struct blasd_tensor from = blasd_tensor_make(BLASD_int16, 3, shape);
    struct blasd_tensor to = blasd_tensor_make(BLASD_float32, 3, shape);
    int16_t in[24];
    float out[24];
    (void)state;
    for (int i = 0; i < 24; i++) in[i] = (int16_t)i;
    from.order = BLASD_COLUMN_MAJOR;
    from.data = in;
    to.data = out;
    blasd_tensor_convert(&from, &to);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                assert_true(out[(i * 3 + j) * 4 + k] == (float)(i + 2 * j + 6 * k));
}

static void integers_and_bools_convert_by_value(void **state) {
    uint64_t big = UINT64_MAX;
    uint8_t truth[3] = {0, 1, 255};
    double out[3];
    struct blasd_tensor to = {.dtype = BLASD_float64, .rank = 1, .shape = {1}, .data = out};
    struct blasd_tensor from = {.dtype = BLASD_uint64, .rank = 1, .shape = {1}, .data = &big};
    (void)state;
    blasd_tensor_convert(&from, &to);
    assert_true(out[0] == 0x1p64);
    from = (struct blasd_tensor){.dtype = BLASD_bool, .rank = 1, .shape = {3}, .data = truth};
    to.shape[0] = 3;
    blasd_tensor_convert(&from, &to);
    assert_true(out[0] == 0 && out[1] == 1 && out[2] == 1);
}

static void the_first_value_that_is_not_finite_is_found(void **state) {
    double *x = malloc(5000 * sizeof *x);
    uint16_t halves[4] = {0, 0x7bff, 0xfc00, 0x7e01};
    (void)state;
    for (int i = 0; i < 5000; i++) x[i] = i % 2 ? 1.7e308 : -5e-324;
    assert_int_equal(blasd_tensor_first_nonfinite(BLASD_float64, x, 5000), -1);
    x[4999] = NAN;
    assert_int_equal(blasd_tensor_first_nonfinite(BLASD_float64, x, 5000), 4999);
    assert_int_equal(blasd_tensor_first_nonfinite(BLASD_float64, x, 4999), -1);
    x[1024] = -INFINITY;
    assert_int_equal(blasd_tensor_first_nonfinite(BLASD_float64, x, 5000), 1024);
    assert_int_equal(blasd_tensor_first_nonfinite(BLASD_float16, halves, 4), 2);
    assert_int_equal(blasd_tensor_first_nonfinite(BLASD_int64, x, 5000), -1);
    free(x);
}

/* Bit patterns of each dtype: below 0, zeros, above 0; each list ends with 0 (the zero itself is
 * given apart). */
static void the_first_negative_value_is_found(void **state) {
    static const struct {
        enum blasd_dtype dtype;
        uint64_t negative[4], zero[2], positive[4];
    } rows[] = {
        {BLASD_float64,
         {UINT64_C(0x8000000000000001), UINT64_C(0xffefffffffffffff), UINT64_C(0xbff0000000000000)},
         {0, UINT64_C(1) << 63},
         {1, UINT64_C(0x7fefffffffffffff), UINT64_C(0x3ff0000000000000)}},
        {BLASD_float32, {0x80000001, 0xff7fffff, 0xbf800000}, {0, 0x80000000}, {1, 0x7f7fffff}},
        {BLASD_float16, {0x8001, 0xfbff, 0xbc00}, {0, 0x8000}, {1, 0x7bff, 0x3c00}},
        {BLASD_bfloat16, {0x8001, 0xff7f, 0xbf80}, {0, 0x8000}, {1, 0x7f7f, 0x3f80}},
        {BLASD_int64, {UINT64_C(1) << 63, UINT64_MAX, UINT64_C(1) << 63 | 1}, {0}, {1, INT64_MAX}},
        {BLASD_int32, {0x80000000, 0xffffffff, 0x80000001}, {0}, {1, INT32_MAX}},
        {BLASD_int16, {0x8000, 0xffff, 0x8001}, {0}, {1, INT16_MAX}},
        {BLASD_int8, {0x80, 0xff, 0x81}, {0}, {1, INT8_MAX}},
        {BLASD_uint64, {0}, {0}, {1, UINT64_MAX, UINT64_C(1) << 63}},
        {BLASD_uint32, {0}, {0}, {1, UINT32_MAX, 0x80000000}},
        {BLASD_uint16, {0}, {0}, {1, UINT16_MAX, 0x8000}},
        {BLASD_uint8, {0}, {0}, {1, UINT8_MAX, 0x80}},
        {BLASD_bool, {0}, {0}, {1}},
    };
    enum { N = 2100 };
    static unsigned char room[N * 8 + 1];
    unsigned char *data = room + 1; /* not aligned */
    (void)state;
    assert_int_equal(sizeof rows / sizeof *rows, BLASD_complex128); /* those in order */
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        enum blasd_dtype dtype = rows[r].dtype;
        size_t size = blasd_dtype_size(dtype);
        int highs = 0;
        while (rows[r].positive[highs] != 0) highs++;
        for (int i = 0; i < N; i++)
            memcpy(data + (size_t)i * size, &rows[r].positive[i % highs], size);
        assert_int_equal(blasd_tensor_first_negative(dtype, data, N, true), -1);
        assert_false(blasd_tensor_all_zero(dtype, data, N));
        for (int at = 0; at < N; at += at < 70 ? 1 : 97) {
            unsigned char kept[8];
            unsigned char *here = data + (size_t)at * size;
            memcpy(kept, here, size);
            for (int z = 0; z < 2; z++) {
                memcpy(here, &rows[r].zero[z], size);
                assert_int_equal(blasd_tensor_first_negative(dtype, data, N, true), at);
                assert_int_equal(blasd_tensor_first_negative(dtype, data, N, false), -1);
                assert_true(blasd_tensor_all_zero(dtype, here, 1));
            }
            for (int k = 0; rows[r].negative[k] != 0; k++) {
                memcpy(here, &rows[r].negative[k], size);
                assert_int_equal(blasd_tensor_first_negative(dtype, data, N, true), at);
                assert_int_equal(blasd_tensor_first_negative(dtype, data, N, false), at);
                assert_int_equal(blasd_tensor_first_negative(dtype, data, at, false), -1);
                assert_false(blasd_tensor_all_zero(dtype, here, 1));
            }
            memcpy(here, kept, size);
        }
        for (int k = 0; k < highs; k++)
            assert_false(blasd_tensor_all_zero(dtype, &rows[r].positive[k], 1));
        memset(data, 0, N * size);
        assert_true(blasd_tensor_all_zero(dtype, data, N));
    }
}

/* By definition: it is inexact where the conversion to float64 and back gives something else. */
static void the_first_integer_that_float64_cannot_hold_is_found(void **state) {
    static unsigned char bytes[8 * 3000 + 1];
    unsigned char *data = bytes + 1; /* not aligned */
    uint64_t seed = 1;
    (void)state;
    for (int trial = 0; trial < 20000; trial++) {
        uint64_t bits;
        bool signed_exact, unsigned_exact;
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bits = (seed >> trial % 64) << trial / 64 % 64;
        if (trial % 3 == 0) bits = (UINT64_C(1) << trial % 64) + (uint64_t)(trial / 64 % 3) - 1;
        if (trial % 7 == 0) bits = 0 - bits;
        unsigned_exact = (unsigned __int128)(double)bits == bits;
        signed_exact = (__int128)(double)(int64_t)bits == (int64_t)bits;
        memcpy(data, &bits, sizeof bits);
        assert_int_equal(blasd_tensor_first_inexact(BLASD_uint64, data, 1),
                         unsigned_exact ? -1 : 0);
        assert_int_equal(blasd_tensor_first_inexact(BLASD_int64, data, 1), signed_exact ? -1 : 0);
    }
    for (int i = 0; i < 3000; i++) memcpy(data + 8 * i, (int64_t[]){-(INT64_C(1) << 60)}, 8);
    assert_int_equal(blasd_tensor_first_inexact(BLASD_int64, data, 3000), -1);
    for (int at = 2999; at >= 0; at -= 577) {
        memcpy(data + 8 * at, (int64_t[]){-(INT64_C(1) << 53) - 1}, 8);
        assert_int_equal(blasd_tensor_first_inexact(BLASD_int64, data, 3000), at);
        assert_int_equal(blasd_tensor_first_inexact(BLASD_int64, data, at), -1);
        assert_int_equal(blasd_tensor_first_inexact(BLASD_float64, data, 3000), -1);
        assert_int_equal(blasd_tensor_first_inexact(BLASD_int32, data, 6000), -1);
    }
}

static void shapes_that_overflow_are_refused(void **state) {
    struct blasd_err err;
    struct blasd_tensor tensor = {.dtype = BLASD_float64, .rank = 2};
    (void)state;
    tensor.shape[0] = tensor.shape[1] = INT64_C(1) << 32;
    assert_true(blasd_tensor_check(&tensor, "inputs.a", &err) < 0);
    assert_int_equal(err.code, BLASD_E_invalid_tensor);
    assert_string_equal(err.field, "inputs.a");
    tensor.shape[0] = 0;
    tensor.shape[1] = INT64_MAX;
    assert_true(blasd_tensor_check(&tensor, "inputs.a", &err) < 0);
    tensor.shape[1] = -1;
    assert_true(blasd_tensor_check(&tensor, "inputs.a", &err) < 0);
    tensor.rank = BLASD_MAX_RANK + 1;
    assert_true(blasd_tensor_check(&tensor, "inputs.a", &err) < 0);
    tensor.rank = 0;
    assert_int_equal(blasd_tensor_check(&tensor, "inputs.a", &err), 0);
    assert_int_equal(blasd_tensor_elements(&tensor), 1);
}

static void shapes_broadcast_as_in_numpy(void **state) {
    int64_t a[3] = {5, 1, 4}, b[2] = {3, 1}, c[1] = {2}, out[BLASD_MAX_RANK];
    (void)state;
    assert_int_equal(blasd_shape_broadcast(a, 3, b, 2, out), 3);
    assert_true(out[0] == 5 && out[1] == 3 && out[2] == 4);
    assert_int_equal(blasd_shape_broadcast(a, 3, c, 1, out), -1);
    assert_int_equal(blasd_shape_broadcast(NULL, 0, c, 1, out), 1);
    assert_int_equal(out[0], 2);
    c[0] = 0; /* a zero length meets a one */
    assert_int_equal(blasd_shape_broadcast(b + 1, 1, c, 1, out), 1);
    assert_int_equal(out[0], 0);
}

static void shapes_are_written_as_python_does(void **state) {
    struct blasd_tensor tensor = {.rank = 2, .shape = {2, 30}};
    char text[64];
    (void)state;
    assert_string_equal(blasd_tensor_shape_text(&tensor, text, sizeof text), "(2, 30)");
    tensor.rank = 1;
    assert_string_equal(blasd_tensor_shape_text(&tensor, text, sizeof text), "(2,)");
    tensor.rank = 0;
    assert_string_equal(blasd_tensor_shape_text(&tensor, text, sizeof text), "()");
    tensor.rank = 2;
    assert_int_equal(strlen(blasd_tensor_shape_text(&tensor, text, 4)), 3);
}

static void keys_that_overflow_equal_nothing(void **state) {
    struct blasd_key a = {0}, b = {0};
    (void)state;
    assert_true(blasd_key_equal(&a, &b));
    blasd_key_add_int(&a, 1);
    assert_false(blasd_key_equal(&a, &b));
    blasd_key_add_int(&b, 1);
    assert_true(blasd_key_equal(&a, &b));
    for (int i = 0; i < 100; i++) {
        blasd_key_add_int(&a, i);
        blasd_key_add_int(&b, i);
    }
    assert_false(blasd_key_equal(&a, &b));
    assert_false(blasd_key_equal(&a, &a));
}

/* An operation of our own, for the checks that all share. */
static int scale_plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    (void)err;
    plan->outputs[0] = job->inputs[0].tensor;
    return 0;
}

static const struct blasd_port scale_inputs[] = {
    {.name = "x",
     .shape = "(n, m)",
     .dtypes = BLASD_DTYPES_FLOAT,
     .min_rank = 1,
     .max_rank = 2,
     .finite = true},
    {.name = "y",
     .shape = "(n)",
     .dtypes = BLASD_DTYPES_FLOAT,
     .min_rank = 1,
     .max_rank = 1,
     .optional = true,
     .finite = true,
     .values = BLASD_VALUES_NOT_NEGATIVE | BLASD_VALUES_NOT_ALL_ZERO},
    {.name = "v",
     .shape = "(n)",
     .dtypes = BLASD_DTYPES_FLOAT,
     .max_rank = 1,
     .optional = true,
     .finite = true,
     .values = BLASD_VALUES_POSITIVE},
    {0}};
static const struct blasd_port scale_outputs[] = {{.name = "z"}, {.name = "extra"}, {0}};
static const struct blasd_param scale_params[] = {{.name = "alpha",
                                                   .kind = BLASD_PARAM_FLOAT,
                                                   .preset = {.f = 2.0},
                                                   .has_range = true,
                                                   .exclusive_least = true,
                                                   .least = 0,
                                                   .most = 10},
                                                  {0}};
static const struct blasd_op scale = {.name = "scale",
                                      .inputs = scale_inputs,
                                      .outputs = scale_outputs,
                                      .params = scale_params,
                                      .plan = scale_plan};

static void plans_check_what_the_descriptor_says(void **state) {
    struct blasd_plan *plan = malloc(sizeof *plan);
    struct blasd_job *job = malloc(sizeof *job);
    struct blasd_key sent;
    struct blasd_err err;
    (void)state;
    blasd_job_init(job, &scale);
    assert_true(job->params[0].f == 2.0);
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_missing_input);
    assert_string_equal(err.field, "inputs.x");

    job->inputs[0].source.kind = BLASD_SOURCE_PAYLOAD;
    job->inputs[0].tensor = blasd_tensor_make(BLASD_float32, 2, (int64_t[]){3, 4});
    assert_int_equal(blasd_job_plan(job, plan, &err), 0);
    assert_int_equal(plan->input_bytes, 48);
    assert_int_equal(plan->output_bytes, 48);
    assert_int_equal(plan->outputs[1].rank, -1);
    assert_int_equal(plan->made_bytes, 0);
    sent = plan->key;
    job->inputs[0].source.kind =
        BLASD_SOURCE_RULE; /* takes as much memory, and joins no fewer batches */
    assert_int_equal(blasd_job_plan(job, plan, &err), 0);
    assert_int_equal(plan->input_bytes, 48);
    assert_int_equal(plan->made_bytes, 48);
    assert_true(blasd_key_equal(&plan->key, &sent));

    job->inputs[0].first_nonfinite = 6;
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_not_finite);
    assert_non_null(strstr(err.detail, "(1, 2)"));
    job->inputs[0].tensor.order = BLASD_COLUMN_MAJOR;
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_not_finite);
    assert_non_null(strstr(err.detail, "(0, 2)"));
    job->inputs[0].first_nonfinite = -1;

    job->params[0] = (struct blasd_value){.given = true, .f = 0.0};
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_invalid_parameter);
    job->params[0].f = NAN;
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_invalid_parameter);
    job->params[0].f = 10;
    assert_int_equal(blasd_job_plan(job, plan, &err), 0);

    job->inputs[0].tensor.rank = 0;
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_invalid_shape);
    job->inputs[0].tensor = blasd_tensor_make(BLASD_int8, 1, (int64_t[]){3});
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_unsupported_dtype);
    assert_non_null(strstr(err.detail, "float64, float32"));
    free(job);
    free(plan);
}

static void plans_check_the_values(void **state) {
    struct blasd_plan *plan = malloc(sizeof *plan);
    struct blasd_job *job = malloc(sizeof *job);
    struct blasd_err err;
    (void)state;
    blasd_job_init(job, &scale);
    for (int i = 0; i < 3; i++) {
        job->inputs[i].source.kind = BLASD_SOURCE_PAYLOAD;
        job->inputs[i].tensor = blasd_tensor_make(BLASD_float32, 1, (int64_t[]){5});
    }
    assert_int_equal(blasd_job_plan(job, plan, &err), 0);
    job->inputs[0].first_negative = job->inputs[0].first_not_positive = 0; /* x may be anything */
    job->inputs[0].all_zero = true;
    job->inputs[1].first_not_positive = 2;
    job->inputs[2].all_zero = true;
    assert_int_equal(blasd_job_plan(job, plan, &err), 0);

    job->inputs[1].first_negative = 4;
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_out_of_range);
    assert_string_equal(err.field, "inputs.y");
    assert_non_null(strstr(err.detail, "(4,) is negative"));
    assert_non_null(strstr(err.detail, "0 or greater"));
    job->inputs[1].first_nonfinite = 3; /* the worse of the two */
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_not_finite);
    job->inputs[1].first_nonfinite = job->inputs[1].first_negative = -1;
    job->inputs[1].all_zero = true;
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_out_of_range);
    assert_non_null(strstr(err.detail, "at least one must be positive"));
    job->inputs[1].source.kind = BLASD_SOURCE_NONE;
    assert_int_equal(blasd_job_plan(job, plan, &err), 0);

    job->inputs[2].first_not_positive = 1;
    job->inputs[2].first_negative = 3;
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_out_of_range);
    assert_string_equal(err.field, "inputs.v");
    assert_non_null(strstr(err.detail, "(1,) is 0"));
    assert_non_null(strstr(err.detail, "greater than 0"));
    job->inputs[2].first_not_positive = 3;
    assert_int_equal(blasd_job_plan(job, plan, &err), -(int)BLASD_E_out_of_range);
    assert_non_null(strstr(err.detail, "(3,) is negative"));
    free(job);
    free(plan);
}

/* Of more warnings than there is room for the last one says so. */
static void warnings_that_are_left_out_are_told_of(void **state) {
    struct blasd_task *task = calloc(1, sizeof *task);
    char words[40];
    (void)state;
    assert_non_null(task);
    for (int i = 0; i < BLASD_MAX_WARNINGS; i++)
        blasd_task_warn(task, BLASD_W_inexact, "warning %d", i);
    for (int i = 0; i < BLASD_MAX_WARNINGS; i++) {
        snprintf(words, sizeof words, "warning %d", i);
        assert_string_equal(task->warnings[i].text, words);
    }
    for (int more = 0; more < 2; more++) {
        blasd_task_warn(task, BLASD_W_overflow, "one more");
        assert_int_equal(task->warning_count, BLASD_MAX_WARNINGS);
        assert_string_equal(task->warnings[BLASD_MAX_WARNINGS - 2].text, "warning 2");
        assert_non_null(strstr(task->warnings[BLASD_MAX_WARNINGS - 1].text, "left out"));
        assert_int_equal(task->warnings[BLASD_MAX_WARNINGS - 2].code, BLASD_W_inexact);
        assert_int_equal(task->warnings[BLASD_MAX_WARNINGS - 1].code, BLASD_W_others_left_out);
    }
    free(task);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_float16_reads_as_defined_and_writes_back),
        cmocka_unit_test(doubles_round_once_to_float16),
        cmocka_unit_test(column_major_becomes_row_major),
        cmocka_unit_test(numbers_become_complex),
        cmocka_unit_test(integers_change_their_order),
        cmocka_unit_test(integers_and_bools_convert_by_value),
        cmocka_unit_test(the_first_value_that_is_not_finite_is_found),
        cmocka_unit_test(the_first_negative_value_is_found),
        cmocka_unit_test(the_first_integer_that_float64_cannot_hold_is_found),
        cmocka_unit_test(shapes_that_overflow_are_refused),
        cmocka_unit_test(shapes_broadcast_as_in_numpy),
        cmocka_unit_test(shapes_are_written_as_python_does),
        cmocka_unit_test(keys_that_overflow_equal_nothing),
        cmocka_unit_test(plans_check_what_the_descriptor_says),
        cmocka_unit_test(plans_check_the_values),
        cmocka_unit_test(warnings_that_are_left_out_are_told_of),
    };
    return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
