/* distance against values computed with SciPy 1.10's cdist, and 1.15's where it
 * differs (the older is called legacy here): that names, weights and conventions
 * mean here what they mean there. */
#include "tests/unit/kernels/kernel_support.h"

/* x, y */
static const double plain_x[12] = {0.5, -1.25, 3, 0, 2, 0.75, -0.5, 1.5, 0, 0, 1, 0};
static const double plain_y[8] = {1, -1, 2.5, 0.25, 0, 0, 1, 0};
static const double positive_x[12] = {0.625, 1.375, 3.125, 0.125, 2.125, 0.875,
                                      0.625, 1.625, 0.125, 0.125, 1.125, 0.125};
static const double positive_y[8] = {1.125, 1.125, 2.625, 0.375, 0.125, 0.125, 1.125, 0.125};
static const double truth_x[18] = {1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0};
static const double truth_y[12] = {1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0, 0};
static const double weights[4] = {1, 0.5, 2, 0.25};
static const double truth_weights[6] = {1, 0.5, 2, 0.25, 1, 3};
static const double variances[4] = {1, 2, 0.5, 4};
static const double inverse[16] = {2, 0.5,  0, 0,     0.5, 3, 0.25,  0,
                                   0, 0.25, 1, 0.125, 0,   0, 0.125, 4};

static const struct known {
    const char *metric;
    enum { PLAIN, POSITIVE, TRUTH } points;
    bool weighted;
    double d[6];
} known[] = {
    {"euclidean",
     PLAIN,
     false,
     {0.79056941504209488, 2.4109126902482387, 3.8242646351945888, 3.0103986446980739,
      2.0766559657295187, 0}},
    {"euclidean",
     PLAIN,
     true,
     {0.8926785535678563, 3.0052038200428268, 4.5740436158829967, 3.0567548151593709,
      2.4526771087935728, 0}},
    {"sqeuclidean", PLAIN, false, {0.625, 5.8125, 14.625, 9.0625, 4.3125, 0}},
    {"sqeuclidean", PLAIN, true, {0.796875, 9.03125, 20.921875, 9.34375, 6.015625, 0}},
    {"cityblock", PLAIN, false, {1.5, 3.75, 7, 5.75, 3.75, 0}},
    {"cityblock", PLAIN, true, {1.6875, 5.125, 8.1875, 5.75, 4.5625, 0}},
    {"chebyshev", PLAIN, false, {0.5, 2, 3, 2, 1.5, 0}},
    {"chebyshev", PLAIN, true, {0.5, 2, 3, 2, 1.5, 0}},
    {"cosine",
     PLAIN,
     false,
     {0.024307777007748221, 0.087656894476353386, 0.95105749338911172, 1.1881441736767195,
      0.13289003047588011, 0}},
    {"cosine",
     PLAIN,
     true,
     {0.012675687199297458, 0.027470921832270623, 1.0902735933175689, 1.3058876451607491,
      0.055615670700228659, 0}},
    {"correlation",
     PLAIN,
     false,
     {0.016203205382746111, 0.089073420059249009, 1.4616206977668003, 1.8813619150252494,
      0.17412093087379776, 0}},
    {"correlation",
     PLAIN,
     true,
     {0.015430569316434162, 0.053443616284470363, 1.6610717097276764, 1.9405439756964693,
      0.12339038249727685, 0}},
    {"canberra",
     PLAIN,
     false,
     {1.5353535353535355, 2.5, 3.0476190476190474, 4, 3.4285714285714284, 0}},
    {"canberra",
     PLAIN,
     true,
     {0.82070707070707072, 2.5, 3.0119047619047614, 3.75, 2.6071428571428572, 0}},
    {"braycurtis",
     PLAIN,
     false,
     {0.15789473684210525, 0.65217391304347827, 1, 1.2105263157894737, 0.65217391304347827, 0}},
    {"braycurtis",
     PLAIN,
     true,
     {0.12328767123287671, 0.56164383561643838, 1.0826446280991735, 1.5333333333333334,
      0.53284671532846717, 0}},
    {"minkowski",
     PLAIN,
     false,
     {0.70414098951804616, 2.2484358129442823, 3.4673363313487284, 2.6706074743892327,
      1.8707798526095405, 0}},
    {"minkowski",
     PLAIN,
     true,
     {0.78946160372871865, 2.7344052894201618, 4.1288360915292781, 2.7109663259278562,
      2.1802895150614003, 0}},
    {"jensenshannon",
     POSITIVE,
     false,
     {0.12803538542090001, 0.19761232692063033, 0.34570293519847856, 0.47640790056862331,
      0.20647872076284604, 0}},
    {"seuclidean",
     PLAIN,
     false,
     {0.8926785535678563, 3.0052038200428268, 4.5740436158829967, 3.0567548151593709,
      2.4526771087935728, 0}},
    {"mahalanobis",
     PLAIN,
     false,
     {1.103970108290981, 2.7041634565979922, 4.9623583103198019, 4.6165463281548469,
      2.4173849507267144, 0}},
    {"hamming",
     TRUTH,
     false,
     {0.33333333333333331, 0.66666666666666663, 0.5, 0.5, 0.83333333333333337,
      0.16666666666666666}},
    {"hamming",
     TRUTH,
     true,
     {0.38709677419354838, 0.61290322580645162, 0.41935483870967744, 0.58064516129032262,
      0.87096774193548387, 0.12903225806451613}},
    {"jaccard",
     TRUTH,
     false,
     {0.40000000000000002, 0.80000000000000004, 0.59999999999999998, 0.75, 0.83333333333333337,
      0.33333333333333331}},
    {"jaccard",
     TRUTH,
     true,
     {0.41379310344827586, 0.70370370370370372, 0.44827586206896552, 0.69230769230769229,
      0.87096774193548387, 0.2857142857142857}},
    {"dice",
     TRUTH,
     false,
     {0.25, 0.66666666666666663, 0.42857142857142855, 0.59999999999999998, 0.7142857142857143,
      0.20000000000000001}},
    {"dice",
     TRUTH,
     true,
     {0.2608695652173913, 0.54285714285714282, 0.28888888888888886, 0.52941176470588236,
      0.77142857142857146, 0.16666666666666666}},
    {"kulczynski1",
     TRUTH,
     false,
     {1.5, 0.25, 0.66666666666666663, 0.33333333333333331, 0.20000000000000001, 2}},
    {"kulczynski1",
     TRUTH,
     true,
     {1.4166666666666667, 0.42105263157894735, 1.2307692307692308, 0.44444444444444442,
      0.14814814814814814, 2.5}},
    {"rogerstanimoto",
     TRUTH,
     false,
     {0.5, 0.80000000000000004, 0.66666666666666663, 0.66666666666666663, 0.90909090909090906,
      0.2857142857142857}},
    {"rogerstanimoto",
     TRUTH,
     true,
     {0.55813953488372092, 0.76000000000000001, 0.59090909090909094, 0.73469387755102045,
      0.93103448275862066, 0.22857142857142856}},
    {"russellrao",
     TRUTH,
     false,
     {0.5, 0.83333333333333326, 0.66666666666666663, 0.83333333333333326, 0.83333333333333326,
      0.66666666666666663}},
    {"russellrao",
     TRUTH,
     true,
     {0.45161290322580644, 0.74193548387096775, 0.4838709677419355, 0.74193548387096775,
      0.87096774193548387, 0.67741935483870963}},
    {"sokalmichener",
     TRUTH,
     false,
     {0.5, 0.80000000000000004, 0.66666666666666663, 0.66666666666666663, 0.90909090909090906,
      0.2857142857142857}},
    {"sokalmichener",
     TRUTH,
     true,
     {0.55813953488372092, 0.76000000000000001, 0.59090909090909094, 0.73469387755102045,
      0.93103448275862066, 0.22857142857142856}},
    {"sokalsneath",
     TRUTH,
     false,
     {0.5714285714285714, 0.88888888888888884, 0.75, 0.8571428571428571, 0.90909090909090906, 0.5}},
    {"sokalsneath",
     TRUTH,
     true,
     {0.58536585365853655, 0.82608695652173914, 0.61904761904761907, 0.81818181818181823,
      0.93103448275862066, 0.44444444444444442}},
    {"yule", TRUTH, false, {0.5, 1.5, 1, 1, 2, 0}},
    {"yule",
     TRUTH,
     true,
     {0.96969696969696972, 1.0303030303030303, 1.1111111111111112, 0.88888888888888884, 2, 0}},
    {"hamming", PLAIN, true, {1, 0.93333333333333335, 1, 1, 1, 0}},
    {"jaccard_legacy", PLAIN, true, {1, 1, 1, 1, 1, 0}},
    {"jaccard", PLAIN, false, {0.25, 2.0 / 3, 0, 0.75, 0.75, 0}},
    {"jaccard",
     PLAIN,
     true,
     {0.06666666666666667, 0.42857142857142855, 0, 0.4666666666666667, 0.4666666666666667, 0}},
    {"dice",
     PLAIN,
     false,
     {-2.7, -0.8461538461538461, 0.8846153846153846, 1.2105263157894737, -0.3333333333333333, 0}},
    {"dice",
     PLAIN,
     true,
     {0.3488372093023256, 0.4666666666666667, 0.3333333333333333, 0.4838709677419355,
      0.4838709677419355, 0}},
    {"jensenshannon", PLAIN, false, {INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, 0}},
};

static void give(struct trial *t, const char *name, int rank, int64_t rows, int64_t k,
                 const double *from) {
    int64_t shape[2] = {rank == 2 ? rows : k, k};
    memcpy(trial_input(t, name, BLASD_float64, BLASD_ROW_MAJOR, rank, shape), from,
           (size_t)(rank == 2 ? rows * k : k) * sizeof *from);
}

static void distances_are_those_of_scipy(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof known / sizeof *known; c++) {
        const struct known *k = &known[c];
        struct trial *t = trial_new("distance");
        int64_t width = k->points == TRUTH ? 6 : 4;
        give(t, "x", 2, 3, width,
             k->points == TRUTH      ? truth_x
             : k->points == POSITIVE ? positive_x
                                     : plain_x);
        give(t, "y", 2, 2, width,
             k->points == TRUTH      ? truth_y
             : k->points == POSITIVE ? positive_y
                                     : plain_y);
        if (k->weighted) give(t, "w", 1, 1, width, k->points == TRUTH ? truth_weights : weights);
        if (strcmp(k->metric, "seuclidean") == 0) give(t, "V", 1, 1, 4, variances);
        if (strcmp(k->metric, "mahalanobis") == 0) give(t, "VI", 2, 4, 4, inverse);
        trial_set_choice(t, "metric", k->metric);
        if (strcmp(k->metric, "minkowski") == 0) trial_set_float(t, "p", 2.5);
        assert_int_equal(trial_run(t), 0);
        for (int64_t i = 0; i < 6; i++) {
            double got = trial_value(trial_output(t, "d"), i);
            if (got != k->d[i] && !(fabs(got - k->d[i]) <= 4e-15 * (1 + fabs(k->d[i]))))
                fail_msg("%s%s %ld: %.17g, expected %.17g", k->metric,
                         k->weighted ? " weighted" : "", (long)i, got, k->d[i]);
        }
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(distances_are_those_of_scipy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
