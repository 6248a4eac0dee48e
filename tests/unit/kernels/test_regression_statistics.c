/* regression's statistics against values computed with statsmodels 0.14, and robust errors against
 * their definition. */
#include "tests/unit/kernels/kernel_support.h"

#include "base/err.h"
#include "kernels/regression/ref_regression.h"

static const double data_x[8][2] = {{1, 9}, {2, 7}, {3, 8}, {4, 3}, {5, 6}, {6, 1}, {7, 4}, {8, 2}};
static const double data_y[8] = {2.1, 3.9, 6.2, 7.8, 10.1, 12.4, 13.7, 16.5};
static const double data_w[8] = {1, 2, 1, 0.5, 1, 3, 1, 2};

static const struct known {
    const char *name;
    bool intercept, weighted;
    const char *cov;
    double coef[3], error[3], t[3], p[3], interval[6];
    double rest[10]; /* of the outputs named below */
} known[] = {
    {"ols nonrobust",
     1,
     0,
     "nonrobust",
     {0.028501191895113465, 2.0232419547079856, -0.0091179976162094611},
     {0.71139494574509066, 0.08487778760038861, 0.071013852025894802},
     {0.040063809935087874, 23.837119367832372, -0.1283974514279923},
     {0.9695927802106511, 2.4203630797878463e-06, 0.90283908294831039},
     {-1.800197733600698, 1.8572001173909249, 1.8050566556534295, 2.2414272537625419,
      -0.19166491571253974, 0.17342892048012082},
     {0.99710434041796847, 0.99594607658515588, 860.86115457537926, 4.5119965674526955e-07,
      -0.29061552527872436, 6.5812310505574487, 6.8195556755969555, 0.50369636471990675,
      0.10073927294398136, 44.247472248038655}},
    {"ols HC0",
     1,
     0,
     "HC0",
     {0.028501191895113465, 2.0232419547079856, -0.0091179976162094611},
     {0.63538117710090536, 0.081587367867051133, 0.059965807379202027},
     {0.044856840149337898, 24.798470738814789, -0.15205327860509824},
     {0.96422141876314249, 9.3120034569806532e-136, 0.87914491389725202},
     {-1.2168230316773267, 1.2738254154675537, 1.8633336520951449, 2.1831502573208263,
      -0.12664882038331166, 0.10841282515089272},
     {0.99710434041796847, 0.99594607658515588, 1396.9832067927302, 1.3487479356434294e-07,
      -0.29061552527872436, 6.5812310505574487, 6.8195556755969555, 0.50369636471990675,
      0.10073927294398136, 44.247472248038655}},
    {"ols HC1",
     1,
     0,
     "HC1",
     {0.028501191895113465, 2.0232419547079856, -0.0091179976162094611},
     {0.80370068081507273, 0.10320076430316612, 0.075851413219684291},
     {0.035462445877498812, 19.604912505923313, -0.12020867152206517},
     {0.97171099137607619, 1.4039351690965886e-85, 0.90431784870832554},
     {-1.5467231968527506, 1.6037255806429775, 1.8209721734967732, 2.225511735919198,
      -0.15778403570325603, 0.1395480404708371},
     {0.99710434041796847, 0.99594607658515588, 873.11450424545694, 4.3557972306976305e-07,
      -0.29061552527872436, 6.5812310505574487, 6.8195556755969555, 0.50369636471990675,
      0.10073927294398136, 44.247472248038655}},
    {"ols HC2",
     1,
     0,
     "HC2",
     {0.028501191895113465, 2.0232419547079856, -0.0091179976162094611},
     {0.84175689520901953, 0.10615619872249467, 0.079779354694932567},
     {0.033859172472874413, 19.059103274760133, -0.11429019012595021},
     {0.97298945015273919, 5.5212996479412992e-81, 0.9090077586892964},
     {-1.6213120064528213, 1.6783143902430482, 1.8151796284762192, 2.2313042809397521,
      -0.16548265952812377, 0.14724666429570485},
     {0.99710434041796847, 0.99594607658515588, 812.05760310741005, 5.2184979511876051e-07,
      -0.29061552527872436, 6.5812310505574487, 6.8195556755969555, 0.50369636471990675,
      0.10073927294398136, 44.247472248038655}},
    {"ols HC3",
     1,
     0,
     "HC3",
     {0.028501191895113465, 2.0232419547079856, -0.0091179976162094611},
     {1.1192806062823619, 0.13847168929296824, 0.10662031136157826},
     {0.02546384859626831, 14.6112318340203, -0.085518392319150802},
     {0.97968498377190671, 2.3817231634783422e-48, 0.93184927407759455},
     {-2.165248485012472, 2.222250868802699, 1.7518424308153473, 2.294641478600624,
      -0.2180899679053496, 0.19985397267293067},
     {0.99710434041796847, 0.99594607658515588, 470.49847767752783, 2.0309566994123973e-06,
      -0.29061552527872436, 6.5812310505574487, 6.8195556755969555, 0.50369636471990675,
      0.10073927294398136, 44.247472248038655}},
    {"wls nonrobust",
     1,
     1,
     "nonrobust",
     {0.30727885425443091, 2.0124226742086893, -0.045037910699242678},
     {0.61952333722009523, 0.076387275143071656, 0.06157164795149616},
     {0.49599237961437015, 26.344998829182828, -0.73147158144478863},
     {0.64093022217630014, 1.4727598997036195e-06, 0.49731719050858081},
     {-1.285256583156337, 1.8998142916651988, 1.816062932252156, 2.2087824161652225,
      -0.2033128705135526, 0.11323704911506724},
     {0.997989969642606, 0.99718595749964845, 1241.262309759973, 1.8113673758735834e-07,
      0.32047927597148118, 5.3590414480570381, 5.5973660730965449, 0.54086508605126826,
      0.10817301721025366, 43.013464287616863}},
    {"wls HC3",
     1,
     1,
     "HC3",
     {0.30727885425443091, 2.0124226742086893, -0.045037910699242678},
     {0.95738384744806393, 0.12133199749200496, 0.092916161115561821},
     {0.32095679812594724, 16.586083768556563, -0.48471557755413575},
     {0.748243130294723, 8.7866225357912436e-62, 0.6278781149671615},
     {-1.5691590061241638, 2.1837167146330256, 1.7746163289520553, 2.2502290194653232,
      -0.22715024006746487, 0.13707441866897951},
     {0.997989969642606, 0.99718595749964845, 688.48558396274314, 7.873676272476221e-07,
      0.32047927597148118, 5.3590414480570381, 5.5973660730965449, 0.54086508605126826,
      0.10817301721025366, 43.013464287616863}},
    {"none nonrobust",
     0,
     0,
     "nonrobust",
     {2.0264539280524332, -0.0064503692280313274},
     {0.025446485660275367, 0.022540119873883886},
     {79.635905527651715, -0.28617280050515831},
     {2.6398069438426732e-10, 0.78436967437298244},
     {1.9641886207203147, 2.0887192353845516, -0.061604055673666266, 0.048703317217603612},
     {0.99939629520108775, 0.999195060268117, 4966.3161382941062, 2.2002593963848821e-10,
      -0.29189940630605271, 4.5837988126121054, 4.7426818959717769, 0.50385806222011231,
      0.083976343703352052, 2.0356015684070465}},
    {"none HC3",
     0,
     0,
     "HC3",
     {2.0264539280524332, -0.0064503692280313274},
     {0.038446407333276096, 0.01932703455598191},
     {52.708538160300321, -0.33374852253445542},
     {0, 0.73856933117458479},
     {1.9511003543442553, 2.1018075017606108, -0.044330660885716945, 0.03142992242965429},
     {0.99939629520108775, 0.999195060268117, 2669.5439463427056, 1.4144552051589615e-09,
      -0.29189940630605271, 4.5837988126121054, 4.7426818959717769, 0.50385806222011231,
      0.083976343703352052, 2.0356015684070465}},
};
static const char *const rest_names[10] = {"r2",  "r2_adj", "fvalue", "f_pvalue", "loglik",
                                           "aic", "bic",    "ssr",    "scale",    "cond"};

static double value(const struct trial *t, const char *output, int64_t i) {
    return trial_value(trial_output(t, output), i);
}

#define ASSERT_NEAR(got, expected, relative)                                                       \
    ASSERT_CLOSE(got, expected, fabs(expected) * (relative))

static void statistics_are_those_of_statsmodels(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof known / sizeof *known; c++) {
        const struct known *k = &known[c];
        struct trial *t = trial_new("regression");
        int q = k->intercept ? 3 : 2;
        memcpy(trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){8, 2}), data_x,
               sizeof data_x);
        memcpy(trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){8}), data_y,
               sizeof data_y);
        if (k->weighted)
            memcpy(
                trial_input(t, "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){8}),
                data_w, sizeof data_w);
        trial_set_bool(t, "fit_intercept", k->intercept);
        trial_set_choice(t, "cov_type", k->cov);
        assert_int_equal(trial_run(t), 0);
        for (int j = 0; j < q; j++) {
            double got = k->intercept && j == 0 ? value(t, "intercept", 0)
                                                : value(t, "coef", j - k->intercept);
            ASSERT_NEAR(got, k->coef[j], 1e-10);
            ASSERT_NEAR(value(t, "stderr", j), k->error[j], 1e-10);
            ASSERT_NEAR(value(t, "tvalues", j), k->t[j], 1e-10);
            ASSERT_NEAR(value(t, "pvalues", j), k->p[j], 1e-9);
            ASSERT_NEAR(value(t, "conf_int", 2 * j), k->interval[2 * j], 1e-9);
            ASSERT_NEAR(value(t, "conf_int", 2 * j + 1), k->interval[2 * j + 1], 1e-9);
        }
        for (int i = 0; i < 10; i++) ASSERT_NEAR(value(t, rest_names[i], 0), k->rest[i], 1e-9);
        trial_free(t);
    }
}

/* Problems of every way to the factor, weighted and not, robust and not. */
static void errors_follow_their_definition(void **state) {
    static const int64_t shapes[][2] = {{9, 2}, {60, 7}, {3000, 20}};
    static const char *const covs[] = {"nonrobust", "HC0", "HC1", "HC2", "HC3"};
    (void)state;
    for (int c = 0; c < 3 * 5 * 2; c++) {
        int64_t n = shapes[c / 10][0], p = shapes[c / 10][1], q = p + 1;
        int cov = c % 5;
        bool weighted = c % 10 >= 5;
        struct trial *t = trial_new("regression");
        double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
        double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
        double *w = weighted
                        ? trial_input(t, "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 1, &n)
                        : NULL;
        double *a = calloc((size_t)(n * q), sizeof *a), scale;
        long double *b = calloc((size_t)q, sizeof *b), *m = calloc((size_t)(q * q), sizeof *m);
        long double *basis = calloc((size_t)(q * q), sizeof *basis);
        struct blasd_ref_problem ref = {.n = n, .q = q, .a = a, .y = y, .w = w};
        assert_true(a != NULL && b != NULL && m != NULL && basis != NULL);
        for (int64_t i = 0; i < n; i++) {
            a[i * q] = 1;
            y[i] = trial_normal();
            for (int64_t j = 0; j < p; j++) {
                a[i * q + 1 + j] = x[i * p + j] = (trial_normal() + 3) * (double)(j + 1);
                y[i] += x[i * p + j] * (double)(j % 3);
            }
            if (weighted) w[i] = 0.25 + (double)(trial_random() % 8);
        }
        trial_set_choice(t, "cov_type", covs[cov]);
        trial_set_bool(t, "cov_params", true);
        trial_set_bool(t, "residuals", true);
        assert_int_equal(trial_run(t), 0);
        blasd_ref_least_squares(&ref, b, basis);
        if (cov > 0) blasd_ref_robust(&ref, cov - 1, m);
        scale = value(t, "scale", 0);
        for (int64_t j = 0; j < q; j++) {
            double got = j == 0 ? value(t, "intercept", 0) : value(t, "coef", j - 1);
            ASSERT_CLOSE(got, b[j], 1e-13 * (1 + fabsl(b[j])));
            for (int64_t l = 0; l < q; l++) {
                long double expected = m[j * q + l], size;
                for (int64_t s = 0; cov == 0 && s < q; s++)
                    expected += basis[j * q + s] * basis[l * q + s] * (long double)scale;
                size = sqrtl(fabsl(value(t, "cov_params", j * q + j)) *
                             fabsl(value(t, "cov_params", l * q + l)));
                ASSERT_CLOSE(value(t, "cov_params", j * q + l), expected, 1e-11 * (double)size);
            }
            ASSERT_NEAR(value(t, "stderr", j), sqrt(value(t, "cov_params", j * q + j)), 1e-14);
        }
        for (int64_t i = 0; i < n; i++) {
            long double fitted = 0;
            for (int64_t j = 0; j < q; j++) fitted += (long double)a[i * q + j] * b[j];
            ASSERT_CLOSE(value(t, "residuals", i), (long double)y[i] - fitted, 1e-11);
            ASSERT_CLOSE(value(t, "fitted", i), fitted, 1e-11);
        }
        free(a);
        free(b);
        free(m);
        free(basis);
        trial_free(t);
    }
}

/* Parameters that change statistics and nothing else. */
static void level_and_distribution_are_chosen(void **state) {
    double width[4];
    (void)state;
    for (int c = 0; c < 4; c++) {
        struct trial *t = trial_new("regression");
        memcpy(trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){8, 2}), data_x,
               sizeof data_x);
        memcpy(trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){8}), data_y,
               sizeof data_y);
        trial_set_float(t, "level", c % 2 == 0 ? 0.95 : 0.5);
        trial_set_bool(t, "use_t", c < 2);
        assert_int_equal(trial_run(t), 0);
        width[c] = (value(t, "conf_int", 3) - value(t, "conf_int", 2)) / 2 / value(t, "stderr", 1);
        trial_free(t);
    }
    ASSERT_NEAR(width[0], 2.5705818356363146, 1e-12); /* t with 5 degrees of freedom */
    ASSERT_NEAR(width[1], 0.72668684380042148, 1e-12);
    ASSERT_NEAR(width[2], 1.9599639845400542, 1e-12);
    ASSERT_NEAR(width[3], 0.67448975019608171, 1e-12);
}

/* No degrees of freedom are left: coefficients are right, errors are not numbers. */
static void saturated_models_have_no_errors(void **state) {
    struct trial *t = trial_new("regression");
    double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){2, 1});
    double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){2});
    (void)state;
    x[0] = 1;
    x[1] = 3;
    y[0] = 5;
    y[1] = 9;
    assert_int_equal(trial_run(t), 0);
    ASSERT_CLOSE(value(t, "coef", 0), 2, 0);
    ASSERT_CLOSE(value(t, "intercept", 0), 3, 0);
    assert_true(isnan(value(t, "stderr", 0)));
    assert_true(isnan(value(t, "pvalues", 0)));
    assert_int_equal(value(t, "df_resid", 0), 0);
    trial_free(t);
}

/* Standard errors of features of 1e300 and 1e-300: their squares are beyond the range of numbers.
 */
static void units_of_the_features_change_no_test(void **state) {
    static const double units[] = {1, 1e300, 1e-300};
    double known_t[3], known_error[3];
    (void)state;
    for (int u = 0; u < 3; u++) {
        struct trial *t = trial_new("regression");
        double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){8, 2});
        double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){8});
        for (int i = 0; i < 8; i++) {
            x[2 * i] = data_x[i][0] * units[u];
            x[2 * i + 1] = data_x[i][1] * units[u];
            y[i] = data_y[i];
        }
        assert_int_equal(trial_run(t), 0);
        for (int j = 0; j < 3; j++) {
            double error = value(t, "stderr", j) * (j == 0 ? 1 : units[u]);
            if (u == 0) known_t[j] = value(t, "tvalues", j);
            if (u == 0) known_error[j] = error;
            ASSERT_CLOSE(value(t, "tvalues", j), known_t[j], 1e-12);
            ASSERT_CLOSE(error, known_error[j], 1e-12);
        }
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_those_of_statsmodels),
        cmocka_unit_test(errors_follow_their_definition),
        cmocka_unit_test(level_and_distribution_are_chosen),
        cmocka_unit_test(saturated_models_have_no_errors),
        cmocka_unit_test(units_of_the_features_change_no_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
