/* Which set of OpenBLAS' kernels is tried and taken, and whether a BLAS that computes wrongly is
 * seen: some of its functions are this file's own, which pass on to it and may spoil the result. */
#include "kernel_support.h"
#include "kernels/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <lapacke.h>

#define AVX BLASD_X86_AVX
#define AVX2 (AVX | BLASD_X86_AVX2)
#define AVX512 (AVX2 | BLASD_X86_AVX512)

static void what_the_library_leaves_unused_is_tried(void **state) {
    static const struct {
        const char *what;
        unsigned features;
        const char *core, *tried; /* in order, one space between */
    } rows[] = {
        {"a Xeon of 2023 (6/207) that 0.3.21 does not know", AVX512, "Prescott",
         "SkylakeX Haswell Zen Sandybridge"},
        {"the same, known", AVX512, "SkylakeX", ""},
        {"the same, newer library", AVX512, "SapphireRapids", ""},
        {"EPYC of 2022 under 0.3.21", AVX512, "Cooperlake", ""},
        {"taken for its forebear", AVX512, "Zen", "SkylakeX"},
        {"taken for its forebear", AVX512, "Haswell", "SkylakeX"},
        {"no AVX-512, not known", AVX2, "Prescott", "Haswell Zen Sandybridge"},
        {"no AVX-512, known", AVX2, "Zen", ""},
        {"no AVX-512, known", AVX2, "Haswell", ""},
        {"as early ones", AVX2, "Sandybridge", "Haswell Zen"},
        {"AVX alone", AVX, "Nehalem", "Sandybridge"},
        {"AVX alone, AMD", AVX, "Piledriver", ""},
        {"a guest whose AVX the hypervisor hides", 0, "Prescott", ""},
        {"an old one that is what it seems", 0, "Nehalem", ""},
        {"not spelt as here", AVX2, "PRESCOTT", "Haswell Zen Sandybridge"},
        {"a name of later versions", AVX512, "DiamondRapids", ""},
        {"another architecture", 0, "NEOVERSEN1", ""},
        {"no name", AVX512, "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *names[BLASD_BLAS_CANDIDATES];
        char text[128] = "";
        int count = blasd_blas_candidates(rows[i].features, rows[i].core, names);
        for (int n = 0; n < count; n++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", n == 0 ? "" : " ",
                     names[n]);
        if (strcmp(text, rows[i].tried) != 0)
            fail_msg("%s: %s with features %u tries '%s', not '%s'", rows[i].what, rows[i].core,
                     rows[i].features, text, rows[i].tried);
    }
}

static void the_fastest_right_one_is_taken(void **state) {
    static const struct {
        const char *what;
        double gflops[4]; /* of the library's own choice first */
        int count, best;
    } rows[] = {
        {"as on the Xeon", {19, 108, 46, 44}, 4, 1},
        {"the widest is not always the fastest", {19, 40, 46, 44}, 4, 2},
        {"less than the margin is noise", {40, 45, 42, 41}, 4, 0},
        {"just above it", {40, 46.1, 42, 41}, 4, 1},
        {"wrong ones are not taken", {19, 0, 0, 44}, 4, 3},
        {"none is right but the library's own", {19, 0, 0, 0}, 4, 0},
        {"the library's own is wrong", {0, 0, 3, 2}, 4, 2},
        {"none is right", {0, 0, 0, 0}, 4, 0},
        {"there is but one", {19}, 1, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct blasd_blas_trial trials[4];
        int best;
        for (int n = 0; n < 4; n++)
            trials[n] = (struct blasd_blas_trial){.core = "", .gflops = rows[i].gflops[n]};
        best = blasd_blas_choose(trials, rows[i].count);
        if (best != rows[i].best)
            fail_msg("%s: takes %d, not %d", rows[i].what, best, rows[i].best);
    }
}

/* --- a BLAS with faults ------------------------------------------------------------------------
 */

static enum { NONE, ONE_OFF, NOT_A_NUMBER, TRANSPOSED, EDGE, UNSOLVED, ROUGH } fault;

void cblas_sgemm(CBLAS_LAYOUT layout, CBLAS_TRANSPOSE how_a, CBLAS_TRANSPOSE how_b, blasint m,
                 blasint n, blasint k, float alpha, const float *a, blasint lda, const float *b,
                 blasint ldb, float beta, float *c, blasint ldc) {
    void (*real)(CBLAS_LAYOUT, CBLAS_TRANSPOSE, CBLAS_TRANSPOSE, blasint, blasint, blasint, float,
                 const float *, blasint, const float *, blasint, float, float *, blasint);
    *(void **)&real = dlsym(RTLD_NEXT, "cblas_sgemm");
    real(layout, how_a, how_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (fault == ONE_OFF) c[7 * ldc + 5] += 1;
    if (fault == NOT_A_NUMBER) c[100] = NAN;
    if (fault == TRANSPOSED && how_a == CblasTrans) c[0] += 2;
    if (fault == EDGE) c[(n - 1) * ldc + m - 1] -= 1;
}

lapack_int LAPACKE_dgetrs_work(int layout, char how, lapack_int n, lapack_int columns,
                               const double *a, lapack_int lda, const lapack_int *pivots, double *b,
                               lapack_int ldb) {
    lapack_int (*real)(int, char, lapack_int, lapack_int, const double *, lapack_int,
                       const lapack_int *, double *, lapack_int);
    *(void **)&real = dlsym(RTLD_NEXT, "LAPACKE_dgetrs_work");
    if (fault == UNSOLVED) return 0;
    if (fault == ROUGH) { /* as with operands rounded to float */
        lapack_int code = real(layout, how, n, columns, a, lda, pivots, b, ldb);
        for (lapack_int i = 0; i < n; i++) b[i] = (double)(float)b[i];
        return code;
    }
    return real(layout, how, n, columns, a, lda, pivots, b, ldb);
}

static void faults_are_seen(void **state) {
    (void)state;
    for (fault = NONE; fault <= ROUGH; fault++) {
        struct blasd_err err = {0};
        double gflops = 0;
        int code = blasd_blas_try(&gflops, &err);
        if (fault == NONE ? code != 0 || !(gflops > 0) : code == 0 || gflops != 0)
            fail_msg("fault %d: %d, %g GFLOP/s, %s", (int)fault, code, gflops, err.detail);
    }
    fault = NONE;
}

static void the_library_is_named(void **state) {
    struct blasd_device_info info;
    struct blasd_blas blas;
    struct blasd_err err = {0};
    const char *names[BLASD_BLAS_CANDIDATES];
    (void)state;
    unsetenv(BLASD_BLAS_CHOSEN);
    unsetenv(BLASD_BLAS_CORETYPE);
    blasd_blas_describe(&blas);
    assert_int_equal(strncmp(blas.library, "OpenBLAS ", 9), 0);
    assert_null(strchr(blas.library + 9, ' '));
    assert_string_equal(blas.core, openblas_get_corename());
    assert_string_equal(blas.chosen_by, "library");
    assert_int_equal(blas.path[0], '/');
    /* what the operator asks for is his choice only where it was taken */
    setenv(BLASD_BLAS_CORETYPE, "NoSuchCore", 1);
    blasd_blas_describe(&blas);
    assert_string_equal(blas.chosen_by, "library");
    setenv(BLASD_BLAS_CORETYPE, blas.core, 1);
    blasd_blas_describe(&blas);
    assert_string_equal(blas.chosen_by, "operator");
    setenv(BLASD_BLAS_CHOSEN, "measured", 1);
    blasd_blas_describe(&blas);
    assert_string_equal(blas.chosen_by, "measured");
    assert_int_equal(blasd_backend_cpu.device_info(trial_device(), false, &info, &err), 0);
    assert_string_equal(info.blas_library, blas.library);
    assert_string_equal(info.blas_core, blas.core);
    assert_string_equal(info.blas_chosen_by, "measured");
    assert_true(blasd_blas_candidates(blasd_blas_features(), blas.core, names) >= 0);
    unsetenv(BLASD_BLAS_CHOSEN);
    unsetenv(BLASD_BLAS_CORETYPE);
}

static void a_file_without_the_functions_is_refused(void **state) {
    struct blasd_err err = {0};
    struct blasd_blas blas;
    Dl_info found;
    (void)state;
    blasd_blas_describe(&blas);
    assert_int_not_equal(blasd_blas_comes_from("/nonexistent.so", &err), 0);
    assert_non_null(strstr(err.detail, "nonexistent"));
    assert_int_not_equal(dladdr(dlsym(RTLD_DEFAULT, "printf"), &found), 0);
    assert_int_not_equal(blasd_blas_comes_from(found.dli_fname, &err), 0);
    assert_non_null(strstr(err.detail, "it has no cblas_"));
    /* cblas_sgemm is this program's own */
    assert_int_not_equal(blasd_blas_comes_from(blas.path, &err), 0);
    assert_non_null(strstr(err.detail, "it has no cblas_sgemm"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_library_leaves_unused_is_tried),
        cmocka_unit_test(the_fastest_right_one_is_taken),
        cmocka_unit_test(faults_are_seen),
        cmocka_unit_test(the_library_is_named),
        cmocka_unit_test(a_file_without_the_functions_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
