/* The same job gives the same bits on any number of threads: every operation, in shapes that are
 * cut unevenly, on 1, 2, 3, 4 and 16 threads. */
#include "sample_support.h"

/* Shapes of the inputs, in order; a rank of 0: not given. `param`: a boolean, or a choice. */
static const struct {
    const char *op;
    enum blasd_dtype dtype;
    int64_t shape[3][3]; /* filled from the left, 0 ends it */
    const char *param, *choice;
} cases[] = {
    {"matmul", BLASD_float32, {{300, 300}, {300, 300}}, NULL, NULL},
    {"matmul", BLASD_float32, {{517, 300}, {300, 1001}}, NULL, NULL},
    {"matmul", BLASD_float32, {{1201, 60}, {60, 1100}}, NULL, NULL},
    {"matmul", BLASD_float64, {{300, 300}, {300, 300}}, NULL, NULL},
    {"matmul", BLASD_float64, {{300, 517}, {300, 700}}, "transpose_a", NULL},
    {"matmul", BLASD_float64, {{700, 300}, {401, 300}, {700, 401}}, "transpose_b", NULL},
    {"matmul", BLASD_float64, {{3, 333, 333}, {3, 333, 333}}, NULL, NULL},
    {"matmul", BLASD_float64, {{40, 61, 333}, {333, 45}}, NULL, NULL},
    {"matmul", BLASD_float64, {{2, 2000}, {2000, 5003}}, NULL, NULL},
    {"matmul", BLASD_float64, {{5003, 2000}, {2000, 2}}, NULL, NULL},
    {"matmul", BLASD_float64, {{1500, 900}, {900}}, NULL, NULL},
    {"matmul", BLASD_float64, {{900}, {900, 1500}}, NULL, NULL},
    {"matmul", BLASD_float32, {{1700, 1300}, {1300, 1}}, NULL, NULL},
    {"matmul", BLASD_float32, {{2, 1301, 1700}, {1301, 1}}, "transpose_a", NULL},
    {"matmul", BLASD_complex64, {{301, 150}, {150, 403}}, NULL, NULL},
    {"matmul", BLASD_complex128, {{230, 200}, {200, 301}}, NULL, NULL},
    {"matmul", BLASD_complex128, {{700, 900}, {900, 1}}, NULL, NULL},
    {"matmul", BLASD_float16, {{300, 301}, {301, 300}}, NULL, NULL},
    {"matmul", BLASD_int64, {{300, 301}, {301, 300}}, "exact", NULL},
    {"distance", BLASD_float64, {{701, 13}, {333, 13}}, NULL, NULL},
    {"distance", BLASD_float32, {{701, 13}, {333, 13}}, "metric", "cosine"},
    {"distance", BLASD_float64, {{301, 23}}, "metric", "mahalanobis"},
    {"distance", BLASD_float64, {{301, 23}}, "metric", "seuclidean"},
    {"distance", BLASD_float32, {{900, 5}}, "output", "argmin"},
    {"distance", BLASD_float32, {{900, 5}, {901, 5}}, "output", "topk"},
    {"distance", BLASD_float64, {{30, 90, 5}}, "output", "condensed"},
    {"cholesky", BLASD_float64, {{401, 401}}, NULL, NULL},
    {"cholesky", BLASD_float32, {{40, 61, 61}}, NULL, NULL},
    {"cholesky", BLASD_float64, {{777, 777}}, NULL, NULL},
    {"eigh", BLASD_float64, {{301, 301}}, NULL, NULL},
    {"eigh", BLASD_float32, {{40, 33, 33}}, NULL, NULL},
    {"eigh", BLASD_float64, {{520, 520}}, NULL, NULL},
    {"svd", BLASD_float64, {{301, 211}}, NULL, NULL},
    {"svd", BLASD_float32, {{40, 33, 45}}, NULL, NULL},
    {"svd", BLASD_float64, {{403, 520}}, NULL, NULL},
    {"lstsq", BLASD_float64, {{901, 301}, {901, 3}}, NULL, NULL},
    {"lstsq", BLASD_float64, {{300, 300}, {300}}, NULL, NULL}, /* with more digits */
    {"lstsq", BLASD_float32, {{40, 61, 33}, {61, 2}}, NULL, NULL},
    {"lstsq", BLASD_float64, {{301, 520}, {301}}, NULL, NULL},
    {"regression", BLASD_float64, {{30001, 21}, {30001}}, NULL, NULL},
    {"regression", BLASD_float64, {{40, 90, 11}, {40, 90}}, "cov_type", "HC3"},
    {"regression", BLASD_float32, {{700, 33, 5}, {700, 33}}, NULL, NULL},
    {"regression", BLASD_float64, {{60, 301}, {60}}, NULL, NULL},
    {"regression", BLASD_float64, {{90, 301, 17}, {90, 301}}, "method", "ridge"},
    {"regression", BLASD_float64, {{90, 301, 17}, {90, 301}}, "method", "lasso"},
    {"regression", BLASD_float32, {{90, 301, 17}, {90, 301}}, "method", "elastic_net"},
    {"regression", BLASD_float64, {{90, 301, 17}, {90, 301}}, "method", "gd"},
    {"qr", BLASD_float64, {{403, 301}}, NULL, NULL},
    {"qr", BLASD_float64, {{301, 520}}, NULL, NULL},
    {"qr", BLASD_float32, {{5003, 61}}, "mode", "complete"},
    {"lstsq", BLASD_float64, {{403, 301}, {403}}, NULL, NULL},
    {"lstsq", BLASD_float32, {{40, 33, 21}, {40, 33, 1}}, NULL, NULL},
    {"solve", BLASD_float64, {{301, 301}, {301}}, NULL, NULL},
    {"solve", BLASD_float64, {{560, 560}, {560}}, NULL, NULL},
    {"solve", BLASD_float32, {{700, 700}, {700, 3}}, NULL, NULL},
    {"solve", BLASD_complex128, {{333, 333}, {333}}, NULL, NULL},
    {"solve", BLASD_float64, {{50, 41, 41}, {50, 41, 1}}, NULL, NULL},
    {"regression", BLASD_float64, {{20011, 13}, {20011}}, NULL, NULL},
    {"regression", BLASD_float32, {{40, 333, 17}, {40, 333}}, NULL, NULL},
    {"regression", BLASD_float64, {{300, 700}, {300}}, NULL, NULL},
    {"regression", BLASD_float64, {{5003, 61}, {5003}}, "method", "lasso"},
};

/* Numbers between -1 and 1, a definite matrix for cholesky, which has a sample to show how. */
static void fill(struct trial *t, int i, const struct blasd_tensor *tensor) {
    int64_t count = blasd_tensor_elements(tensor), n = tensor->shape[tensor->rank - 1];
    bool definite = strcmp(t->job.op->name, "cholesky") == 0;
    struct blasd_tensor wide = *tensor, own = *tensor;
    if (tensor->dtype == BLASD_int64) {
        for (int64_t at = 0; at < count; at++)
            ((int64_t *)t->given[i])[at] = (int64_t)trial_random();
        return;
    }
    count *= blasd_dtype_parts(tensor->dtype);
    own.dtype = blasd_dtype_part(tensor->dtype);
    own = blasd_tensor_make(own.dtype, 1, &count);
    wide = blasd_tensor_make(BLASD_float64, 1, &count);
    wide.data = trial_alloc((size_t)count * sizeof(double));
    own.data = t->given[i];
    for (int64_t at = 0; at < count; at++) ((double *)wide.data)[at] = trial_uniform();
    for (int64_t at = 0; definite && at < count; at++)
        if (at / n % n == at % n) ((double *)wide.data)[at] += 2 * (double)n;
    blasd_tensor_convert(&wide, &own);
    free(wide.data);
}

static struct trial *make(size_t at) {
    struct trial *t = trial_new(cases[at].op);
    for (int i = 0; i < 3 && cases[at].shape[i][0] != 0; i++) {
        int rank = 1;
        struct blasd_tensor tensor;
        while (rank < 3 && cases[at].shape[i][rank] != 0) rank++;
        tensor = blasd_tensor_make(cases[at].dtype, rank, cases[at].shape[i]);
        trial_input(t, t->job.op->inputs[i].name, cases[at].dtype, BLASD_ROW_MAJOR, rank,
                    tensor.shape);
        fill(t, i, &tensor);
    }
    if (cases[at].choice != NULL)
        trial_set_choice(t, cases[at].param, cases[at].choice);
    else if (cases[at].param != NULL)
        trial_set_bool(t, cases[at].param, true);
    if (cases[at].choice != NULL && strcmp(cases[at].choice, "topk") == 0) trial_set_int(t, "k", 5);
    return t;
}

static void run(struct trial *t, int threads) {
    struct blasd_device *device = trial_device();
    int all = device->threads;
    device->threads = threads;
    assert_int_equal(trial_run(t), BLASD_OK);
    device->threads = all;
}

static void the_same_bits_on_any_number_of_threads(void **state) {
    static const int threads[] = {2, 3, 4, 16};
    int differ = 0;
    (void)state;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        struct trial *t = make(at);
        void *was[BLASD_MAX_OUTPUTS] = {NULL};
        run(t, 1);
        for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) {
            was[o] = t->results[o];
            t->results[o] = NULL;
        }
        for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
            run(t, threads[i]);
            for (int o = 0; t->job.op->outputs[o].name != NULL; o++) {
                const struct blasd_tensor *out = &t->task.outputs[o];
                if (out->rank < 0 || memcmp(out->data, was[o], blasd_tensor_bytes(out)) == 0)
                    continue;
                fprintf(stderr, "case %zu, %s of %s: %s differs on %d threads\n", at, cases[at].op,
                        blasd_dtype_name(cases[at].dtype), t->job.op->outputs[o].name, threads[i]);
                differ++;
            }
        }
        for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) free(was[o]);
        trial_free(t);
    }
    assert_int_equal(differ, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
