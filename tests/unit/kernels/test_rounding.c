/* Rounding correct: one SHA-256 for each family of a million elements, and the rules of ties, zeros
 * and special sums. Digests are the same on every machine, with every compiler and BLAS. */
#include "kernel_support.h"

#include "kernels/exact/sum.h"
#include "kernels/exact/whole.h"

#include <sodium.h>

/* ---- numbers of a fixed sequence, made of whole numbers alone ---- */

static double number(int low, int high, int digits) {
    uint64_t bits = trial_random();
    double size = ldexp((double)(bits >> (64 - digits) | 1), -digits);
    size = ldexp(size, low + (int)(trial_random() % (uint64_t)(high - low + 1)));
    return (trial_random() & 1) != 0 ? -size : size;
}

static int pick(const int *choices, int count) {
    return choices[trial_random() % (uint64_t)count];
}
#define PICK(...)                                                                                  \
    pick((const int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)))

/* Exponents and digits of the numbers of a case; `cancel`: a later term takes away an earlier one.
 */
struct kind {
    int low, high, digits;
    bool cancel;
};
static const struct kind wide_kinds[] = {
    {0, 0, 53, false}, {-60, 60, 53, false}, {-545, -520, 53, false}, {505, 512, 53, false},
    {0, 0, 53, true},  {0, 3, 27, false},    {-997, 997, 53, false},  {-1073, -1000, 53, false},
    {-3, 3, 4, false}, {0, 1, 2, true},
};
static const struct kind narrow_kinds[] = {
    {0, 0, 24, false},   {-20, 20, 24, false},    {-75, -60, 24, false},
    {60, 64, 24, false}, {-148, -120, 24, false}, {0, 2, 13, true},
};

static struct kind kind_of(enum blasd_dtype dtype) {
    return dtype == BLASD_float32 ? narrow_kinds[trial_random() % 6]
                                  : wide_kinds[trial_random() % 10];
}

static void fill(void *data, enum blasd_dtype dtype, int64_t count, int64_t line,
                 const struct kind *kind) {
    double before = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = number(kind->low, kind->high, kind->digits);
        if (kind->cancel && i % line % 2 == 1) value = -before;
        trial_put(data, dtype, i, value);
        before = value;
    }
}

static struct trial *new_trial(const char *op) {
    struct trial *t = trial_new(op);
    trial_set_choice(t, "rounding", "correct");
    return t;
}

/* ---- the families ---- */

static struct trial *product(enum blasd_dtype dtype) {
    struct kind kind = kind_of(dtype), other = kind;
    int m = PICK(1, 2, 5, 9, 17), k = PICK(1, 2, 3, 8, 16, 40), n = PICK(1, 3, 7, 20);
    struct trial *t = new_trial("matmul");
    bool stack = trial_random() % 8 == 0;
    void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, stack ? 3 : 2,
                          stack ? (int64_t[]){2, m, k} : (int64_t[]){m, k});
    fill(a, dtype, (stack ? 2 : 1) * m * k, k, &kind);
    other.cancel = false;
    if (kind.low < -1000) { /* products of subnormal numbers with large ones */
        other.low = -60;
        other.high = 1000;
    }
    fill(trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){k, n}), dtype, k * n, k,
         &other);
    return t;
}
static struct trial *product64(void) {
    return product(BLASD_float64);
}
static struct trial *product32(void) {
    return product(BLASD_float32);
}

static struct trial *distances(enum blasd_dtype dtype) {
    static const char *const metrics[] = {"euclidean", "sqeuclidean", "cityblock", "chebyshev"};
    struct kind kind = kind_of(dtype);
    int m = PICK(1, 5, 19), n = PICK(1, 7, 30), k = PICK(1, 2, 3, 8, 20);
    struct trial *t = new_trial("distance");
    trial_set_choice(t, "metric", metrics[trial_random() % 4]);
    fill(trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){m, k}), dtype, m * k, k, &kind);
    fill(trial_input(t, "y", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, k}), dtype, n * k, k, &kind);
    return t;
}
static struct trial *distances64(void) {
    return distances(BLASD_float64);
}
static struct trial *distances32(void) {
    return distances(BLASD_float32);
}

static struct trial *system_of(void) {
    int n = PICK(1, 2, 3, 5, 8, 12), columns = PICK(1, 2, 9), by = PICK(0, 0, 40, 52);
    enum blasd_dtype dtype = trial_random() % 4 == 0 ? BLASD_float32 : BLASD_float64;
    const struct kind kind = {0, PICK(0, 2, 12), 24, false};
    struct trial *t = new_trial("solve");
    void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
    fill(a, dtype, n * n, n, &kind);
    if (by > 0 && n > 1 && dtype == BLASD_float64) /* two rows that are nearly one */
        for (int j = 0; j < n; j++)
            ((double *)a)[n + j] = ((double *)a)[j] * (1 + ldexp(number(0, 0, 4), 1 - by));
    fill(trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, columns}), dtype,
         n * columns, n, &kind);
    return t;
}

static struct trial *fit(void) {
    int p = PICK(1, 2, 3, 5), n = p + PICK(2, 3, 10, 40), targets = PICK(1, 2, 4);
    bool ols = trial_random() % 2 == 0;
    const struct kind kind = {0, PICK(0, 1, 6), 24, false};
    struct trial *t = new_trial(ols ? "regression" : "lstsq");
    fill(trial_input(t, ols ? "x" : "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p}),
         BLASD_float64, n * p, p, &kind);
    fill(
        trial_input(t, ols ? "y" : "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, targets}),
        BLASD_float64, n * targets, n, &kind);
    return t;
}

static const struct family {
    const char *name;
    struct trial *(*make)(void);
    int64_t elements;
    const char *outputs[6];
    const char *quick, *full; /* after a sixteenth of the elements, and after all */
} families[] = {
    {"products",
     product64,
     400000,
     {"c"},
     "f30652ba118bb65564a2f4b45095c23e43ee7b24ca23f21d4204dc559220f8e7",
     "9cf7e6c869d93f9809a53d7accbc0d993df64dbe70ed877d95340a83c532ddb4"},
    {"products of float32",
     product32,
     200000,
     {"c"},
     "a5471ad860aac56048e02f39dd19b5698a734cef18f4857b524e2bb85967a1a7",
     "dbd5b0afeb46c22e23d7bbece87d8abaa0555eef83926da1c2ad37de576d5b55"},
    {"distances",
     distances64,
     250000,
     {"d"},
     "a8162df265bf4f59560fe0124df9d4301c1c95a839daed219e758bfaf84dcbae",
     "3251ffa5228f27d510adcc73179c4ee0f32f60d6da3a806e233f47adee3ea921"},
    {"distances of float32",
     distances32,
     100000,
     {"d"},
     "8264ee763c0fb0eb5db8e1eb3f10497540c8fccbaee40e250898c6fba4f039fa",
     "40c9b979b531b912d7bc016f0c0f4a1ab1f0832d6b0dae41b0ec2d0e9045cbb2"},
    {"solutions",
     system_of,
     40000,
     {"x"},
     "b16623155e7be979a57f7d4fdab6ae8c4047de408ecaa6de2151b637394b2690",
     "1d93a9c1e9879706ff9a34446af9ff45d96575ee909e8014ef25b753d29b9d7a"},
    {"fits",
     fit,
     10000,
     {"coef", "intercept", "ssr", "tss", "r2", "x"},
     "b774bfb848752b59e4680fc80edd7e3e2a1caed660807a8e0d9d6cfd5ca28656",
     "e940782dec3d5adecd381bc85553025bfc32f9f8503c96876574e7c1051ea63a"},
};

static int64_t hash(struct trial *t, const struct family *family, crypto_hash_sha256_state *state) {
    int64_t elements = 0;
    for (int i = 0; i < 6 && family->outputs[i] != NULL; i++) {
        const struct blasd_tensor *out;
        if (blasd_op_output(t->job.op, family->outputs[i]) < 0) continue;
        out = trial_output(t, family->outputs[i]);
        crypto_hash_sha256_update(state, out->data, blasd_tensor_bytes(out));
        elements += blasd_tensor_elements(out);
    }
    return elements;
}

static void assert_digest(const struct family *family, const crypto_hash_sha256_state *state,
                          const char *wish) {
    crypto_hash_sha256_state copy = *state;
    unsigned char digest[crypto_hash_sha256_BYTES];
    char text[2 * sizeof digest + 1];
    crypto_hash_sha256_final(&copy, digest);
    sodium_bin2hex(text, sizeof text, digest, sizeof digest);
    if (strcmp(text, wish) != 0) print_error("%s: \"%s\"\n", family->name, text);
    assert_string_equal(text, wish);
}

/* A system that is singular is refused, which is no element. */
static void test_golden_digests(void **state) {
    bool quick = trial_step(2) == 2;
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        const struct family *family = &families[f];
        crypto_hash_sha256_state sum;
        int64_t part = family->elements / 16;
        crypto_hash_sha256_init(&sum);
        trial_seed = 46 + f;
        for (int64_t done = 0, most = quick ? part : family->elements; done < most;) {
            struct trial *t = family->make();
            int64_t before = done;
            if (trial_run(t) == 0 && t->task.err.code == BLASD_OK) done += hash(t, family, &sum);
            trial_free(t);
            if (before < part && done >= part) assert_digest(family, &sum, family->quick);
        }
        if (!quick) assert_digest(family, &sum, family->full);
    }
}

/* ---- sums ---- */

static struct blasd_exact_sum sum;

static double rounded(const double *terms, int count, enum blasd_dtype dtype) {
    blasd_exact_clear(&sum);
    for (int i = 0; i < count; i++) blasd_exact_add(&sum, terms[i]);
    return blasd_exact_round(&sum, dtype);
}

static void test_ties_zeros_and_what_is_not_finite(void **state) {
    static const struct {
        double terms[4];
        int count;
        enum blasd_dtype dtype;
        double wish;
    } cases[] = {
        {{1, 0x1p-53}, 2, BLASD_float64, 1},                      /* a tie goes to the even one */
        {{1 + 0x1p-52, 0x1p-53}, 2, BLASD_float64, 1 + 0x1p-51},  /* upwards */
        {{1, 0x1p-53, 0x1p-1074}, 3, BLASD_float64, 1 + 0x1p-52}, /* and a little more */
        {{1, 0x1p-53, -0x1p-1074}, 3, BLASD_float64, 1},
        {{-1, -0x1p-53, -0x1p-1074}, 3, BLASD_float64, -1 - 0x1p-52},
        {{1, 0x1p-24}, 2, BLASD_float32, 1},
        {{1 + 0x1p-23, 0x1p-24}, 2, BLASD_float32, 1 + 0x1p-22},
        {{1, 0x1p-24, 0x1p-60}, 3, BLASD_float32, 1 + 0x1p-23},
        {{0x1p-149, 0x1p-150}, 2, BLASD_float32, 0x1p-148}, /* 1.5 of the least: to 2 */
        {{0x1p-150}, 1, BLASD_float32, 0},                  /* 0.5 of it: to 0 */
        {{-0x1p-150}, 1, BLASD_float32, -0.0},
        {{0x1p-150, 0x1p-200}, 2, BLASD_float32, 0x1p-149},
        {{0x1.fffffffffffffp1023, 0x1p969}, 2, BLASD_float64, 0x1.fffffffffffffp1023},
        {{0x1.fffffffffffffp1023, 0x1p970}, 2, BLASD_float64, HUGE_VAL},
        {{-0x1.fffffffffffffp1023, -0x1p970}, 2, BLASD_float64, -HUGE_VAL},
        {{0x1.fffffep127, 0x1p103}, 2, BLASD_float32, HUGE_VAL},
        {{1e308, 1e308, -1e308}, 3, BLASD_float64, 1e308}, /* no sum between overflows */
        {{1, -1}, 2, BLASD_float64, 0},
        {{-0.0, -0.0}, 2, BLASD_float64, -0.0},
        {{-0.0, 0.0}, 2, BLASD_float64, 0},
        {{-1, 1, -0.0}, 3, BLASD_float64, 0},
        {{0}, 0, BLASD_float64, 0},
        {{HUGE_VAL, 1}, 2, BLASD_float64, HUGE_VAL},
        {{-HUGE_VAL, 1}, 2, BLASD_float64, -HUGE_VAL},
        {{HUGE_VAL, -HUGE_VAL}, 2, BLASD_float64, NAN},
        {{NAN, 1}, 2, BLASD_float64, NAN},
    };
    (void)state;
    blasd_exact_new(&sum);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double got = rounded(cases[i].terms, cases[i].count, cases[i].dtype);
        double wish = cases[i].wish;
        bool good = isnan(wish) ? isnan(got) && !signbit(got)
                                : got == wish && signbit(got) == signbit(wish);
        if (!good) print_error("case %zu: %a, not %a\n", i, got, wish);
        assert_true(good);
    }
}

/* Roots of squares of numbers with few digits are exact, and of those beside them they are not. */
static void test_roots(void **state) {
    (void)state;
    blasd_exact_new(&sum);
    trial_seed = 5;
    for (int i = 0; i < 2000; i++) {
        double x = fabs(number(-500, 500, 53));
        blasd_exact_clear(&sum);
        blasd_exact_add_product(&sum, x, x);
        assert_true(blasd_exact_root(&sum, BLASD_float64) == x);
        assert_true(blasd_exact_root(&sum, BLASD_float32) == (double)(float)x);
        /* (x + half a place)^2 is a tie, which goes to the even one */
        double next = nextafter(x, HUGE_VAL), half = (next - x) / 2, even;
        uint64_t bits;
        memcpy(&bits, &x, sizeof bits);
        even = (bits & 1) == 0 ? x : next;
        blasd_exact_clear(&sum);
        blasd_exact_add_product(&sum, x, x);
        blasd_exact_add_product(&sum, 2 * x, half);
        blasd_exact_add_product(&sum, half, half);
        assert_true(blasd_exact_root(&sum, BLASD_float64) == even);
        blasd_exact_add(&sum, 0x1p-1074);
        assert_true(blasd_exact_root(&sum, BLASD_float64) == next);
    }
}

/* Sums of many terms, whose carries are taken once, in two orders. */
static void test_the_order_of_terms_does_not_matter(void **state) {
    static double terms[5000];
    (void)state;
    blasd_exact_new(&sum);
    trial_seed = 6;
    for (int i = 0; i < 5000; i++) terms[i] = number(-1000, 1000, 53);
    for (int round = 0; round < 20; round++) {
        double first = rounded(terms, 5000, BLASD_float64);
        for (int i = 4999; i > 0; i--) {
            int j = (int)(trial_random() % (uint64_t)(i + 1));
            double held = terms[i];
            terms[i] = terms[j];
            terms[j] = held;
        }
        assert_true(rounded(terms, 5000, BLASD_float64) == first);
        for (int i = 0; i < 5000; i++) blasd_exact_add(&sum, -terms[i]);
        assert_true(blasd_exact_round(&sum, BLASD_float64) == 0);
    }
}

/* ---- whole numbers ---- */

static void test_whole_numbers(void **state) {
    (void)state;
    trial_seed = 7;
    for (int i = 0; i < 5000; i++) {
        int64_t a = (int64_t)trial_random() >> (trial_random() % 60), work_of = i % 2;
        int64_t b = (int64_t)trial_random() >> (trial_random() % 60);
        uint64_t la[1] = {(uint64_t)llabs(a)}, lb[1] = {(uint64_t)llabs(b)}, lr[4], work[8];
        struct blasd_whole x = {la, a == 0 ? 0 : a < 0 ? -1 : 1};
        struct blasd_whole y = {lb, b == 0 ? 0 : b < 0 ? -1 : 1}, r = {lr, 0};
        __int128 wish = (__int128)a * b, got;
        blasd_whole_multiply(&r, &x, &y);
        got =
            r.length == 0 ? 0 : (__int128)lr[0] + (llabs(r.length) > 1 ? (__int128)lr[1] << 64 : 0);
        assert_true((r.length < 0 ? -got : got) == wish);
        blasd_whole_subtract(&r, &x, &y);
        wish = (__int128)a - b;
        got =
            r.length == 0 ? 0 : (__int128)lr[0] + (llabs(r.length) > 1 ? (__int128)lr[1] << 64 : 0);
        assert_true((r.length < 0 ? -got : got) == wish);
        if (b != 0 && llabs(a) < INT64_C(1) << 53 && llabs(b) < INT64_C(1) << 53)
            assert_true(blasd_whole_quotient(&x, &y, (int)work_of, BLASD_float64, work) ==
                        (double)a / (double)b * (1 << work_of)); /* which IEEE rounds alike */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_digests),
        cmocka_unit_test(test_ties_zeros_and_what_is_not_finite),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_the_order_of_terms_does_not_matter),
        cmocka_unit_test(test_whole_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
