/* distance wherever the numbers lie: scaling points, variances, matrices and weights by powers of
 * two is exact, so that each distance must come out scaled by one, over the whole range of floats;
 * and what overflow, equal infinities and impossible rows mean. */
#include "kernels/distance/ref_distance.h"
#include "tests/unit/kernels/kernel_support.h"

#include <float.h>

enum { M = 9, N = 7, K = 5 };

/* The numbers of a job; `scaled` gives the same with each coordinate times 2^shift[d]. */
struct numbers {
    const char *metric;
    enum blasd_dtype dtype;
    double x[M * K], y[N * K], w[K], v[K], vi[K * K], p;
    bool weighted, has_v, has_vi;
};

static double single(double value, enum blasd_dtype dtype) {
    return dtype == BLASD_float32 ? (double)(float)value : value;
}

static void draw(struct numbers *s, const char *metric, enum blasd_dtype dtype) {
    memset(s, 0, sizeof *s);
    s->metric = metric;
    s->dtype = dtype;
    for (int i = 0; i < M * K; i++) s->x[i] = single(trial_normal() + 1.5, dtype);
    for (int i = 0; i < N * K; i++) s->y[i] = single(trial_normal(), dtype);
    for (int d = 0; d < K; d++) {
        s->w[d] = single(trial_uniform() + 1.25, dtype);
        s->v[d] = trial_uniform() + 1.25;
        for (int e = 0; e <= d; e++) s->vi[d * K + e] = s->vi[e * K + d] = trial_uniform() / 8;
        s->vi[d * K + d] = 1 + trial_uniform() / 4;
    }
}

static void *put(struct trial *t, const char *name, enum blasd_dtype dtype, int rank, int64_t rows,
                 int64_t columns, const double *from) {
    int64_t shape[2] = {rows, columns}, n = rank == 2 ? rows * columns : columns;
    void *data = trial_input(t, name, dtype, BLASD_ROW_MAJOR, rank, rank == 2 ? shape : shape + 1);
    for (int64_t i = 0; i < n; i++) trial_put(data, dtype, i, from[i]);
    return data;
}

static struct trial *job_for(const struct numbers *s, const char *output, int64_t neighbours) {
    struct trial *t = trial_new("distance");
    put(t, "x", s->dtype, 2, M, K, s->x);
    put(t, "y", s->dtype, 2, N, K, s->y);
    if (s->weighted) put(t, "w", s->dtype, 1, 1, K, s->w);
    if (s->has_v) put(t, "V", BLASD_float64, 1, 1, K, s->v);
    if (s->has_vi) put(t, "VI", BLASD_float64, 2, K, K, s->vi);
    trial_set_choice(t, "metric", s->metric);
    trial_set_choice(t, "output", output);
    if (strcmp(s->metric, "minkowski") == 0) trial_set_float(t, "p", s->p);
    if (strcmp(output, "topk") == 0) trial_set_int(t, "k", neighbours);
    assert_int_equal(trial_run(t), BLASD_OK);
    return t;
}
static struct trial *job_of(const struct numbers *s, const char *output) {
    return job_for(s, output, 1);
}

static void scale_points(struct numbers *s, const int *shift) {
    for (int i = 0; i < M * K; i++) s->x[i] = ldexp(s->x[i], shift[i % K]);
    for (int i = 0; i < N * K; i++) s->y[i] = ldexp(s->y[i], shift[i % K]);
}

/* Every distance of `b` is that of `a` times 2^power, and the nearest are the same. */
static void compare(const struct numbers *a, const struct numbers *b, double power) {
    bool narrow = a->dtype == BLASD_float32;
    double most = narrow ? (double)FLT_MAX : DBL_MAX, least = narrow ? 0x1p-149 : 0x1p-1074;
    struct trial *full[2] = {job_of(a, "full"), job_of(b, "full")};
    struct trial *near[2] = {job_of(a, "argmin"), job_of(b, "argmin")};
    for (int64_t i = 0; i < M * N; i++) {
        double was = trial_value(trial_output(full[0], "d"), i);
        double got = trial_value(trial_output(full[1], "d"), i);
        long double expected = (long double)was * exp2l((long double)power);
        double bound = (double)(fabsl(expected) * (narrow ? 3e-6L : 2e-13L)) + 2 * least;
        if (expected > (long double)most * 1.0001L)
            assert_true(got == INFINITY);
        else if (expected < (long double)most * 0.9999L &&
                 !(fabsl((long double)got - expected) <= (long double)bound))
            fail_msg("%s %s p %g power %g: %.17g, expected %.17Lg", a->metric,
                     blasd_dtype_name(a->dtype), a->p, power, got, expected);
    }
    for (int64_t i = 0; i < M; i++) {
        const int64_t *index[2] = {trial_output(near[0], "index")->data,
                                   trial_output(near[1], "index")->data};
        double nearest = trial_value(trial_output(full[0], "d"), i * N + index[0][i]);
        double other = trial_value(trial_output(full[0], "d"), i * N + index[1][i]);
        long double scaled = (long double)nearest * exp2l((long double)power);
        if (scaled < (long double)most / 2 && scaled > (long double)least * 0x1p30L)
            assert_true(other <= nearest * 1.0001);
    }
    for (int i = 0; i < 2; i++) {
        trial_free(full[i]);
        trial_free(near[i]);
    }
}

static int draw_shift(enum blasd_dtype dtype) {
    return (int)(dtype == BLASD_float32 ? trial_between(-118, 122) : trial_between(-1010, 1018));
}
static void all_alike(int shift[K], int by) {
    for (int d = 0; d < K; d++) shift[d] = by;
}

/* Those whose distances are as large as the points. */
static void lengths_scale_with_the_points(void **state) {
    static const char *const metrics[] = {"euclidean", "cityblock", "chebyshev", "minkowski"};
    static const double orders[] = {3, 0.5, 2.5, 20, 50, 300, 7, 1.25, 1000, 4};
    (void)state;
    for (int round = 0; round < 160; round++) {
        enum blasd_dtype dtype = round % 2 ? BLASD_float32 : BLASD_float64;
        struct numbers a, b;
        int shift[K], by = draw_shift(dtype);
        draw(&a, metrics[round / 2 % 4], dtype);
        a.p = orders[round / 8 % 10];
        a.weighted = round / 80;
        b = a;
        all_alike(shift, by);
        scale_points(&b, shift);
        compare(&a, &b, by);
    }
}

static void squares_overflow_only_at_the_end(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        enum blasd_dtype dtype = round % 2 ? BLASD_float32 : BLASD_float64;
        int most = dtype == BLASD_float32 ? 110 : 900, by = (int)trial_between(-most, most);
        int shift[K], heavy = -2 * by;
        struct numbers a, b;
        draw(&a, round % 4 < 2 ? "sqeuclidean" : "cityblock", dtype);
        if (a.metric[0] == 'c') heavy = -by;
        if (heavy > most) heavy = most;
        if (heavy < -most) heavy = -most;
        a.weighted = true;
        b = a;
        all_alike(shift, by);
        scale_points(&b, shift);
        for (int d = 0; d < K; d++) b.w[d] = ldexp(b.w[d], heavy);
        compare(&a, &b, heavy + (a.metric[0] == 'c' ? by : 2 * by));
    }
}

/* A coordinate that is 5 everywhere, but in a point of y that is far in it alone; and the last of y
 * is the last of x. */
static void put_beside_ordinary_ones(struct numbers *s) {
    for (int i = 0; i < M; i++) s->x[i * K] = 5;
    for (int i = 0; i < N; i++) s->y[i * K] = i == N / 2 ? 1 : 5;
    memcpy(s->y + (N - 1) * K, s->x + (M - 1) * K, K * sizeof *s->x);
}

/* Squares that all vanish, or are all without end, are equal; their points are not equally near.
 * So it is where some coordinates are ordinary numbers, the same in all, and beside points that are
 * elsewhere or the same; and where squares have a few digits left, in the last rounds. */
static void squares_out_of_range_have_an_order(void **state) {
    (void)state;
    for (int round = 0; round < 192; round++) {
        enum blasd_dtype dtype = round % 2 ? BLASD_float32 : BLASD_float64;
        int64_t many = round / 2 % 2 ? N : 1;
        int far = dtype == BLASD_float32 ? 90 : 700, shift[K];
        if (round >= 96) far = dtype == BLASD_float32 ? 72 : 536;
        struct numbers s;
        struct trial *t[2], *full;
        draw(&s, "sqeuclidean", dtype);
        s.weighted = round / 4 % 2;
        all_alike(shift, round / 8 % 2 && round < 96 ? far : -far);
        scale_points(&s, shift);
        if (round / 48 % 2) put_beside_ordinary_ones(&s);
        full = job_of(&s, "full");
        for (int i = 0; i < 2; i++) {
            if (i == 1) s.metric = "euclidean";
            t[i] = job_for(&s, many > 1 ? "topk" : "argmin", many);
        }
        for (int64_t i = 0; i < M * many; i++) {
            const int64_t *got = trial_output(t[0], "index")->data;
            const int64_t *wish = trial_output(t[1], "index")->data;
            double d = trial_value(trial_output(t[0], "d"), i);
            assert_int_equal(got[i], wish[i]);
            assert_true(d == trial_value(trial_output(full, "d"), i / many * N + got[i]));
            if (round < 48) assert_true(shift[0] > 0 ? d == INFINITY : d == 0);
        }
        trial_free(t[0]);
        trial_free(t[1]);
        trial_free(full);
    }
}

/* Weights of any size. */
static void weights_scale(void **state) {
    static const char *const metrics[] = {"euclidean", "minkowski",  "braycurtis", "hamming",
                                          "jaccard",   "dice",       "yule",       "rogerstanimoto",
                                          "cosine",    "correlation"};
    (void)state;
    for (int round = 0; round < 120; round++) {
        enum blasd_dtype dtype = round % 2 ? BLASD_float32 : BLASD_float64;
        struct numbers a, b;
        int by = draw_shift(dtype) / 2 * 2;
        const char *metric = metrics[round / 2 % 10];
        double power = strcmp(metric, "euclidean") == 0 ? by / 2 : 0;
        draw(&a, metric, dtype);
        a.p = 4;
        a.weighted = true;
        for (int i = 0; i < M * K; i += 2) a.x[i] = i % 3;
        for (int i = 0; i < N * K; i += 2) a.y[i] = i % 3;
        b = a;
        for (int d = 0; d < K; d++) b.w[d] = ldexp(b.w[d], by);
        if (strcmp(metric, "minkowski") == 0) power = by / 4.0;
        compare(&a, &b, power);
    }
}

/* Weights far from each other: the sum of what is 0 in both, say, may be tiny beside the total. */
static void weights_far_apart(void **state) {
    static const char *const metrics[] = {"russellrao", "yule", "rogerstanimoto", "sokalsneath"};
    (void)state;
    for (int round = 0; round < 80; round++) {
        enum blasd_dtype dtype = round % 2 ? BLASD_float32 : BLASD_float64;
        int range = dtype == BLASD_float32 ? 20 : 100, which = round / 2 % 4;
        double u = dtype == BLASD_float32 ? 0x1p-24 : 0x1p-53;
        struct numbers s;
        struct trial *t;
        draw(&s, metrics[which], dtype);
        s.weighted = true;
        for (int d = 0; d < K; d++) s.w[d] = ldexp(s.w[d], (int)trial_between(-range, range));
        for (int i = 0; i < M * K; i++) s.x[i] = (double)trial_between(0, 1);
        for (int i = 0; i < N * K; i++) s.y[i] = (double)trial_between(0, 1);
        t = job_of(&s, "full");
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                long double sums[2][2] = {{0}}, one, wish;
                double got = trial_value(trial_output(t, "d"), i * N + j);
                for (int d = 0; d < K; d++)
                    sums[s.x[i * K + d] != 0][s.y[j * K + d] != 0] += (long double)s.w[d];
                one = sums[0][1] + sums[1][0];
                wish = which == 0   ? (one + sums[0][0]) / (one + sums[0][0] + sums[1][1])
                       : which == 2 ? 2 * one / (sums[0][0] + sums[1][1] + 2 * one)
                       : which == 3 ? 2 * one / (sums[1][1] + 2 * one)
                                    : 2 * sums[0][1] * sums[1][0] /
                                          (sums[0][0] * sums[1][1] + sums[0][1] * sums[1][0]);
                if (which == 1 && !(sums[0][1] * sums[1][0] > 0)) wish = 0;
                if (which == 3 && one + sums[1][1] == 0) continue;
                if (!(fabsl(got - wish) <= 24 * u * wish))
                    fail_msg("%s: %g, not %Lg", s.metric, got, wish);
            }
        trial_free(t);
    }
}

/* Points and what they are measured by, scaled alike, coordinate by coordinate: nothing changes. */
static void scales_of_coordinates_cancel(void **state) {
    (void)state;
    for (int round = 0; round < 160; round++) {
        enum blasd_dtype dtype = round % 2 ? BLASD_float32 : BLASD_float64;
        bool given = round / 2 % 2, matrix = round / 4 % 2;
        int shift[K], most = dtype == BLASD_float32 ? 110 : given ? 505 : 1000;
        struct numbers a, b;
        draw(&a, matrix ? "mahalanobis" : "seuclidean", dtype);
        a.has_v = given && !matrix;
        a.has_vi = given && matrix;
        b = a;
        for (int d = 0; d < K; d++) shift[d] = (int)trial_between(-most, most);
        if (round / 8 % 2) all_alike(shift, shift[0]);
        scale_points(&b, shift);
        for (int d = 0; d < K; d++) {
            b.v[d] = ldexp(b.v[d], 2 * shift[d]);
            for (int e = 0; e < K; e++)
                b.vi[d * K + e] = ldexp(b.vi[d * K + e], -shift[d] - shift[e]);
        }
        compare(&a, &b, 0);
    }
}

/* Points of small whole numbers, all moved by as much as their type can add without rounding: what
 * is measured from a mean does not change, though the mean is 1e14 times the spread. */
static void origins_cancel(void **state) {
    static const char *const metrics[] = {"correlation", "seuclidean", "mahalanobis"};
    (void)state;
    for (int round = 0; round < 60; round++) {
        enum blasd_dtype dtype = round % 4 == 3 ? BLASD_float32 : BLASD_float64;
        double most = dtype == BLASD_float32 ? 0x1p24 - 50 : 0x1p53 - 50, by[K];
        struct numbers a, b;
        draw(&a, metrics[round % 3], dtype);
        a.weighted = round % 3 == 0 && round % 2;
        for (int i = 0; i < M * K; i++) a.x[i] = (double)trial_between(-40, 40);
        for (int i = 0; i < N * K; i++) a.y[i] = (double)trial_between(-40, 40);
        for (int d = 0; d < K; d++) {
            by[d] = floor(most * trial_uniform());
            if (round % 3 == 0) by[d] = by[0]; /* its mean is a row's */
        }
        b = a;
        for (int i = 0; i < M * K; i++) b.x[i] += by[i % K];
        for (int i = 0; i < N * K; i++) b.y[i] += by[i % K];
        compare(&a, &b, 0);
    }
}

/* Rows that point in opposite directions, and rows that differ wherever they can: no rounding of
 * sums or weights brings them further apart than is possible. */
static void no_more_than_the_most(void **state) {
    static const struct {
        const char *metric;
        double most;
    } cases[] = {{"cosine", 2},         {"correlation", 2},   {"hamming", 1},
                 {"rogerstanimoto", 1}, {"sokalmichener", 1}, {"russellrao", 1},
                 {"sokalsneath", 1},    {"jaccard", 1},       {"jaccard_legacy", 1},
                 {"dice_legacy", 1},    {"yule", 2}};
    enum { CASES = sizeof cases / sizeof *cases };
    (void)state;
    for (int round = 0; round < 12 * CASES; round++) {
        double most = cases[round % CASES].most;
        struct numbers s;
        struct trial *t;
        draw(&s, cases[round % CASES].metric, round / CASES % 2 ? BLASD_float32 : BLASD_float64);
        s.weighted = round / CASES % 4 > 1 || round % CASES > 1;
        for (int i = 0; i < M * K && round % CASES > 1; i++)
            s.x[i] = (double)(s.metric[0] != 'y' ? i / K % 2 : i % 2);
        for (int i = 0; i < N * K; i++) s.y[i] = round % CASES < 2 ? -s.x[i] : 1 - s.x[i];
        t = job_of(&s, "full");
        for (int i = 0; i < N; i++) {
            double d = trial_value(trial_output(t, "d"), i * N + i);
            if (!(d <= most && d >= most * (1 - 1e-6)))
                fail_msg("%s %s: %.17g", s.metric, blasd_dtype_name(s.dtype), d);
        }
        trial_free(t);
    }
}

/* Those that are ratios. */
static void ratios_do_not_scale(void **state) {
    static const char *const metrics[] = {"cosine", "correlation", "canberra", "braycurtis",
                                          "jensenshannon"};
    (void)state;
    for (int round = 0; round < 120; round++) {
        enum blasd_dtype dtype = round % 2 ? BLASD_float32 : BLASD_float64;
        struct numbers a, b;
        int shift[K];
        draw(&a, metrics[round / 2 % 5], dtype);
        for (int i = 0; i < M * K; i++) a.x[i] = fabs(a.x[i]) + 0.25;
        for (int i = 0; i < N * K; i++) a.y[i] = fabs(a.y[i]) + 0.25;
        for (int i = 0; i < M * K; i++) a.x[i] = single(a.x[i], dtype);
        for (int i = 0; i < N * K; i++) a.y[i] = single(a.y[i], dtype);
        a.weighted = round % 3 == 0 && strcmp(a.metric, "jensenshannon") != 0;
        b = a;
        all_alike(shift, round < 20 ? (dtype == BLASD_float32 ? 124 : 1020) : draw_shift(dtype));
        scale_points(&b, shift);
        compare(&a, &b, 0);
    }
}

static bool has_lost(const struct trial *t) {
    for (int i = 0; i < t->task.warning_count; i++)
        if (t->task.warnings[i].code == BLASD_W_precision_loss) return true;
    return false;
}

/* Whether each distance is within 1e-5 (float32) or 1e-12 of the definition. */
static bool is_right(const struct numbers *s, struct trial *t) {
    long double x[K], y[K], w[K], v[K];
    struct blasd_ref_distance ref = {.metric = s->metric, .k = K, .p = (long double)s->p, .v = v};
    bool narrow = s->dtype == BLASD_float32;
    if (s->weighted) ref.w = w;
    for (int64_t at = 0; at < M * N; at++) {
        long double exact, most = narrow ? FLT_MAX : DBL_MAX,
                           least = narrow ? 0x1p-120L : 0x1p-1000L;
        double got = trial_value(trial_output(t, "d"), at);
        for (int d = 0; d < K; d++) {
            x[d] = (long double)s->x[at / N * K + d];
            y[d] = (long double)s->y[at % N * K + d];
            w[d] = (long double)s->w[d];
            v[d] = (long double)s->v[d];
        }
        exact = blasd_ref_distance(&ref, x, y);
        if (isnan(exact) ? isnan(got) : exact > most ? isinf(got) : false) continue;
        if (!(fabsl((long double)got - exact) <= exact * (narrow ? 1e-5L : 1e-12L) + least))
            return false;
    }
    return true;
}

/* Points and weights of all sizes in one job: what is not right is warned of, and what lies within
 * 2^700 (float32: 2^80) of the largest is right without a warning. */
static void what_is_lost_is_warned_of(void **state) {
    static const char *const metrics[] = {"euclidean", "sqeuclidean", "cityblock",  "minkowski",
                                          "canberra",  "braycurtis",  "seuclidean", "chebyshev"};
    int warned = 0;
    (void)state;
    for (int round = 0; round < 960; round++) {
        enum blasd_dtype dtype = round % 2 ? BLASD_float32 : BLASD_float64;
        bool far = round / 16 % 2, narrow = dtype == BLASD_float32;
        int most = narrow ? 120 : 1010, apart = far ? 2 * most : narrow ? 40 : 350, middle;
        struct numbers s;
        struct trial *t;
        draw(&s, metrics[round / 2 % 8], dtype);
        s.p = round / 64 % 2 ? 0.5 : 3.5;
        s.has_v = strcmp(s.metric, "seuclidean") == 0;
        s.weighted = round / 32 % 2 && !s.has_v;
        middle = (int)trial_between(-most, most);
        for (int i = 0; i < (M + N) * K; i++) {
            double *to = i < M * K ? s.x + i : s.y + (i - M * K);
            int64_t power = middle + trial_between(-apart / 2, apart / 2);
            *to = ldexp(*to, (int)(power > most ? most : power < -most ? -most : power));
            if (trial_random() % 4 == 0) *to = i < M * K ? 0 : s.x[i % (M * K)];
        }
        for (int d = 0; d < K; d++) {
            s.w[d] = ldexp(s.w[d], (int)trial_between(-apart / 8, apart / 8));
            s.v[d] = ldexp(s.v[d], (int)trial_between(-apart / 4, apart / 4));
        }
        t = job_of(&s, "full");
        warned += has_lost(t);
        if (has_lost(t) ? !far : !is_right(&s, t))
            fail_msg("round %d: %s %s: %s", round, s.metric, blasd_dtype_name(dtype),
                     has_lost(t) ? "warned" : "wrong");
        trial_free(t);
    }
    assert_true(warned > 20 && warned < 300);
}

/* The one distance of (x0, x1) and (y0, y1); NaN where it is warned of. */
static double between(const char *metric, enum blasd_dtype dtype, double p, const double x[2],
                      const double y[2]) {
    struct trial *t = trial_new("distance");
    double d;
    put(t, "x", dtype, 2, 1, 2, x);
    put(t, "y", dtype, 2, 1, 2, y);
    trial_set_choice(t, "metric", metric);
    if (p > 0) trial_set_float(t, "p", p);
    assert_int_equal(trial_run(t), BLASD_OK);
    d = has_lost(t) ? NAN : trial_value(trial_output(t, "d"), 0);
    trial_free(t);
    return d;
}
#define POINT(a, b) ((const double[2]){(a), (b)})

static void what_the_edges_mean(void **state) {
    const double inf = INFINITY;
    (void)state;
    for (int i = 0; i < 2; i++) {
        enum blasd_dtype type = i == 0 ? BLASD_float64 : BLASD_float32;
        double big = i == 0 ? 1.7e308 : 3.3e38, least = i == 0 ? 0x1p-1074 : 0x1p-149;
        double tolerance = i == 0 ? 1e-15 : 1e-6;
        assert_true(between("chebyshev", type, 0, POINT(inf, 1), POINT(inf, 3)) == 2);
        assert_true(between("chebyshev", type, 0, POINT(inf, -inf), POINT(inf, -inf)) == 0);
        assert_true(between("chebyshev", type, 0, POINT(inf, 1), POINT(-inf, 3)) == inf);
        assert_true(isnan(between("chebyshev", type, 0, POINT(NAN, 1), POINT(1, 3))));
        assert_true(between("minkowski", type, inf, POINT(inf, 1), POINT(inf, 3)) == 2);
        assert_true(isnan(between("euclidean", type, 0, POINT(inf, 1), POINT(inf, 3))));
        ASSERT_CLOSE(between("canberra", type, 0, POINT(big, 1), POINT(big / 2, 1)), 1.0L / 3,
                     tolerance);
        ASSERT_CLOSE(between("canberra", type, 0, POINT(big, 1), POINT(-big, 1)), 1, tolerance);
        assert_true(isnan(between("canberra", type, 0, POINT(3 * least, big), POINT(least, big))));
        ASSERT_CLOSE(between("braycurtis", type, 0, POINT(big, big), POINT(big / 2, big)), 1.0L / 7,
                     tolerance);
        ASSERT_CLOSE(between("braycurtis", type, 0, POINT(big, 1), POINT(-big, 1)) / big, 1,
                     tolerance);
        ASSERT_CLOSE(between("braycurtis", type, 0, POINT(big, big), POINT(-big, big)), 1,
                     tolerance);
        assert_true(between("braycurtis", type, 0, POINT(big, 0.5), POINT(-big, 0)) == inf);
        assert_true(between("jensenshannon", type, 0, POINT(-1, 3), POINT(1, 1)) == inf);
        assert_true(between("jensenshannon", type, 0, POINT(-1, -3), POINT(1, 1)) == inf);
        assert_true(between("jensenshannon", type, 0, POINT(0, 0), POINT(1, 1)) == inf);
        assert_true(isnan(between("jensenshannon", type, 0, POINT(NAN, 0), POINT(1, 1))));
        ASSERT_CLOSE(between("minkowski", type, 1e6, POINT(3, 0), POINT(0, 2)), 3, 1e-5);
        ASSERT_CLOSE(between("minkowski", type, 1e300, POINT(3, 0), POINT(0, 2)), 3, tolerance * 4);
        assert_true(isnan(between("minkowski", type, 50, POINT(NAN, 0), POINT(0, 2))));
        assert_true(between("minkowski", type, 50, POINT(inf, 0), POINT(0, 2)) == inf);
        assert_true(between("minkowski", type, 50, POINT(4, 5), POINT(4, 5)) == 0);
    }
}

/* Weights, and so many coordinates, of which each alone leaves the range under a root of that order
 * but not both. */
static void roots_of_small_order(void **state) {
    enum { MANY = 10000 };
    static const struct {
        double p, w, d;
    } cases[] = {{0.001, 1e-300, 0}, {0.0001, 1e-4, 1}, {0.02, 1e-299, 0}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct trial *t = trial_new("distance");
        double *x, *y, *w;
        x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){1, MANY});
        y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){1, MANY});
        w = trial_input(t, "w", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){MANY});
        for (int d = 0; d < MANY; d++) {
            x[d] = 1;
            y[d] = 2;
            w[d] = cases[c].w;
        }
        trial_set_choice(t, "metric", "minkowski");
        trial_set_float(t, "p", cases[c].p);
        assert_int_equal(trial_run(t), BLASD_OK);
        ASSERT_CLOSE(trial_value(trial_output(t, "d"), 0), cases[c].d, 1e-6);
        trial_free(t);
    }
}

/* Of two rows, less `mean`, in long double: half the square between them at length 1. */
static long double angle(const double *a, const double *b, bool centred) {
    long double means[2] = {0}, lengths[2] = {0}, sum = 0;
    for (int d = 0; d < K && centred; d++) {
        means[0] += (long double)a[d] / K;
        means[1] += (long double)b[d] / K;
    }
    for (int d = 0; d < K; d++) {
        lengths[0] += (a[d] - means[0]) * (a[d] - means[0]);
        lengths[1] += (b[d] - means[1]) * (b[d] - means[1]);
    }
    for (int d = 0; d < K; d++) {
        long double off =
            (a[d] - means[0]) / sqrtl(lengths[0]) - (b[d] - means[1]) / sqrtl(lengths[1]);
        sum += off * off / 2;
    }
    return sum;
}

static long double shares(const double *a, const double *b) {
    long double totals[2] = {0}, sum = 0;
    for (int d = 0; d < K; d++) {
        totals[0] += a[d];
        totals[1] += b[d];
    }
    for (int d = 0; d < K; d++) {
        long double p = a[d] / totals[0], q = b[d] / totals[1], t = (p - q) / (p + q);
        sum += (p + q) / 2 * ((1 + t) * log1pl(t) + (1 - t) * log1pl(-t));
    }
    return sqrtl(sum / 2);
}

/* float32 rows that differ in their last digits: scaled to length 1, or to shares, they must not be
 * rounded to float32 again. */
static void rows_that_nearly_agree(void **state) {
    static const char *const metrics[] = {"cosine", "correlation", "jensenshannon"};
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct numbers s;
        struct trial *t;
        double gap = pow(10, -1 - round / 3 % 5);
        draw(&s, metrics[round % 3], BLASD_float32);
        for (int i = 0; i < M * K; i++) s.x[i] = (double)(float)(1.5 + trial_uniform());
        for (int i = 0; i < N * K; i++)
            s.y[i] = (double)(float)(s.x[i % (M * K)] * (1 + gap * trial_uniform()));
        t = job_of(&s, "full");
        for (int i = 0; i < N; i++) {
            const double *a = s.x + i * K, *b = s.y + i * K;
            long double wish = round % 3 == 2 ? shares(a, b) : angle(a, b, round % 3 == 1);
            double got = trial_value(trial_output(t, "d"), i * N + i);
            if (!(fabsl(got - wish) <= 4 * 0x1p-24L * wish))
                fail_msg("%s of rows %g apart: %g, not %Lg", s.metric, gap, got, wish);
        }
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_scale_with_the_points),
        cmocka_unit_test(squares_overflow_only_at_the_end),
        cmocka_unit_test(squares_out_of_range_have_an_order),
        cmocka_unit_test(weights_scale),
        cmocka_unit_test(weights_far_apart),
        cmocka_unit_test(scales_of_coordinates_cancel),
        cmocka_unit_test(origins_cancel),
        cmocka_unit_test(no_more_than_the_most),
        cmocka_unit_test(ratios_do_not_scale),
        cmocka_unit_test(what_is_lost_is_warned_of),
        cmocka_unit_test(what_the_edges_mean),
        cmocka_unit_test(rows_that_nearly_agree),
        cmocka_unit_test(roots_of_small_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
