/* matmul at the edges of its numbers: products that overflow or vanish, which are warned of,
 * complex factors, and integers modulo 2^64. Every element against the definition. */
#include "kernel_support.h"
#include "kernels/matmul/ref_matmul.h"

#include <float.h>

enum { A, B, C };
static const char *const names[] = {"a", "b", "c"};

/* A job of random shape: a stack (2, 1, m, k) by (3, k, n), with c or without. */
struct sample {
    struct trial *t;
    int64_t m, n, k, shapes[3][4];
    int ranks[3];
    bool trans[2], add;
    enum blasd_order orders[3];
    double alpha, beta;
};

static void draw(struct sample *s) {
    const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 33, 40, 130};
    int stack = (int)trial_between(0, 2);
    memset(s, 0, sizeof *s);
    s->t = trial_new("matmul");
    s->m = sizes[trial_between(0, 7)];
    s->n = sizes[trial_between(0, 7)];
    s->k = sizes[trial_between(0, 8)];
    s->add = trial_between(0, 1);
    for (int i = 0; i < 2; i++) {
        int64_t rows = i == 0 ? s->m : s->k, columns = i == 0 ? s->k : s->n, *shape = s->shapes[i];
        s->trans[i] = trial_between(0, 1);
        s->orders[i] = trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR;
        if (stack > 0) shape[s->ranks[i]++] = i == 0 ? 2 : 3;
        if (stack > 1 && i == 0) shape[s->ranks[i]++] = 1;
        if (stack == 1) shape[0] = 2;
        shape[s->ranks[i]++] = s->trans[i] ? columns : rows;
        shape[s->ranks[i]++] = s->trans[i] ? rows : columns;
    }
    trial_set_bool(s->t, "transpose_a", s->trans[0]);
    trial_set_bool(s->t, "transpose_b", s->trans[1]);
    s->ranks[C] = (int)trial_between(0, 2); /* (), (n,) or (m, n) */
    if (s->ranks[C] > 0) s->shapes[C][s->ranks[C] - 1] = s->n;
    if (s->ranks[C] > 1) s->shapes[C][0] = s->m;
}

static void *place(struct sample *s, int i, enum blasd_dtype dtype, int64_t *count) {
    void *data = trial_input(s->t, names[i], dtype, s->orders[i], s->ranks[i], s->shapes[i]);
    *count = blasd_tensor_elements(&s->t->job.inputs[i].tensor);
    return data;
}

static void set_factors(struct sample *s, double alpha, double beta) {
    s->alpha = alpha;
    s->beta = beta;
    trial_set_float(s->t, "alpha", alpha);
    if (s->add) trial_set_float(s->t, "beta", beta);
}

/* The index of element `i` of a row-major tensor. */
static void unravel(const struct blasd_tensor *tensor, int64_t i, int64_t *at) {
    for (int d = tensor->rank - 1; d >= 0; d--) {
        at[d] = i % tensor->shape[d];
        i /= tensor->shape[d];
    }
}

/* ---- floats ---- */

static void put(void *data, enum blasd_dtype dtype, int64_t i, double value) {
    struct blasd_tensor from = blasd_tensor_make(BLASD_float64, 0, NULL), to = from;
    to.dtype = dtype;
    from.data = &value;
    to.data = (char *)data + (size_t)i * blasd_dtype_size(dtype);
    blasd_tensor_convert(&from, &to);
}

static void fill(struct sample *s, int i, enum blasd_dtype dtype, int exponent, int spread) {
    int64_t n;
    void *data = place(s, i, dtype, &n);
    enum blasd_dtype part = blasd_dtype_part(dtype);
    for (int64_t e = 0; e < n * blasd_dtype_parts(dtype); e++)
        put(data, part, e,
            ldexp(trial_normal() + 2, exponent + (int)trial_between(-spread, spread)));
}

/* The real or imaginary parts of a job's inputs, as float64 in the same order. */
static struct blasd_tensor part_of(const struct sample *s, int i, int part) {
    struct blasd_tensor tensor = s->t->job.inputs[i].tensor, one = tensor, to;
    int parts = blasd_dtype_parts(tensor.dtype);
    int64_t n = blasd_tensor_elements(&tensor);
    size_t size = blasd_dtype_size(blasd_dtype_part(tensor.dtype));
    double *values = trial_alloc((size_t)n * sizeof *values);
    one = blasd_tensor_make(blasd_dtype_part(tensor.dtype), 0, NULL);
    to = blasd_tensor_make(BLASD_float64, 0, NULL);
    for (int64_t e = 0; e < n; e++) {
        one.data = (char *)s->t->given[i] + (size_t)(e * parts + part) * size;
        to.data = &values[e];
        values[e] = 0;
        if (part < parts) blasd_tensor_convert(&one, &to);
    }
    tensor.dtype = BLASD_float64;
    tensor.data = values;
    return tensor;
}

static double unit(enum blasd_dtype dtype) {
    switch (blasd_dtype_part(dtype)) {
    case BLASD_float64: return 0x1p-53;
    case BLASD_float32: return 0x1p-24;
    case BLASD_float16: return 0x1p-11;
    default: return 0x1p-8;
    }
}
static double least(enum blasd_dtype dtype) {
    switch (blasd_dtype_part(dtype)) {
    case BLASD_float64: return 0x1p-1074;
    case BLASD_float32: return 0x1p-149;
    case BLASD_float16: return 0x1p-24;
    default: return 0x1p-133;
    }
}
static double most(enum blasd_dtype dtype) {
    switch (blasd_dtype_part(dtype)) {
    case BLASD_float64: return DBL_MAX;
    case BLASD_float32: return (double)FLT_MAX;
    case BLASD_float16: return 65504;
    default: return 0x1.fep127;
    }
}

static bool has_warned(const struct sample *s, enum blasd_warning_code code) {
    bool found = false;
    for (int i = 0; i < s->t->task.warning_count; i++) found |= s->t->task.warnings[i].code == code;
    return found;
}

/* Every part of every element is within the bound of its own sum, or warned of. How many are not
 * within it. */
static int check(struct sample *s) {
    const struct blasd_tensor *out = trial_output(s->t, "c");
    struct blasd_tensor parts[2][3];
    int count = blasd_dtype_parts(out->dtype);
    int64_t n = blasd_tensor_elements(out), at[BLASD_MAX_RANK];
    double u = unit(out->dtype) > 0x1p-24 ? 0x1p-24 : unit(out->dtype);
    int wrong = 0;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 3; i++) {
            memset(&parts[p][i], 0, sizeof parts[p][i]);
            if (i < C || s->add) parts[p][i] = part_of(s, i, p);
        }
    for (int64_t e = 0; e < n; e++) {
        unravel(out, e, at);
        for (int p = 0; p < count; p++) {
            long double value, size, value2 = 0, size2 = 0;
            struct blasd_tensor one[3] = {parts[0][A], parts[p][B], parts[p][C]};
            struct blasd_tensor two[3] = {parts[1][A], parts[1 - p][B], {0}};
            struct blasd_tensor got_at = *out;
            double got, bound;
            blasd_ref_matmul(&s->t->job, one, at, out->rank, &value, &size);
            if (count == 2) blasd_ref_matmul(&s->t->job, two, at, out->rank, &value2, &size2);
            value += p == 0 ? -value2 : value2;
            size += size2;
            got_at.dtype = blasd_dtype_part(out->dtype);
            got = trial_value(&got_at, e * count + p);
            bound = (double)((long double)((double)(count * s->k) + 4) * u * size);
            bound += unit(out->dtype) * (double)fabsl(value);
            bound += least(out->dtype) * (double)(2 * s->k + 1); /* vanish one by one */
            if (!isfinite(got)) {
                assert_true(!isfinite(value) || has_warned(s, BLASD_W_overflow));
                wrong += (double)fabsl(value) < most(out->dtype);
            } else if (!(fabsl((long double)got - value) <= (long double)bound)) {
                assert_true(has_warned(s, BLASD_W_underflow));
                wrong++;
            }
        }
    }
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 3; i++) free(parts[p][i].data);
    return wrong;
}

static const enum blasd_dtype floats[] = {BLASD_float64,    BLASD_float32,   BLASD_float16,
                                          BLASD_complex128, BLASD_complex64, BLASD_bfloat16};

/* Where alpha would bring back what overflows or vanishes, a warning says that it has gone. */
static void what_alpha_does_not_bring_back(void **state) {
    int wrong = 0, quiet = 0;
    (void)state;
    for (int round = 0; round < 240; round++) {
        enum blasd_dtype dtype = floats[round % 6];
        int end = dtype == BLASD_float16                     ? 14
                  : blasd_dtype_part(dtype) == BLASD_float64 ? 1015
                                                             : 120;
        int a = (int)trial_between(-end, end), b = (int)trial_between(-end, end);
        int alpha = -(a + b) + (int)trial_between(-10, 10);
        struct sample s;
        draw(&s);
        if (alpha > 1000) alpha = 1000;
        if (alpha < -1000) alpha = -1000;
        fill(&s, A, dtype, a, 3);
        fill(&s, B, dtype, b, 3);
        if (s.add) fill(&s, C, dtype, (int)trial_between(-6, 6), 2);
        set_factors(&s, ldexp(trial_normal() + 2, alpha), trial_normal());
        assert_int_equal(trial_run(s.t), BLASD_OK);
        assert_int_equal(trial_output(s.t, "c")->dtype, dtype);
        wrong += check(&s) > 0;
        quiet += s.t->task.warning_count == 0;
        trial_free(s.t);
    }
    assert_true(wrong > 20 && quiet > 80);
}

/* Factors graded over the whole range along their common length, whose products are near 1. */
static void graded_factors(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        enum blasd_dtype dtype = d == 0 ? BLASD_float64 : BLASD_float32;
        int end = d == 0 ? 1000 : 110;
        int64_t k = 41;
        for (int round = 0; round < 4; round++) {
            struct sample s = {.t = trial_new("matmul"), .m = 3, .n = 2, .k = k};
            int64_t n;
            void *a, *b;
            s.ranks[A] = s.ranks[B] = 2;
            memcpy(s.shapes[A], (int64_t[]){3, k}, 16);
            memcpy(s.shapes[B], (int64_t[]){k, 2}, 16);
            a = place(&s, A, dtype, &n);
            b = place(&s, B, dtype, &n);
            for (int64_t l = 0; l < k; l++) {
                int e = (int)(l - 20) * end / 20;
                for (int64_t i = 0; i < 3; i++) put(a, dtype, i * k + l, ldexp(trial_normal(), e));
                for (int64_t j = 0; j < 2; j++) put(b, dtype, l * 2 + j, ldexp(trial_normal(), -e));
            }
            set_factors(&s, round < 2 ? 0.3 : ldexp(1.1, round == 2 ? 60 : -60), 1);
            assert_int_equal(trial_run(s.t), BLASD_OK);
            check(&s);
            trial_free(s.t);
        }
    }
}

/* What overflows on the way is warned of, also where c or alpha 0 take it back. */
static void sums_that_overflow_on_the_way(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int way = 0; way < 3; way++) {
            enum blasd_dtype dtype = floats[d];
            struct sample s = {.t = trial_new("matmul"), .m = 1, .n = 1, .k = 1, .add = way < 2};
            int64_t n;
            double big = d == 0 ? 0x1p1000 : 0x1p100;
            s.ranks[A] = s.ranks[B] = 2;
            for (int i = 0; i < 4; i++) s.shapes[i / 2][i % 2] = 1;
            put(place(&s, A, dtype, &n), dtype, 0, big);
            put(place(&s, B, dtype, &n), dtype, 0, d == 0 ? 0x1.8p24 : 0x1.8p28);
            if (s.add) put(place(&s, C, dtype, &n), dtype, 0, d == 0 ? -0x1p1023 : -0x1p127);
            set_factors(&s, way == 2 ? 0 : 1, way == 0 ? 1 : 1.5);
            if (way == 2) put(s.t->given[B], dtype, 0, big);
            assert_int_equal(trial_run(s.t), BLASD_OK);
            if (check(&s) > 0) assert_true(has_warned(&s, BLASD_W_overflow));
            trial_free(s.t);
        }
}

/* ---- complex ---- */

static void complex_products_of_every_shape(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        enum blasd_dtype dtype = round % 2 ? BLASD_complex64 : BLASD_complex128;
        struct sample s;
        draw(&s);
        fill(&s, A, dtype, 0, 2);
        fill(&s, B, trial_between(0, 4) ? dtype : blasd_dtype_part(dtype), 0, 2);
        if (s.add) fill(&s, C, trial_between(0, 3) ? dtype : BLASD_float32, 0, 2);
        if (round % 3 > 0) set_factors(&s, trial_normal(), trial_normal());
        assert_int_equal(trial_run(s.t), BLASD_OK);
        assert_int_equal(trial_output(s.t, "c")->dtype, dtype);
        check(&s);
        trial_free(s.t);
    }
}

static void complex_dtypes_are_promoted_as_in_numpy(void **state) {
    static const struct {
        enum blasd_dtype a, b, c;
    } rows[] = {{BLASD_complex64, BLASD_float32, BLASD_complex64},
                {BLASD_complex64, BLASD_float64, BLASD_complex128},
                {BLASD_float16, BLASD_complex64, BLASD_complex64},
                {BLASD_complex64, BLASD_int32, BLASD_complex128},
                {BLASD_complex64, BLASD_complex128, BLASD_complex128},
                {BLASD_bool, BLASD_complex128, BLASD_complex128}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trial *t = trial_new("matmul");
        memset(trial_input(t, "a", rows[i].a, BLASD_ROW_MAJOR, 1, (int64_t[]){0}), 0, 0);
        memset(trial_input(t, "b", rows[i].b, BLASD_ROW_MAJOR, 1, (int64_t[]){0}), 0, 0);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(trial_output(t, "c")->dtype, rows[i].c);
        trial_free(t);
    }
}

/* ---- integers ---- */

static uint64_t whole(const struct blasd_tensor *tensor, const void *data, const int64_t *index) {
    int64_t at = 0, step = 1;
    uint64_t bits = 0;
    size_t size = blasd_dtype_size(tensor->dtype);
    for (int n = 0; n < tensor->rank; n++) {
        int i = tensor->order == BLASD_COLUMN_MAJOR ? n : tensor->rank - 1 - n;
        at += (tensor->shape[i] == 1 ? 0 : index[i]) * step;
        step *= tensor->shape[i];
    }
    memcpy(&bits, (const char *)data + (size_t)at * size, size);
    if (tensor->dtype == BLASD_bool) return bits != 0;
    if (blasd_dtype_kind(tensor->dtype) == 'i')
        bits = (uint64_t)((int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size));
    return bits;
}

static long double value_of(const struct blasd_tensor *tensor, uint64_t bits) {
    return blasd_dtype_kind(tensor->dtype) == 'i' ? (long double)(int64_t)bits : (long double)bits;
}

/* Whether some element is beyond the dtype of the result. */
static bool check_whole(struct sample *s) {
    const struct blasd_tensor *out = trial_output(s->t, "c");
    const struct blasd_input *in = s->t->job.inputs;
    bool beyond = false;
    for (int64_t e = 0; e < blasd_tensor_elements(out); e++) {
        long double exact = 0; /* near enough: the factors are random */
        int64_t at[BLASD_MAX_RANK] = {0}, index[BLASD_MAX_RANK] = {0};
        int64_t row, column;
        uint64_t sum = 0, got;
        unravel(out, e, at);
        row = at[out->rank - 2];
        column = at[out->rank - 1];
        for (int64_t l = 0; l < s->k; l++) {
            uint64_t factors[2];
            for (int i = 0; i < 2; i++) {
                int rank = s->ranks[i];
                int64_t first = i == 0 ? row : l, second = i == 0 ? l : column;
                for (int d = 0; d < rank - 2; d++) index[d] = at[out->rank - rank + d];
                index[rank - 2] = s->trans[i] ? second : first;
                index[rank - 1] = s->trans[i] ? first : second;
                factors[i] = whole(&in[i].tensor, s->t->given[i], index);
            }
            sum += factors[0] * factors[1];
            exact += value_of(&in[A].tensor, factors[0]) * value_of(&in[B].tensor, factors[1]);
        }
        sum *= (uint64_t)(int64_t)s->alpha;
        exact *= (long double)s->alpha;
        if (s->add) {
            uint64_t c = whole(&in[C].tensor, s->t->given[C], at + out->rank - s->ranks[C]);
            sum += (uint64_t)(int64_t)s->beta * c;
            exact += (long double)s->beta * value_of(&in[C].tensor, c);
        }
        memcpy(&got, (const char *)out->data + 8 * e, 8);
        assert_true(got == sum);
        beyond |= fabsl(exact - value_of(out, got)) > 0x1p62L;
    }
    return beyond;
}

static void integers_are_exact(void **state) {
    static const enum blasd_dtype dtypes[] = {BLASD_int64,  BLASD_uint64, BLASD_int64, BLASD_uint64,
                                              BLASD_int32,  BLASD_int16,  BLASD_int8,  BLASD_uint32,
                                              BLASD_uint16, BLASD_uint8,  BLASD_bool};
    int wrapped = 0;
    (void)state;
    for (int round = 0; round < 200; round++) {
        bool has_signed = false, has_unsigned = false, warned;
        struct sample s;
        draw(&s);
        for (int i = 0; i < (s.add ? 3 : 2); i++) {
            enum blasd_dtype dtype = dtypes[trial_between(0, 10)];
            int64_t n;
            unsigned char *data = place(&s, i, dtype, &n);
            for (size_t b = 0; b < (size_t)n * blasd_dtype_size(dtype); b++)
                data[b] = (unsigned char)(trial_random() & (dtype == BLASD_bool ? 1 : 255));
            has_signed |= blasd_dtype_kind(dtype) == 'i';
            has_unsigned |= blasd_dtype_kind(dtype) == 'u';
        }
        set_factors(&s, round % 2 ? 1 : (double)trial_between(-9, 9) * 0x1p40,
                    (double)trial_between(-3, 3));
        trial_set_bool(s.t, "exact", true);
        assert_int_equal(trial_run(s.t), BLASD_OK);
        assert_int_equal(trial_output(s.t, "c")->dtype,
                         has_unsigned && !has_signed ? BLASD_uint64 : BLASD_int64);
        warned = check_whole(&s);
        wrapped += warned;
        assert_int_equal(s.t->task.warning_count, warned);
        if (warned) assert_int_equal(s.t->task.warnings[0].code, BLASD_W_integer_overflow);
        trial_free(s.t);
    }
    assert_true(wrapped > 20 && wrapped < 190);
}

/* Infinite of finite factors is warned of, and counted; of factors that are not finite themselves
 * it is not. One row of a and one column of b may be large, or hold an infinity. */
static void overflow_is_warned_of(void **state) {
    static const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_float16,
                                              BLASD_complex64, BLASD_complex128};
    static const double large[] = {1e300, 1e30, 6e4, 1e30, 1e300};
    (void)state;
    for (int round = 0; round < 300; round++) {
        int d = round % 5, parts = d > 2 ? 2 : 1, kind = round / 5 % 4; /* 2, 3: an infinity, too */
        int64_t m = trial_between(1, 40), n = trial_between(1, 40), k = trial_between(1, 70);
        int64_t row = trial_between(0, m - 1), column = trial_between(0, n - 1);
        int64_t at = trial_between(0, k - 1), beyond = 0;
        struct trial *t = trial_new("matmul");
        void *a = trial_input(t, "a", dtypes[d], BLASD_ROW_MAJOR, 2, (int64_t[]){m, k});
        void *b = trial_input(t, "b", dtypes[d], BLASD_ROW_MAJOR, 2, (int64_t[]){k, n});
        enum blasd_dtype part = blasd_dtype_part(dtypes[d]);
        for (int64_t i = 0; i < m * k; i++) put(a, part, i * parts, 1);
        for (int64_t i = 0; i < k * n; i++) put(b, part, i * parts, 1);
        if (kind > 0) put(a, part, (row * k + at) * parts, large[d]);
        if (kind > 0) put(b, part, (at * n + column) * parts, large[d]);
        if (kind == 2) put(a, part, ((row + 1) % m * k + at) * parts, INFINITY);
        if (kind == 3) put(b, part, (at * n + (column + 1) % n) * parts, INFINITY);
        if (kind == 1 || (kind == 2 && m > 1) || (kind == 3 && n > 1)) beyond = 1;
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(t->task.warning_count, beyond);
        if (beyond > 0) {
            assert_int_equal(t->task.warnings[0].code, BLASD_W_overflow);
            assert_non_null(strstr(t->task.warnings[0].text, "1 elements"));
        }
        /* complex, too: elements that an infinity took part in are not finite, all others are */
        for (int64_t i = 0; i < m * n; i++) {
            struct blasd_tensor out = *trial_output(t, "c");
            bool finite = true, expected = !(kind > 0 && i / n == row && i % n == column);
            if (kind == 2) expected &= i / n != (row + 1) % m;
            if (kind == 3) expected &= i % n != (column + 1) % n;
            out.dtype = part;
            for (int p = 0; p < parts; p++) finite &= isfinite(trial_value(&out, i * parts + p));
            assert_int_equal(finite, expected);
        }
        trial_free(t);
    }
}

static void what_exact_refuses(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct trial *t = trial_new("matmul");
        trial_input(t, "a", BLASD_int64, BLASD_ROW_MAJOR, 1, (int64_t[]){2});
        trial_input(t, "b", way == 0 ? BLASD_float64 : BLASD_int8, BLASD_ROW_MAJOR, 1,
                    (int64_t[]){2});
        trial_set_bool(t, "exact", true);
        if (way > 0) trial_set_float(t, "alpha", way == 1 ? 0.5 : way == 2 ? 0x1p54 : -0x1p53);
        assert_int_equal(trial_plan(t), way == 0   ? BLASD_E_unsupported_dtype
                                        : way == 3 ? BLASD_OK
                                                   : BLASD_E_invalid_parameter);
        if (way < 3) assert_string_equal(t->err.field, way == 0 ? "inputs.b" : "params.alpha");
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_alpha_does_not_bring_back),
        cmocka_unit_test(graded_factors),
        cmocka_unit_test(sums_that_overflow_on_the_way),
        cmocka_unit_test(complex_products_of_every_shape),
        cmocka_unit_test(complex_dtypes_are_promoted_as_in_numpy),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(overflow_is_warned_of),
        cmocka_unit_test(what_exact_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
