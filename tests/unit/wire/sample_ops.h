/* A table of operations for tests of the stored forms and the way out, in the place of the real
 * one: every kind of port and parameter, and texts that need escaping. */
#ifndef BLASD_TESTS_SAMPLE_OPS_H
#define BLASD_TESTS_SAMPLE_OPS_H

#include "core/job.h"

#include <math.h>

#define ALL_DTYPES (BLASD_DTYPE_BIT(BLASD_DTYPE_COUNT) - 1)

static const struct blasd_port sample_inputs[] = {
    {.name = "a", .shape = "(..., m, k)", .doc = "Left.", .dtypes = ALL_DTYPES, .max_rank = 8},
    {.name = "b", .shape = "(..., k, n)", .doc = "Right.", .dtypes = ALL_DTYPES, .max_rank = 8},
    {.name = "sample_weight",
     .shape = "(n)",
     .doc = "Weights \"w\" \\ of each row:\n\x01\xe2\x82\xac\xff.",
     .dtypes = BLASD_DTYPES_FLOAT,
     .min_rank = 1,
     .max_rank = 1,
     .optional = true,
     .finite = true,
     .values = BLASD_VALUES_NOT_NEGATIVE | BLASD_VALUES_NOT_ALL_ZERO},
    {.name = NULL},
};
static const struct blasd_port sample_outputs[] = {
    {.name = "c", .shape = "(..., m, n)", .doc = "Product.", .dtypes = ALL_DTYPES, .max_rank = 8},
    {.name = "index",
     .shape = "(m)",
     .doc = "Where.",
     .dtypes = BLASD_DTYPE_BIT(BLASD_int64),
     .min_rank = 1,
     .max_rank = 1,
     .optional = true},
    {.name = "flag", .shape = "()", .doc = "Whether.", .dtypes = ALL_DTYPES, .max_rank = 8},
    {.name = NULL},
};
static const char *const sample_choices[] = {"native", "tf32", "bf16", NULL};
static const struct blasd_param sample_params[] = {
    {.name = "transpose", .doc = "Turn it.", .kind = BLASD_PARAM_BOOL, .preset = {.b = true}},
    {.name = "k",
     .doc = "How many.",
     .kind = BLASD_PARAM_INT,
     .preset = {.i = 5},
     .has_range = true,
     .least = 1,
     .most = 1000},
    {.name = "alpha",
     .doc = "Factor.",
     .kind = BLASD_PARAM_FLOAT,
     .preset = {.f = 0.1},
     .has_range = true,
     .exclusive_least = true,
     .least = 0,
     .most = INFINITY},
    {.name = "precision",
     .doc = "How exact.",
     .kind = BLASD_PARAM_CHOICE,
     .preset = {.choice = 0},
     .choices = sample_choices},
    {.name = NULL},
};

static int sample_plan(const struct blasd_job *job, struct blasd_plan *plan,
                       struct blasd_err *err) {
    (void)err;
    plan->outputs[0] = job->inputs[0].tensor;
    return 0;
}

static const struct blasd_op sample_op = {.name = "sample",
                                          .summary = "A sample",
                                          .doc = "For tests.",
                                          .inputs = sample_inputs,
                                          .outputs = sample_outputs,
                                          .params = sample_params,
                                          .plan = sample_plan};
static const struct blasd_port plain_ports[] = {
    {.name = "x",
     .shape = "(n)",
     .doc = "X.",
     .dtypes = BLASD_DTYPES_FLOAT,
     .max_rank = 1,
     .finite = true,
     .values = BLASD_VALUES_POSITIVE},
    {.name = NULL},
};
static const struct blasd_param plain_params[] = {{.name = NULL}};
static const struct blasd_op plain_op = {.name = "plain",
                                         .summary = "No parameters",
                                         .doc = "",
                                         .inputs = plain_ports,
                                         .outputs = plain_ports,
                                         .params = plain_params,
                                         .plan = sample_plan};
const struct blasd_op *const blasd_ops[] = {&sample_op, &plain_op, NULL};

#endif
