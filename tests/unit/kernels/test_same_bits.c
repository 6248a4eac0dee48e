/* The same job gives the same bits whatever its batch and its history, asked of every operation
 * on its own samples: as the first job of a device, alone, among jobs of its own kind, among jobs
 * of other shapes where they may share a batch, and for the hundredth time. */
#include "sample_support.h"

#define MOST 7

/* What came of it, output by output. */
struct answer {
    void *data[BLASD_MAX_OUTPUTS]; /* owned */
    char method[BLASD_METHOD_MAX];
};

static struct blasd_device *open_device(void) {
    struct blasd_device *device;
    struct blasd_err err = {0};
    if (TRIAL_BACKEND.device_open(0, &device, &err) != 0) fail_msg("%s", err.detail);
    return device;
}

static void run(struct blasd_device *device, struct trial *const *trials, int count) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(&TRIAL_BACKEND, trials[0]->job.op);
    struct blasd_task tasks[MOST];
    struct blasd_err err = {0};
    for (int i = 0; i < count; i++) {
        assert_int_equal(trial_plan(trials[i]), BLASD_OK);
        trial_bind(trials[i]);
        tasks[i] = trials[i]->task;
    }
    if (kernel->run(device, tasks, count, &trial_watch.base, &err) != 0)
        fail_msg("%s: %s", trials[0]->job.op->name, err.detail);
    for (int i = 0; i < count; i++) {
        assert_int_equal(tasks[i].err.code, BLASD_OK);
        trials[i]->task = tasks[i];
    }
}

static struct answer keep(const struct trial *t) {
    struct answer answer = {0};
    for (int o = 0; t->job.op->outputs[o].name != NULL; o++) {
        const struct blasd_tensor *out = &t->task.outputs[o];
        if (out->rank < 0) continue;
        answer.data[o] = trial_alloc(blasd_tensor_bytes(out));
        memcpy(answer.data[o], out->data, blasd_tensor_bytes(out));
    }
    snprintf(answer.method, sizeof answer.method, "%s", t->task.method);
    return answer;
}

static void forget(struct answer *answer) {
    for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) free(answer->data[o]);
}

static int same(const struct trial *t, const struct answer *was, int64_t n, const char *when) {
    const struct blasd_op *op = t->job.op;
    int differ = 0;
    for (int o = 0; op->outputs[o].name != NULL; o++) {
        const struct blasd_tensor *out = &t->task.outputs[o];
        if (out->rank < 0 || memcmp(out->data, was->data[o], blasd_tensor_bytes(out)) == 0)
            continue;
        fprintf(stderr, "%s of %lld, %s, %s: %s differs\n", op->name, (long long)n,
                blasd_dtype_name(t->job.inputs[0].tensor.dtype), when, op->outputs[o].name);
        differ = 1;
    }
    if (strcmp(t->task.method, was->method) != 0) {
        fprintf(stderr, "%s of %lld, %s: by %s, not %s\n", op->name, (long long)n, when,
                t->task.method, was->method);
        differ = 1;
    }
    return differ;
}

/* Whether the worker may put two jobs into one batch. */
static bool may_meet(const struct trial *a, const struct trial *b) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(&TRIAL_BACKEND, a->job.op);
    struct blasd_key p = a->plan.key, q = b->plan.key;
    if (kernel->batch_key != NULL) {
        kernel->batch_key(&a->job, &a->plan, &p);
        kernel->batch_key(&b->job, &b->plan, &q);
    }
    return a->plan.batchable && b->plan.batchable && blasd_key_equal(&p, &q);
}

/* Its answer among others, made anew each time; `mixed`: every second of them is of another size:
 * just larger, which a launch may hold too, or far larger. */
static int in_a_batch(struct blasd_device *device, struct trial *t, const struct answer *was,
                      int64_t n, bool mixed, int64_t items, int count) {
    static const int64_t more[] = {1, 5, 13};
    enum blasd_dtype dtype = t->job.inputs[0].tensor.dtype;
    struct trial *list[MOST];
    int place = (int)trial_between(0, count - 1), differ = 0;
    bool meet = true;
    for (int i = 0; i < count; i++) {
        int64_t size = mixed && i % 2 != place % 2 ? n + more[i / 2 % 3] : n;
        list[i] = i == place ? t : sample_trial(t->job.op, size, items, dtype);
        assert_non_null(list[i]);
        assert_int_equal(trial_plan(list[i]), BLASD_OK);
        meet = meet && may_meet(t, list[i]);
    }
    if (meet) {
        run(device, list, count);
        differ = same(t, was, n, mixed ? "in a mixed batch" : "among its like");
    }
    for (int i = 0; i < count; i++)
        if (i != place) trial_free(list[i]);
    return differ;
}

static int try_one(const struct blasd_op *op, int64_t n, int64_t items, enum blasd_dtype dtype) {
    struct trial *t = sample_trial(op, n, items, dtype);
    struct blasd_device *device = open_device();
    struct answer was;
    bool small = n <= 20;
    int differ = 0;
    assert_non_null(t);
    run(device, &t, 1);
    was = keep(t);
    TRIAL_BACKEND.device_close(device);
    device = open_device(); /* where others come first */
    differ += in_a_batch(device, t, &was, n, false, items, small ? MOST : 2);
    if (n < 100) differ += in_a_batch(device, t, &was, n, true, items, small ? MOST : 3);
    for (int i = 0; i < (n == 3 ? 100 : 2); i++) run(device, &t, 1);
    differ += same(t, &was, n, "once more");
    TRIAL_BACKEND.device_close(device);
    forget(&was);
    trial_free(t);
    return differ;
}

/* 90: beyond small products; 260: beyond what a block's shared memory holds, and what shares a
 * call. */
static void the_same_bits_whatever_the_batch(void **state) {
    static const int64_t sizes[][2] = {{3, 1}, {20, 2}, {90, 2}, {260, 1}};
    int differ = 0;
    (void)state;
    TRIAL_FULL_ON_DEVICE();
    for (int at = 0; blasd_ops[at] != NULL; at++) {
        const struct blasd_op *op = blasd_ops[at];
        if (op->sample == NULL || blasd_backend_kernel(&TRIAL_BACKEND, op) == NULL) continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int single = 0; single < (sizes[i][0] < 50 ? 2 : 1); single++)
                differ +=
                    try_one(op, sizes[i][0], sizes[i][1], single ? BLASD_float32 : BLASD_float64);
    }
    assert_int_equal(differ, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_whatever_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
