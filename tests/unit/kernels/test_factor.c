/* factor, and solve with what it made: the answers, figures and warnings of solve with the matrix,
 * bit for bit; what is no factor is refused. Read next: solve_support.h. */
#include "kernel_support.h"
#include "kernels/solve/kept.h"

enum family { RANDOM, GRADED, NEAR_SINGULAR, GROWING, UNEVEN, FAMILIES };

struct case_of {
    int64_t n, columns;
    enum blasd_dtype dtype, b_dtype;
    const char *assume; /* of factor and of solve */
    enum family family;
    enum blasd_order order;
    bool certify, transposed, stack;
};

/* Number `i` of a tensor's data; complex ones have a part of either kind. */
static void put(void *data, enum blasd_dtype dtype, int64_t i, double re, double im) {
    enum blasd_dtype part = blasd_dtype_part(dtype);
    int parts = blasd_dtype_parts(dtype);
    trial_put(data, part, i * parts, re);
    if (parts > 1) trial_put(data, part, i * parts + 1, im);
}

static void fill_matrix(const struct case_of *c, void *a) {
    bool even = strcmp(c->assume, "general") != 0, hermitian = strcmp(c->assume, "symmetric") != 0;
    bool definite = strcmp(c->assume, "positive_definite") == 0;
    int64_t n = c->n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t low = i < j ? i : j, high = i < j ? j : i;
            double re, im;
            trial_seed =
                even ? (uint64_t)(low * n + high + 1) * 77 : (uint64_t)(i * n + j + 1) * 77;
            re = trial_normal();
            im = trial_normal();
            if (even && i > j && hermitian) im = -im;
            if (i == j && (hermitian || !even)) im = 0;
            if (i == j && definite) re += 4 * (double)n;
            if (c->family == GRADED) {
                int by = (int)(low * 7 % 60 + high * 7 % 60) - 60;
                re = ldexp(re, by);
                im = ldexp(im, by);
            }
            if (c->family == NEAR_SINGULAR && !definite && low == 0 && n > 2 && high < 3)
                re = im = i == j ? 1e-18 : 0;
            if (c->family == NEAR_SINGULAR && !even) re = 1 / (double)(i + j + 1);
            if (c->family == GROWING && !even) {
                re = i == j || j == n - 1 ? 1 : i > j ? -1 : 0;
                im = 0;
            }
            if (c->family == UNEVEN && i > j) re += 1;
            put(a, c->dtype, c->order == BLASD_ROW_MAJOR ? i * n + j : j * n + i, re, im);
        }
}

static struct trial *factored(const struct case_of *c) {
    struct trial *t = trial_new("factor");
    fill_matrix(c, trial_input(t, "a", c->dtype, c->order, 2, (int64_t[]){c->n, c->n}));
    trial_set_choice(t, "assume_a", c->assume);
    return t;
}

/* solve with the matrix, or with its factors where there are such. */
static struct trial *solved(const struct case_of *c, const struct trial *factors) {
    struct trial *t = trial_new("solve");
    int64_t shape[] = {3, c->n, c->columns};
    void *b;
    if (factors == NULL) {
        fill_matrix(c, trial_input(t, "a", c->dtype, c->order, 2, (int64_t[]){c->n, c->n}));
        trial_set_choice(t, "assume_a", c->assume);
    } else {
        const struct blasd_tensor *f = trial_output(factors, "factor");
        memcpy(trial_input(t, "factor", f->dtype, BLASD_ROW_MAJOR, 2, f->shape), f->data,
               blasd_tensor_bytes(f));
    }
    b = trial_input(t, "b", c->b_dtype, BLASD_ROW_MAJOR, c->stack ? 3 : 2,
                    c->stack ? shape : shape + 1);
    trial_seed = 5;
    for (int64_t i = 0; i < c->n * c->columns * (c->stack ? 3 : 1); i++) {
        double re = trial_normal(), im = trial_normal();
        put(b, c->b_dtype, i, re, im);
    }
    trial_set_bool(t, "certify", c->certify);
    trial_set_bool(t, "transposed", c->transposed);
    return t;
}

static void assert_same_answers(const struct case_of *c, const struct trial *p,
                                const struct trial *q) {
    for (int o = 0; p->job.op->outputs[o].name != NULL; o++) {
        const struct blasd_tensor *x = &p->task.outputs[o], *y = &q->task.outputs[o];
        assert_int_equal(x->rank, y->rank);
        if (x->rank >= 0 && memcmp(x->data, y->data, blasd_tensor_bytes(x)) != 0)
            fail_msg("%s n %lld dtype %d b %d family %d order %d: other bits of %s (%s, %s)",
                     c->assume, (long long)c->n, c->dtype, c->b_dtype, c->family, c->order,
                     p->job.op->outputs[o].name, p->task.method, q->task.method);
    }
    assert_string_equal(p->task.method, q->task.method);
    assert_int_equal(p->task.warning_count, q->task.warning_count);
    for (int i = 0; i < p->task.warning_count; i++)
        assert_string_equal(p->task.warnings[i].text, q->task.warnings[i].text);
}

/* Returns whether there were factors, and adds up warnings. */
static bool compare(const struct case_of *c, int *warnings) {
    struct trial *f = factored(c), *a = solved(c, NULL), *b = NULL;
    enum blasd_code code = trial_run(f), with_a = trial_run(a);
    if (code == BLASD_OK) {
        assert_true(strcmp(c->assume, "general") == 0 || !c->transposed || with_a == BLASD_OK);
        b = solved(c, f);
        assert_int_equal(trial_run(b), with_a);
        if (with_a == BLASD_OK) assert_same_answers(c, a, b);
        *warnings += b->task.warning_count > 0;
    } else {
        assert_true(code == BLASD_E_singular_matrix || code == BLASD_E_not_positive_definite);
    }
    trial_free(f);
    trial_free(a);
    trial_free(b);
    return code == BLASD_OK;
}

static void a_factor_answers_as_its_matrix(void **state) {
    static const int64_t orders[] = {1, 2, 5, 33, 40, 41, 64, 101, 130, 200};
    static const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_complex128,
                                              BLASD_complex64};
    static const char *const assumes[] = {"general", "symmetric", "positive_definite", "hermitian"};
    int made = 0, all = 0, warnings = 0;
    (void)state;
    for (int i = 0; i < 800; i++) {
        struct case_of c = {.n = orders[i % 10],
                            .dtype = dtypes[i / 10 % 4],
                            .assume = assumes[i / 40 % 4],
                            .family = (enum family)(i / 160 % FAMILIES),
                            .order = i % 3 == 0 ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR,
                            .columns = i % 7 == 0 ? 40 : 1 + i % 3,
                            .certify = i % 11 == 0,
                            .stack = i % 13 == 0,
                            .transposed = i % 17 == 0};
        c.b_dtype = i % 19 == 0 ? BLASD_complex128 : i % 23 == 0 ? BLASD_float64 : c.dtype;
        made += compare(&c, &warnings);
        all++;
    }
    assert_true(made >= all / 2);
    assert_true(warnings >= 50);
}

static void large_factors_answer_as_their_matrix(void **state) {
    int warnings = 0;
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct case_of c = {.n = i < 3 ? 400 : 530,
                            .dtype = i % 2 == 0 ? BLASD_float64 : BLASD_float32,
                            .assume = i % 3 == 0   ? "general"
                                      : i % 3 == 1 ? "symmetric"
                                                   : "positive_definite",
                            .columns = 1 + 2 * (i % 2)};
        c.b_dtype = c.dtype;
        assert_true(compare(&c, &warnings));
    }
}

/* ---- what is refused ---- */

static void expect(struct trial *t, enum blasd_code code, const char *field) {
    enum blasd_code got = trial_plan(t);
    const char *of = t->err.field;
    if (got == BLASD_OK) {
        got = trial_run(t);
        of = t->task.err.field;
    }
    assert_int_equal(got, code);
    assert_string_equal(of, field);
    trial_free(t);
}

static void what_is_no_factor_is_refused(void **state) {
    const struct case_of c = {.n = 50,
                              .dtype = BLASD_float64,
                              .b_dtype = BLASD_float64,
                              .assume = "general",
                              .columns = 1};
    struct trial *f = factored(&c), *t;
    const struct blasd_tensor *factor;
    int64_t bytes;
    (void)state;
    assert_int_equal(trial_run(f), BLASD_OK);
    factor = trial_output(f, "factor");
    bytes = (int64_t)blasd_tensor_bytes(factor);
    for (int i = 0; i < 300; i++) { /* a bit of it changed, wherever that is */
        int64_t at = i == 0 ? bytes - 1 : trial_between(0, bytes - 1);
        unsigned char *byte;
        enum blasd_code code;
        t = solved(&c, f);
        byte = (unsigned char *)t->given[blasd_op_input(t->job.op, "factor")] + at;
        *byte ^= (unsigned char)(1 << (i % 8));
        code = trial_run(t);
        if (code != BLASD_E_invalid_tensor) /* but behind its end, where there is nothing */
            assert_true(code == BLASD_OK && at >= bytes - 400);
        trial_free(t);
    }
    t = solved(&c, f);
    memset(t->given[blasd_op_input(t->job.op, "factor")], 0, (size_t)bytes);
    expect(t, BLASD_E_invalid_tensor, "inputs.factor");
    t = solved(&c, f);
    trial_input(t, "factor", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){50, 50});
    expect(t, BLASD_E_invalid_shape, "inputs.factor");
    t = solved(&c, f);
    trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){50, 50});
    expect(t, BLASD_E_invalid_field, "inputs.factor");
    t = solved(&c, f);
    trial_set_choice(t, "assume_a", "general");
    expect(t, BLASD_E_invalid_parameter, "params.assume_a");
    t = solved(&c, f);
    trial_set_choice(t, "rounding", "correct");
    expect(t, BLASD_E_invalid_parameter, "params.rounding");
    t = solved(&c, f);
    trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){49});
    expect(t, BLASD_E_shape_mismatch, "inputs.b");
    t = trial_new("solve");
    trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){49});
    expect(t, BLASD_E_missing_input, "inputs.a");
    t = trial_new("factor");
    trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){3, 4});
    expect(t, BLASD_E_invalid_shape, "inputs.a");
    t = trial_new("factor");
    trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){3, 3});
    expect(t, BLASD_E_singular_matrix, "inputs.a");
    trial_free(f);
}

/* Pivots and figures that no factorization has, with a right checksum: nothing leads out of the
 * matrix. */
static void forged_factors_are_refused(void **state) {
    static const char *const assumes[] = {"general", "symmetric", "positive_definite"};
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct case_of c = {.n = 8 * trial_between(1, 12),
                            .dtype = BLASD_float64,
                            .b_dtype = BLASD_float64,
                            .assume = assumes[i % 3],
                            .columns = 1};
        struct trial *f = factored(&c), *t;
        struct blasd_tensor kept;
        int64_t head = 2 * c.n * c.n * 8, at, size;
        uint64_t checksum;
        int32_t forged;
        assert_int_equal(trial_run(f), BLASD_OK);
        t = solved(&c, f);
        kept = *trial_output(f, "factor");
        kept.data = t->given[blasd_op_input(t->job.op, "factor")];
        trial_seed = (uint64_t)i + 1;
        size = 128 + 4 * c.n;
        at = 24 + trial_between(0, (size - 28) / 4) * 4; /* what follows the checksum */
        forged = (int32_t)(trial_random() >> (i % 2 == 0 ? 0 : 56));
        if (i % 5 == 0) forged = -1;
        memcpy((char *)kept.data + head + at, &forged, sizeof forged);
        checksum = blasd_kept_checksum(&kept);
        memcpy((char *)kept.data + head + 16, &checksum, sizeof checksum);
        (void)trial_run(t); /* whatever comes of it: the sanitizers look on */
        trial_free(t);
        trial_free(f);
    }
}

static void no_unknowns(void **state) {
    struct case_of c = {.dtype = BLASD_float64, .b_dtype = BLASD_float64, .assume = "general"};
    struct trial *f = factored(&c), *t;
    (void)state;
    c.columns = 2;
    assert_int_equal(trial_run(f), BLASD_OK);
    t = solved(&c, f);
    assert_int_equal(trial_run(t), BLASD_OK);
    trial_free(t);
    trial_free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_factor_answers_as_its_matrix),
        cmocka_unit_test(large_factors_answer_as_their_matrix),
        cmocka_unit_test(what_is_no_factor_is_refused),
        cmocka_unit_test(forged_factors_are_refused),
        cmocka_unit_test(no_unknowns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
