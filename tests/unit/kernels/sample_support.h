/* Trials of any operation, made from the sample that it gives of itself (op->sample), so that a
 * test of all operations needs to know none. Read next: test_conformance.c. */
#ifndef BLASD_TESTS_SAMPLE_SUPPORT_H
#define BLASD_TESTS_SAMPLE_SUPPORT_H

#include "kernel_support.h"

/* Numbers between 0 and 1, or what the operation makes of them; ones in dtypes of integers. */
static TRIAL_UNUSED void sample_fill(const struct blasd_op *op, int i,
                                     const struct blasd_tensor *tensor) {
    int64_t count = blasd_tensor_elements(tensor);
    struct blasd_tensor plain = *tensor;
    double *wide = trial_alloc((size_t)count * sizeof *wide);
    for (int64_t at = 0; at < count; at++) wide[at] = (trial_uniform() + 1) / 2;
    plain.dtype = BLASD_float64;
    plain.data = wide;
    if (op->sample_values != NULL) op->sample_values(i, &plain);
    for (int64_t at = 0; at < count; at++) {
        double value = wide[at];
        switch (tensor->dtype) {
        case BLASD_float64: ((double *)tensor->data)[at] = value; break;
        case BLASD_float32: ((float *)tensor->data)[at] = (float)value; break;
        default: /* small integers, ones for bool; halves: 1.0 */
            memset((char *)tensor->data + (size_t)at * blasd_dtype_size(tensor->dtype), 0,
                   blasd_dtype_size(tensor->dtype));
            ((char *)tensor->data)[(size_t)at * blasd_dtype_size(tensor->dtype)] = 1;
        }
    }
    free(wide);
}

/* The sample of that size with data; NULL: the operation has none. */
static TRIAL_UNUSED struct trial *sample_trial(const struct blasd_op *op, int64_t n, int64_t items,
                                               enum blasd_dtype dtype) {
    struct trial *t = trial_new(op->name);
    struct blasd_job sample;
    blasd_job_init(&sample, op);
    if (op->sample == NULL || !op->sample(&sample, n, items, dtype)) {
        trial_free(t);
        return NULL;
    }
    for (int i = 0; op->inputs[i].name != NULL; i++) {
        struct blasd_tensor tensor = sample.inputs[i].tensor;
        if (!blasd_job_has(&sample, i)) continue;
        tensor.data = trial_input(t, op->inputs[i].name, tensor.dtype, BLASD_ROW_MAJOR, tensor.rank,
                                  tensor.shape);
        sample_fill(op, i, &tensor);
    }
    for (int i = 0; op->params[i].name != NULL; i++) t->job.params[i] = sample.params[i];
    return t;
}

#endif
