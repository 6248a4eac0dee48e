/* What every operation owes on every backend, asked of each that is in the tables, on jobs that it
 * makes itself (op->sample): batch keys, dtypes, orders, lengths of 0 and beyond all memory,
 * batches, cancellation, plans. An operation is held to this by being there. Read next:
 * kernel_support.h. */
#include "sample_support.h"

#include "core/record.h"
#include "core/wanted.h"

/* The same job with the same data. */
static struct trial *again(const struct trial *of) {
    const struct blasd_op *op = of->job.op;
    struct trial *t = trial_new(op->name);
    for (int i = 0; op->inputs[i].name != NULL; i++) {
        const struct blasd_tensor *tensor = &of->job.inputs[i].tensor;
        if (!blasd_job_has(&of->job, i)) continue;
        memcpy(trial_input(t, op->inputs[i].name, tensor->dtype, tensor->order, tensor->rank,
                           tensor->shape),
               of->given[i], blasd_tensor_bytes(tensor));
    }
    memcpy(t->job.params, of->job.params, sizeof t->job.params);
    return t;
}

static bool runs_here(const struct blasd_op *op) {
    return blasd_backend_kernel(&TRIAL_BACKEND, op) != NULL;
}

#define EACH_OPERATION(op)                                                                         \
    for (int op##_at = 0; blasd_ops[op##_at] != NULL; op##_at++)                                   \
        for (const struct blasd_op *op = blasd_ops[op##_at]; op != NULL; op = NULL)

/* ---- what is compared ---- */

/* Whether the outputs agree: to the bit, or where `tolerance` is above 0 to that part of the
 * largest element of each. Figures that say how good a result is are no results: they may differ.
 */
static void assert_same(const struct trial *a, const struct trial *b, double tolerance) {
    const struct blasd_op *op = a->job.op;
    for (int o = 0; op->outputs[o].name != NULL; o++) {
        const struct blasd_tensor *p = &a->task.outputs[o], *q = &b->task.outputs[o];
        int64_t count;
        double most = 0;
        assert_int_equal(p->rank, q->rank);
        if (p->rank < 0) continue;
        count = blasd_tensor_elements(p);
        assert_int_equal(count, blasd_tensor_elements(q));
        if (tolerance == 0) {
            if (memcmp(p->data, q->data, blasd_tensor_bytes(p)) != 0)
                fail_msg("%s: %s differs", op->name, op->outputs[o].name);
            continue;
        }
        for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(trial_value(p, i)));
        for (int64_t i = 0; i < count; i++) {
            double x = trial_value(p, i), y = trial_value(q, i);
            if (!(fabs(x - y) <= tolerance * (1 + most)) && !(isnan(x) && isnan(y)))
                fail_msg("%s: %s[%lld] is %.17g and %.17g", op->name, op->outputs[o].name,
                         (long long)i, x, y);
        }
    }
}

/* ---- what is asked ---- */

static void samples_plan_and_run(void **state) {
    static const int64_t sizes[][2] = {{1, 1}, {2, 1}, {5, 1}, {40, 1}, {1, 3}, {7, 4}};
    (void)state;
    EACH_OPERATION(op) {
        if (op->sample == NULL || !runs_here(op)) continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int single = 0; single < 2; single++) {
                struct trial *t = sample_trial(op, sizes[i][0], sizes[i][1],
                                               single ? BLASD_float32 : BLASD_float64);
                if (t == NULL)
                    fail_msg("%s has no sample of %lld", op->name, (long long)sizes[i][0]);
                if (trial_run(t) != BLASD_OK)
                    fail_msg("%s: its sample of %lld fails: %s %s", op->name,
                             (long long)sizes[i][0], t->task.err.detail, t->err.detail);
                assert_true(t->task.method[0] != '\0');
                assert_true(t->plan.items >= (double)sizes[i][1]);
                trial_free(t);
            }
    }
}

/* Two jobs that differ in a parameter, an input, a dtype or a length are never one call. */
static void whatever_differs_stands_in_the_key(void **state) {
    (void)state;
    EACH_OPERATION(op) {
        struct trial *t = sample_trial(op, 4, 1, BLASD_float64);
        struct blasd_key key;
        if (t == NULL) continue;
        assert_int_equal(trial_plan(t), BLASD_OK);
        key = t->plan.key;
        assert_true(blasd_key_equal(&key, &t->plan.key));
        for (int p = 0; op->params[p].name != NULL; p++) {
            const struct blasd_param *param = &op->params[p];
            struct blasd_value keep = t->job.params[p], *value = &t->job.params[p];
            value->given = true;
            if (param->kind == BLASD_PARAM_BOOL) value->b = !value->b;
            if (param->kind == BLASD_PARAM_CHOICE) value->choice = value->choice == 0;
            if (param->kind == BLASD_PARAM_INT) value->i += (double)value->i < param->most ? 1 : -1;
            if (param->kind == BLASD_PARAM_FLOAT) {
                value->f = value->f == 0.5 ? 0.25 : 0.5;
                if (param->has_range && (value->f < param->least || value->f > param->most))
                    value->f = param->most != keep.f ? param->most : param->least;
            }
            /* also where the value is refused beside the others */
            (void)blasd_job_plan(&t->job, &t->plan, &t->err);
            if (t->plan.key.len == 0 || blasd_key_equal(&key, &t->plan.key))
                fail_msg("%s: %s is not in the key", op->name, param->name);
            *value = keep;
        }
        for (int i = 0; op->inputs[i].name != NULL; i++) {
            struct blasd_input keep = t->job.inputs[i];
            bool there = blasd_job_has(&t->job, i);
            if (there)
                t->job.inputs[i].tensor.dtype = BLASD_float32;
            else
                blasd_job_give(&t->job, i, (enum blasd_dtype)__builtin_ctz(op->inputs[i].dtypes),
                               op->inputs[i].min_rank,
                               (int64_t[BLASD_MAX_RANK]){4, 4, 4, 4, 4, 4, 4, 4});
            (void)blasd_job_plan(&t->job, &t->plan, &t->err);
            if (t->plan.key.len == 0 || blasd_key_equal(&key, &t->plan.key))
                fail_msg("%s: %s is not in the key", op->name, op->inputs[i].name);
            t->job.inputs[i] = keep;
        }
        trial_free(t);
        t = sample_trial(op, 5, 1, BLASD_float64);
        assert_int_equal(trial_plan(t), BLASD_OK);
        assert_false(blasd_key_equal(&key, &t->plan.key));
        trial_free(t);
    }
}

/* Each dtype that an input's port names is taken and computed with. */
static void every_dtype_is_taken(void **state) {
    (void)state;
    EACH_OPERATION(op) {
        struct trial *t = sample_trial(op, 3, 1, BLASD_float64);
        if (t == NULL || !runs_here(op)) {
            trial_free(t);
            continue;
        }
        for (int dtype = 0; dtype < BLASD_DTYPE_COUNT; dtype++) {
            struct trial *typed = trial_new(op->name);
            bool all = true;
            enum blasd_code code;
            for (int i = 0; op->inputs[i].name != NULL; i++) {
                struct blasd_tensor tensor = t->job.inputs[i].tensor;
                if (!blasd_job_has(&t->job, i)) continue;
                all = all && (op->inputs[i].dtypes & BLASD_DTYPE_BIT(dtype)) != 0;
                tensor.dtype = (enum blasd_dtype)dtype;
                tensor.data = trial_input(typed, op->inputs[i].name, tensor.dtype, BLASD_ROW_MAJOR,
                                          tensor.rank, tensor.shape);
                sample_fill(op, i, &tensor);
            }
            if (all) {
                code = trial_run(typed);
                /* a matrix of ones may be singular, which is an answer */
                if (code == BLASD_E_internal_error || code == BLASD_E_unsupported_dtype)
                    fail_msg("%s of %s: %s", op->name, blasd_dtype_name((enum blasd_dtype)dtype),
                             typed->err.detail);
            } else {
                assert_int_equal(trial_plan(typed), BLASD_E_unsupported_dtype);
            }
            trial_free(typed);
        }
        trial_free(t);
    }
}

/* A matrix that comes column by column is the same matrix. */
static void the_order_of_elements_changes_nothing(void **state) {
    (void)state;
    EACH_OPERATION(op) {
        struct trial *rows = sample_trial(op, 6, 1, BLASD_float64), *columns;
        if (rows == NULL || !runs_here(op)) {
            trial_free(rows);
            continue;
        }
        columns = trial_new(op->name);
        for (int i = 0; op->inputs[i].name != NULL; i++) {
            const struct blasd_tensor *from = &rows->job.inputs[i].tensor;
            bool matrix = from->rank == 2;
            double *to;
            if (!blasd_job_has(&rows->job, i)) continue;
            to =
                trial_input(columns, op->inputs[i].name, from->dtype,
                            matrix ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR, from->rank, from->shape);
            for (int64_t at = 0; at < blasd_tensor_elements(from); at++) {
                int64_t n = matrix ? from->shape[1] : 1, m = matrix ? from->shape[0] : 1;
                to[matrix ? at % n * m + at / n : at] = ((const double *)rows->given[i])[at];
            }
        }
        assert_int_equal(trial_run(rows), BLASD_OK);
        assert_int_equal(trial_run(columns), BLASD_OK);
        assert_same(rows, columns, 1e-9);
        trial_free(rows);
        trial_free(columns);
    }
}

/* A length of 0 in any place is refused in words, or computed: every output is written. */
static void lengths_of_zero(void **state) {
    (void)state;
    EACH_OPERATION(op) {
        struct trial *t = sample_trial(op, 3, 2, BLASD_float64);
        if (t == NULL || !runs_here(op)) {
            trial_free(t);
            continue;
        }
        for (int first = 0; op->inputs[first].name != NULL; first++)
            for (int axis = 0; axis < t->job.inputs[first].tensor.rank; axis++)
                for (int both = 0; both < 2; both++) {
                    struct trial *empty = trial_new(op->name);
                    for (int i = 0; op->inputs[i].name != NULL; i++) {
                        struct blasd_tensor tensor = t->job.inputs[i].tensor;
                        if (!blasd_job_has(&t->job, i)) continue;
                        if (i == first) tensor.shape[axis] = 0;
                        if (i != first && both && axis < tensor.rank) tensor.shape[axis] = 0;
                        tensor.data = trial_input(empty, op->inputs[i].name, tensor.dtype,
                                                  BLASD_ROW_MAJOR, tensor.rank, tensor.shape);
                        sample_fill(op, i, &tensor);
                    }
                    if (trial_plan(empty) == BLASD_OK && trial_run(empty) == BLASD_OK)
                        for (int o = 0; op->outputs[o].name != NULL; o++) {
                            const struct blasd_tensor *out = &empty->task.outputs[o];
                            uint64_t rubbish = UINT64_MAX, last;
                            int64_t count = out->rank < 0 ? 0 : blasd_tensor_elements(out);
                            if (count == 0 || blasd_dtype_size(out->dtype) != 8) continue;
                            memcpy(&last, (char *)out->data + (count - 1) * 8, 8);
                            if (last == rubbish && out->dtype != BLASD_int64)
                                fail_msg("%s: %s was not written", op->name, op->outputs[o].name);
                        }
                    trial_free(empty);
                }
        trial_free(t);
    }
}

/* Elements of a tensor with such lengths; -1: more than there are numbers for. */
static int64_t count_of(const struct blasd_tensor *tensor) {
    int64_t count = 1;
    for (int d = 0; d < tensor->rank; d++)
        if (tensor->shape[d] == 0) return 0;
    for (int d = 0; d < tensor->rank; d++)
        if (__builtin_mul_overflow(count, tensor->shape[d], &count)) return -1;
    return count;
}

/* Other lengths for those of the sample, the same ones for the same; whether no input has an
 * element, so that a few bytes can ask for such a job. */
static bool draw_lengths(const struct blasd_op *op, struct blasd_job *job) {
    static const int64_t lengths[] = {0, 0, 1, 1000, 1 << 20, (int64_t)1 << 31, (int64_t)1 << 40};
    int64_t drawn[64];
    bool empty = true;
    for (int n = 0; n < 64; n++)
        drawn[n] = lengths[trial_between(0, sizeof lengths / sizeof *lengths - 1)];
    for (int i = 0; op->inputs[i].name != NULL; i++) {
        struct blasd_tensor *tensor = &job->inputs[i].tensor;
        if (!blasd_job_has(job, i)) continue;
        for (int d = 0; d < tensor->rank; d++) tensor->shape[d] = drawn[tensor->shape[d] % 64];
        empty = empty && count_of(tensor) == 0;
    }
    return empty;
}

/* Inputs without an element can ask for outputs beyond all memory: that is refused in words, or the
 * plan's numbers are right, and none has gone round. */
static void lengths_beyond_all_memory(void **state) {
    (void)state;
    trial_seed = 41;
    EACH_OPERATION(op) {
        struct trial *t = sample_trial(op, 3, 2, BLASD_float64);
        int planned = 0;
        for (int round = 0; t != NULL && runs_here(op) && round < 2000; round++) {
            struct blasd_job job = t->job;
            struct blasd_plan plan;
            struct blasd_err err = {0};
            double bytes = 0;
            if (!draw_lengths(op, &job)) continue;
            if (blasd_job_plan(&job, &plan, &err) != 0) {
                assert_true(err.code != BLASD_E_internal_error && err.detail[0] != '\0');
                continue;
            }
            planned++;
            assert_true(plan.flops >= 0 && isfinite(plan.flops));
            for (int o = 0; op->outputs[o].name != NULL; o++) {
                const struct blasd_tensor *out = &plan.outputs[o];
                int64_t count = out->rank < 0 ? 0 : count_of(out);
                if (count < 0) fail_msg("%s: %s has no end", op->name, op->outputs[o].name);
                bytes += (double)count * (double)blasd_dtype_size(out->dtype);
            }
            /* which is what limits are held against */
            if (!(fabs((double)plan.output_bytes - bytes) <= 0.01 * bytes))
                fail_msg("%s: %llu bytes of outputs, not %g", op->name,
                         (unsigned long long)plan.output_bytes, bytes);
        }
        if (t != NULL && runs_here(op)) assert_true(planned > 0);
        trial_free(t);
    }
}

/* What comes of a job does not depend on those it runs with. */
static void a_batch_changes_nothing(void **state) {
    enum { COUNT = 4 };
    (void)state;
    EACH_OPERATION(op) {
        struct trial *alone[COUNT], *together[COUNT];
        if (op->sample == NULL || !runs_here(op)) continue;
        for (int n = 3; n <= 36; n += 11 * trial_step(2)) {
            for (int i = 0; i < COUNT; i++) {
                alone[i] = sample_trial(op, n, 1, BLASD_float64);
                together[i] = again(alone[i]);
                assert_int_equal(trial_run(alone[i]), BLASD_OK);
            }
            assert_int_equal(trial_run_batch(together, COUNT), BLASD_OK);
            for (int i = 0; i < COUNT; i++) {
                assert_int_equal(together[i]->task.err.code, BLASD_OK);
                assert_same(alone[i], together[i], 0);
                trial_free(alone[i]);
                trial_free(together[i]);
            }
        }
    }
}

/* A port that wants finite numbers gets no others. */
static void nothing_infinite_gets_in(void **state) {
    (void)state;
    EACH_OPERATION(op) {
        for (int i = 0; op->inputs[i].name != NULL; i++) {
            struct trial *t = sample_trial(op, 3, 1, BLASD_float64);
            if (t == NULL) break;
            if (op->inputs[i].finite && blasd_job_has(&t->job, i)) {
                ((double *)t->given[i])[0] = i % 2 == 0 ? NAN : -INFINITY;
                assert_int_equal(trial_plan(t), BLASD_E_not_finite);
            }
            trial_free(t);
        }
    }
}

/* A job that nobody wants ends as cancelled at the first question, and questions are asked. */
static void an_unwanted_job_ends(void **state) {
    (void)state;
    EACH_OPERATION(op) {
        struct trial *t = sample_trial(op, 150, 1, BLASD_float64);
        enum blasd_code code;
        if (t == NULL || !runs_here(op)) {
            trial_free(t);
            continue;
        }
        trial_watch.stop_after = 1;
        code = trial_run(t);
        trial_watch.stop_after = 0;
        if (code != BLASD_E_cancelled) fail_msg("%s does not ask", op->name);
        /* once told it says nothing more than good-bye */
        if (trial_watch.calls > 2)
            fail_msg("%s goes on: %d questions", op->name, trial_watch.calls);
        assert_int_equal(trial_run(t), BLASD_OK);
        trial_free(t);
    }
}

/* What a job takes in memory, and what of it, of its plan and of its record is cleared for it: few
 * bytes, for features it does not use take none. */
static void small_jobs_are_small(void **state) {
    (void)state;
    for (int i = 0; blasd_ops[i] != NULL; i++) {
        const struct blasd_op *op = blasd_ops[i];
        size_t job = blasd_job_size(op);
        size_t plan = offsetof(struct blasd_plan, outputs) +
                      (size_t)blasd_op_output_count(op) * sizeof(struct blasd_tensor);
        size_t record =
            offsetof(struct blasd_record, execution) + offsetof(struct blasd_execution, warnings);
        assert_true(job <= (blasd_op_input_count(op) <= 3 ? 1024 : sizeof(struct blasd_job)));
        if (blasd_op_output_count(op) <= 8) assert_true(job + plan + record <= 4096);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_plan_and_run),
        cmocka_unit_test(whatever_differs_stands_in_the_key),
        cmocka_unit_test(every_dtype_is_taken),
        cmocka_unit_test(the_order_of_elements_changes_nothing),
        cmocka_unit_test(lengths_of_zero),
        cmocka_unit_test(lengths_beyond_all_memory),
        cmocka_unit_test(a_batch_changes_nothing),
        cmocka_unit_test(nothing_infinite_gets_in),
        cmocka_unit_test(an_unwanted_job_ends),
        cmocka_unit_test(small_jobs_are_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
