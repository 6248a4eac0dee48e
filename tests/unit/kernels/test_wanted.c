/* Jobs that nobody wants any more end, whatever they are: shapes with lengths of 0 and 1 in every
 * place, iterations without end, many problems, one large one. And plans say that such work is
 * work.
 *
 * Each job that would run for minutes or for ever runs in a process of its own, whose watch says
 * stop the first time it is asked; one that does not hear it runs out of processor time. */
#include "../child_fork.h"
#include "kernel_support.h"

#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/lapack/stack.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of processor time, so that it is the same where the machine is busy; not what is measured: what
 * is not heard takes longer, or for ever. */
#define TIMEOUT_S 300

/* ---- jobs in words ---- */

/* An input of that shape, zeros or small numbers; `text` is "1e6,1,0". */
static void give(struct trial *t, const char *name, const char *text) {
    int64_t shape[BLASD_MAX_RANK], elements = 1;
    int rank = 0;
    double *data;
    while (*text != '\0') {
        char *end;
        shape[rank] = (int64_t)strtod(text, &end);
        elements *= shape[rank++];
        text = *end == ',' ? end + 1 : end;
    }
    data = trial_input(t, name, BLASD_float64, BLASD_ROW_MAJOR, rank, shape);
    for (int64_t i = 0; i < elements; i++) data[i] = trial_uniform();
}

struct words {
    const char *op;
    const char *inputs; /* "x=3,4 y=3" */
    const char *params; /* "method=lasso max_iter=1e9" */
    bool heard;         /* it takes so long that it must hear the stop */
};

static void set_param(struct trial *t, const char *name, const char *value) {
    const struct blasd_param *param = &t->job.op->params[blasd_op_param(t->job.op, name)];
    switch (param->kind) {
    case BLASD_PARAM_BOOL: trial_set_bool(t, name, *value == 't'); break;
    case BLASD_PARAM_INT: trial_set_int(t, name, (int64_t)strtod(value, NULL)); break;
    case BLASD_PARAM_FLOAT: trial_set_float(t, name, strtod(value, NULL)); break;
    case BLASD_PARAM_CHOICE: trial_set_choice(t, name, value); break;
    }
}

static struct trial *trial_of(const struct words *words) {
    struct trial *t = trial_new(words->op);
    char text[256], *save, *equals;
    snprintf(text, sizeof text, "%s", words->inputs);
    for (char *at = strtok_r(text, " ", &save); at != NULL; at = strtok_r(NULL, " ", &save)) {
        equals = strchr(at, '=');
        *equals = '\0';
        give(t, at, equals + 1);
    }
    snprintf(text, sizeof text, "%s", words->params);
    for (char *at = strtok_r(text, " ", &save); at != NULL; at = strtok_r(NULL, " ", &save)) {
        equals = strchr(at, '=');
        *equals = '\0';
        set_param(t, at, equals + 1);
    }
    return t;
}

/* ---- in a process of its own ---- */

enum outcome { ENDED, HEARD, FAILED, DEAF };

static enum outcome outcome_of(const struct words *words) {
    pid_t child;
    int status;
    fflush(NULL);
    child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct trial *t;
        enum blasd_code code;
        setrlimit(RLIMIT_CPU, &(struct rlimit){TIMEOUT_S, TIMEOUT_S});
        t = trial_of(words);
        trial_watch.stop_after = 1;
        code = trial_run(t);
        _exit(code == BLASD_OK ? ENDED : code == BLASD_E_cancelled ? HEARD : FAILED);
    }
    while (waitpid(child, &status, 0) < 0) {
    }
    return WIFEXITED(status) ? (enum outcome)WEXITSTATUS(status) : DEAF;
}

static void expect(const struct words *words, int count) {
    int deaf = 0;
    for (int i = 0; i < count; i++) {
        enum outcome outcome = outcome_of(&words[i]);
        if (outcome == HEARD || (outcome == ENDED && !words[i].heard)) continue;
        deaf++;
        print_message("%s %s %s: %s\n", words[i].op, words[i].inputs, words[i].params,
                      outcome == DEAF     ? "did not hear"
                      : outcome == FAILED ? "failed"
                                          : "ended, and was to be stopped");
    }
    assert_int_equal(deaf, 0);
}

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* A few bytes that ask for work without end. */
static void work_without_data_hears(void **state) {
    static const struct words words[] = {
        {"distance", "x=1e12,0,0", "", false},
        {"distance", "x=1e12,0,0", "output=topk", false},
        {"distance", "x=1e12,0,0", "output=argmin", false},
        {"distance", "x=1e11,1,0", "output=condensed", false},
        {"distance", "x=1e9,1,0 y=0,0", "", false},
        {"distance", "x=1e9,0,5 y=1,0,5", "output=topk k=3", false},
        {"matmul", "a=1e12,0,0 b=0,0", "", false},
        {"matmul", "a=1e12,0,7 b=7,3", "", false},
        {"matmul", "a=1e12,1,0 b=0,0", "", false},
        {"matmul", "a=0,5,5 b=1,5,5", "", false},
        {"solve", "a=0,3,3 b=3,0", "", false},
#ifdef TRIAL_ON_THE_CPU /* a device refuses some of these, and emulated is slow at the others */
        {"distance", "x=1,0 y=1e12,0", "output=argmin", true},
        {"distance", "x=1,0 y=1e12,0", "output=topk k=2", true},
        {"distance", "x=1,0 y=1e12,0", "output=within radius=1e-9", false},
        {"distance", "x=1e5,0 y=1e8,0", "output=argmin metric=cityblock", true},
        {"distance", "x=300,0 y=1e10,0", "output=argmin metric=yule", true},
#endif
    };
    (void)state;
    expect(words, COUNT(words));
}

#ifdef TRIAL_ON_THE_CPU
#define STACK "64"
#else /* emulated, each costs half a second until it asks */
#define STACK "6"
#endif

/* Iterations that nothing ends, alone and in a stack. */
static void iterations_without_end_hear(void **state) {
    static const struct words words[] = {
        {"regression", "x=3,4 y=3", "method=lasso alpha=1e-9 tol=0 max_iter=1e9", false},
        {"regression", "x=30,40 y=30", "method=lasso alpha=1e-9 tol=0 max_iter=1e9", true},
        {"regression", "x=30,40 y=30", "method=elastic_net alpha=1e-9 tol=0 max_iter=1e9", false},
        {"regression", "x=" STACK ",30,40 y=" STACK ",30",
         "method=lasso alpha=1e-9 tol=0 max_iter=1e9", true},
        {"regression", "x=5,2 y=5", "method=gd iterations=1e9 learning_rate=1e-9", true},
        {"regression", "x=5,20 y=5", "method=gd iterations=1e9 learning_rate=1e-9", true},
        {"regression", "x=" STACK ",5,2 y=" STACK ",5",
         "method=gd iterations=1e9 learning_rate=1e-9", true},
        {"regression", "x=5,0 y=5", "method=gd iterations=1e9 fit_intercept=f", false},
    };
    (void)state;
    expect(words, COUNT(words));
}

/* ---- how often the watch is asked ---- */

#ifdef TRIAL_ON_THE_CPU
/* Parts of a long job between which nobody looks: operations, some hundredths of a second. */
#define MOST_UNSEEN 2e8

static void long_jobs_look_up_often(void **state) {
    static const struct words words[] = {
        {"distance", "x=200,150", "metric=mahalanobis", true},
        {"distance", "x=300,60", "metric=minkowski p=3", true},
        {"distance", "x=8000,3", "metric=correlation output=argmin", true},
        {"distance", "x=1500,2", "output=topk k=1000", true},
        {"distance", "x=1200,2", "output=within radius=9 max_pairs=2e6", true},
        {"matmul", "a=100000,3,3 b=3,3", "", true},
        {"matmul", "a=100000,3,3 b=100000,3,3", "", true},
        {"matmul", "a=3000,3000 b=3000", "", true},
        {"solve", "a=10000,6,6 b=10000,6,1", "", true},
        {"solve", "a=1,50,50 b=3000,50,1", "", true},
        {"solve", "a=500,500 b=500,100", "", true},
        {"solve", "a=600,600 b=600", "certify=t", true},
        {"regression", "x=1500,6 y=1500,60", "", true},
        {"regression", "x=4000,60 y=4000,3", "cov_type=HC1", true},
        {"regression", "x=60,800 y=60", "", true},
        {"regression", "x=60,800 y=60", "method=ridge alpha=1e9", true},
        {"regression", "x=4000,30,3 y=4000,30", "", true},
    };
    int threads = trial_device()->threads;
    (void)state;
    trial_device()->threads = 1; /* of more, the one that asks may get less to do */
    for (int i = 0; i < COUNT(words); i++) {
        struct trial *t = trial_of(&words[i]);
        double least;
        if (trial_run(t) != BLASD_OK)
            fail_msg("%s %s: %s %s", words[i].op, words[i].inputs, t->err.detail,
                     t->task.err.detail);
        least = t->plan.flops / MOST_UNSEEN;
        if (trial_watch.calls < (least > 1 ? least : 1))
            fail_msg("%s %s %s: %.3g operations, and the watch was asked %d times", words[i].op,
                     words[i].inputs, words[i].params, t->plan.flops, trial_watch.calls);
        /* whenever it says no, that is what comes of it */
        for (int stop = 1, calls = trial_watch.calls; stop <= calls; stop += 1 + calls / 3) {
            trial_watch.stop_after = stop;
            assert_int_equal(trial_run(t), BLASD_E_cancelled);
            assert_int_equal(trial_watch.calls, stop); /* and it is not asked again */
            trial_watch.stop_after = 0;
        }
        trial_free(t);
    }
    trial_device()->threads = threads;
}
#endif

/* ---- plans ---- */

/* Every operation with lengths of 0 and 1, and some more, in every place: what is planned is no
 * less than what there is to do, and runs. */
static void check_plan(struct trial *t, const char *what) {
    double elements = 0;
    for (int o = 0; t->job.op->outputs[o].name != NULL; o++)
        if (t->plan.outputs[o].rank >= 0)
            elements += (double)blasd_tensor_elements(&t->plan.outputs[o]);
    if (!(t->plan.flops >= t->plan.items && t->plan.flops >= elements))
        fail_msg("%s: %g operations for %g problems and %g elements", what, t->plan.flops,
                 t->plan.items, elements);
    if ((double)t->plan.output_bytes < 2 * elements) fail_msg("%s: outputs have no bytes", what);
}

static void plan_and_run(const struct words *words) {
    struct trial *t = trial_of(words);
    enum blasd_code code = trial_plan(t);
    if (code == BLASD_OK) {
        check_plan(t, words->inputs);
        code = trial_run(t);
        if (code != BLASD_OK && code != BLASD_E_singular_matrix &&
            code != BLASD_E_not_positive_definite)
            fail_msg("%s %s %s: %s", words->op, words->inputs, words->params, t->task.err.detail);
    }
    trial_free(t);
}

static void degenerate_shapes_are_planned(void **state) {
    static const int lengths[] = {0, 1, 3};
    static const char *const outputs[] = {"full", "condensed", "argmin", "topk", "within radius=2"};
    static const char *const methods[] = {"ols", "ridge", "lasso", "elastic_net",
                                          "gd iterations=9"};
    char inputs[128], params[128];
    (void)state;
    for (int at = 0; at < 81; at++) {
        int s = lengths[at % 3], m = lengths[at / 3 % 3], n = lengths[at / 9 % 3],
            k = lengths[at / 27];
        for (int which = 0; which < 5; which++) {
            struct words words = {"distance", inputs, params, false};
            snprintf(inputs, sizeof inputs, "x=%d,%d,%d y=1,%d,%d", s, m, k, n, k);
            if (which == 1) snprintf(inputs, sizeof inputs, "x=%d,%d,%d", s, m, k);
            snprintf(params, sizeof params, "output=%s", outputs[which]);
            plan_and_run(&words);
            words.op = "regression";
            snprintf(inputs, sizeof inputs, "x=%d,%d,%d y=%d,%d,%d", s, m, k, s, m, n);
            snprintf(params, sizeof params, "method=%s", methods[which]);
            plan_and_run(&words);
        }
        snprintf(inputs, sizeof inputs, "a=%d,%d,%d b=1,%d,%d", s, m, k, k, n);
        plan_and_run(&(struct words){"matmul", inputs, "", false});
        snprintf(inputs, sizeof inputs, "a=%d,%d,%d b=%d,%d", s, k, k, k, n);
        plan_and_run(&(struct words){"solve", inputs, "", false});
    }
}

static double flops_of(const struct words *words) {
    struct trial *t = trial_of(words);
    double flops;
    if (trial_plan(t) != BLASD_OK) fail_msg("%s %s: %s", words->op, words->inputs, t->err.detail);
    flops = t->plan.flops;
    trial_free(t);
    return flops;
}

static void plans_count_what_takes_long(void **state) {
    static const struct {
        struct words words;
        double least;
    } plans[] = {
        {{"distance", "x=1e12,0,0", "", false}, 1e12},
        {{"distance", "x=1e9,1,0", "output=condensed", false}, 1e9},
        {{"distance", "x=1e5,0 y=1e8,0", "output=argmin", false}, 1e13},
        {{"distance", "x=3000,1500", "metric=mahalanobis", false}, 6e9 + 3e9},
        {{"matmul", "a=1e6,1,0 b=0,1", "", false}, 2e6},
        {{"matmul", "a=1e12,0,0 b=0,0", "", false}, 1e12},
        {{"solve", "a=1e6,0,0 b=0,1", "", false}, 6e6},
        {{"regression", "x=3,4 y=3", "method=lasso max_iter=1e9", false}, 1e9 * 40},
        {{"regression", "x=30,40 y=30", "method=elastic_net max_iter=1e9", false}, 1e9 * 4800},
        {{"regression", "x=5,1 y=5", "method=gd iterations=1e9", false}, 1e11},
        {{"regression", "x=500,20 y=500,100", "", false}, 50 * 500 * 20 * 100.0},
        {{"regression", "x=5000,50 y=5000", "cov_type=HC3", false}, 3 * 5000 * 50 * 50.0},
    };
    (void)state;
    for (int i = 0; i < COUNT(plans); i++)
        if (!(flops_of(&plans[i].words) >= plans[i].least))
            fail_msg("%s %s %s: %g operations are planned", plans[i].words.op,
                     plans[i].words.inputs, plans[i].words.params, flops_of(&plans[i].words));
    /* without iterations there are none */
    assert_true(flops_of(&(struct words){"regression", "x=50,4 y=50", "", false}) < 1e5);
}

/* 110 bytes of request, 200 MB of result. */
static void outputs_of_nothing_have_their_bytes(void **state) {
    struct words words = {"matmul", "a=5000,0 b=0,5000", "", false};
    struct trial *t = trial_of(&words);
    (void)state;
    assert_int_equal(trial_plan(t), BLASD_OK);
    assert_true(t->plan.output_bytes == 200000000 && t->plan.flops >= 25e6);
    trial_free(t);
}

/* ---- the question itself ---- */

static bool ask_in_helper(void *arg, int64_t i, int slot) {
    int *asked = arg;
    (void)i;
    if (slot > 0) *asked = trial_watch.calls;
    return blasd_wanted();
}

static void a_no_is_remembered_by_all_threads(void **state) {
    struct blasd_err err = {0};
    int asked = 0;
    struct blasd_parallel loop = {
        .piece = ask_in_helper, .arg = &asked, .count = 1000, .threads = 3};
    (void)state;
    assert_true(blasd_wanted()); /* nobody runs anything */
    trial_watch.calls = 0;
    trial_watch.last = 0;
    trial_watch.stop_after = 3;
    blasd_wanted_begin(&trial_watch.base);
    assert_true(blasd_wanted_at(0.5));
    assert_true(blasd_wanted_at(0.25)); /* does not fall: trial_go_on would note it */
    assert_false(blasd_wanted());
    assert_false(blasd_wanted());
    assert_false(blasd_parallel_run(&loop));
    assert_int_equal(trial_watch.calls, 3);
    assert_false(trial_watch.went_back);
    assert_int_equal(blasd_wanted_end(0, &err), -(int)BLASD_E_cancelled);
    assert_int_equal(err.code, BLASD_E_cancelled);
    trial_watch.stop_after = 0;
    blasd_wanted_begin(&trial_watch.base); /* the next batch is another matter */
    assert_true(blasd_wanted());
    assert_int_equal(blasd_wanted_end(-7, &err), -7);
    assert_true(blasd_wanted());
}

/* Memory that was never touched takes seconds to copy to, so a large matrix is not copied in one
 * go. */
static void a_matrix_is_copied_while_it_is_wanted(void **state) {
    enum { SIDE = 1024 };
    struct blasd_tensor input = {.dtype = BLASD_float64,
                                 .rank = 2,
                                 .shape = {SIDE, SIDE},
                                 .data = trial_alloc(SIDE * SIDE * sizeof(double))};
    double *to = calloc(SIDE * SIDE, sizeof *to), *from = input.data;
    struct blasd_err err = {0};
    (void)state;
    assert_non_null(to);
    for (int i = 0; i < SIDE * SIDE; i++) from[i] = 1 + i;
    for (int way = 0; way < 4; way++) {
        input.order = way < 2 ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR;
        trial_watch.calls = 0;
        trial_watch.last = 0;
        trial_watch.stop_after = 1;
        blasd_wanted_begin(&trial_watch.base);
        while (blasd_wanted()) continue;
        blasd_stack_copy(&input, 0, SIDE, SIDE, way % 2 == 1, to);
        assert_true(to[SIDE * SIDE - 1] == 0);
        assert_int_equal(blasd_wanted_end(0, &err), -(int)BLASD_E_cancelled);
    }
    trial_watch.stop_after = 0;
    input.order = BLASD_COLUMN_MAJOR;
    blasd_stack_copy(&input, 0, SIDE, SIDE, false, to);
    assert_memory_equal(to, from, SIDE * SIDE * sizeof *to);
    free(to);
    free(input.data);
}

/* The same of all else that goes through one. */
static void a_matrix_is_gone_through_while_it_is_wanted(void **state) {
    enum { SIDE = 1024, ALL = SIDE * SIDE };
    static const struct blasd_stack single = {.single = true};
    struct blasd_tensor nans = {.dtype = BLASD_float64, .rank = 2, .shape = {SIDE, SIDE}};
    double *x = trial_alloc(ALL * sizeof *x), *to = trial_alloc(ALL * sizeof *to);
    struct blasd_err err = {0};
    (void)state;
    nans.data = to;
    for (int i = 0; i < ALL; i++) x[i] = 1e300 + i * 1e290;
    for (int i = 0; i < ALL; i++) to[i] = 1;
    trial_watch.calls = 0;
    trial_watch.last = 0;
    trial_watch.stop_after = 1;
    blasd_wanted_begin(&trial_watch.base);
    while (blasd_wanted()) continue;
    blasd_stack_move(ALL, x, to);
    blasd_stack_store_nan(&nans, 0, ALL);
    assert_true(to[ALL - 1] == 1);
    for (int upper = 0; upper < 2; upper++) {
        blasd_stack_mirror(SIDE, x, upper);
        assert_true(x[ALL - 2] > x[ALL - 1 - SIDE]); /* twins */
    }
    blasd_stack_round(&single, x, ALL);
    (void)blasd_stack_scale(ALL, x);
    assert_true(x[ALL - 1] == 1e300 + (ALL - 1) * 1e290);
    for (int i = 0; i < ALL; i++) to[i] = 1;
    assert_true(blasd_stack_norm(ALL, to) < SIDE);
    assert_int_equal(blasd_wanted_end(0, &err), -(int)BLASD_E_cancelled);
    trial_watch.stop_after = 0;
    free(x);
    free(to);
}

/* Of sizes that are no multiple of what is turned at once. */
static void a_matrix_is_mirrored(void **state) {
    enum { MOST = 70 };
    double a[MOST * MOST];
    (void)state;
    for (int n = 0; n <= MOST; n++)
        for (int upper = 0; upper < 2; upper++) {
            for (int i = 0; i < n * n; i++) a[i] = i;
            blasd_stack_mirror(n, a, upper);
            for (int j = 0; j < n; j++) /* columns */
                for (int i = 0; i < n; i++) {
                    bool kept = upper ? i <= j : i >= j;
                    assert_true(a[j * n + i] == (kept ? j * n + i : i * n + j));
                }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        /* first: their processes are forked before there are threads */
        cmocka_unit_test(iterations_without_end_hear),
        cmocka_unit_test(work_without_data_hears),
        cmocka_unit_test(a_no_is_remembered_by_all_threads),
        cmocka_unit_test(a_matrix_is_copied_while_it_is_wanted),
        cmocka_unit_test(a_matrix_is_gone_through_while_it_is_wanted),
        cmocka_unit_test(a_matrix_is_mirrored),
        cmocka_unit_test(plans_count_what_takes_long),
        cmocka_unit_test(outputs_of_nothing_have_their_bytes),
        cmocka_unit_test(degenerate_shapes_are_planned),
#ifdef TRIAL_ON_THE_CPU
        cmocka_unit_test(long_jobs_look_up_often),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
