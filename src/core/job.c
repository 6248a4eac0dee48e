/* A job's defaults, the key of its batch, and the checks every operation shares. */
#include "core/job.h"

#include "base/err.h"
#include "base/text.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const blasd_priority_names[] = {"high", "normal", "low"};
const char *const blasd_device_class_names[] = {"any", "cpu", "cuda"};

/* Of zeroed memory. */
static void nothing_seen(struct blasd_input *input) {
    input->first_nonfinite = input->first_negative = input->first_not_positive = -1;
}

void blasd_input_init(struct blasd_input *input) {
    memset(input, 0, sizeof *input);
    nothing_seen(input);
}

size_t blasd_job_size(const struct blasd_op *op) {
    size_t n = 0;
    while (op->inputs[n].name != NULL) n++;
    return offsetof(struct blasd_job, inputs) + n * sizeof(struct blasd_input);
}

void blasd_job_init(struct blasd_job *job, const struct blasd_op *op) {
    memset(job, 0, blasd_job_size(op));
    job->op = op;
    job->priority = BLASD_PRIORITY_NORMAL;
    for (int i = 0; op->inputs[i].name != NULL; i++) nothing_seen(&job->inputs[i]);
    for (int i = 0; op->params[i].name != NULL; i++) job->params[i] = op->params[i].preset;
}

void blasd_job_share(const struct blasd_job *job, struct blasd_job *to) {
    memcpy(to, job, blasd_job_size(job->op));
}

void blasd_job_release(struct blasd_job *job) {
    if (job->op == NULL) return;
    for (int i = 0; job->op->inputs[i].name != NULL; i++) free(job->inputs[i].reference);
    free(job->extras);
    job->op = NULL;
}

struct blasd_extras *blasd_job_extras(struct blasd_job *job) {
    if (job->extras == NULL) job->extras = calloc(1, sizeof *job->extras);
    return job->extras;
}

const struct blasd_keeping *blasd_job_keeping(const struct blasd_job *job) {
    static const struct blasd_keeping none;
    return job->extras == NULL ? &none : &job->extras->keeping;
}

struct blasd_reference *blasd_input_refer(struct blasd_input *input) {
    if (input->reference == NULL) input->reference = calloc(1, sizeof *input->reference);
    return input->reference;
}

int blasd_input_copy(struct blasd_input *to, const struct blasd_input *from,
                     struct blasd_err *err) {
    free(to->reference);
    *to = *from;
    if (from->reference == NULL) return 0;
    to->reference = NULL;
    if (blasd_input_refer(to) == NULL) return blasd_no_memory(err);
    *to->reference = *from->reference;
    return 0;
}

void blasd_job_give(struct blasd_job *job, int i, enum blasd_dtype dtype, int rank,
                    const int64_t *shape) {
    struct blasd_input *input = &job->inputs[i];
    input->tensor = blasd_tensor_make(dtype, rank, shape);
    input->source = (struct blasd_source){.kind = BLASD_SOURCE_PAYLOAD,
                                          .offset = job->payload_bytes,
                                          .bytes = blasd_tensor_bytes(&input->tensor)};
    job->payload_bytes += (input->source.bytes + 63) / 64 * 64;
}

void blasd_key_add(struct blasd_key *key, const void *bytes, size_t len) {
    if (key->len > BLASD_KEY_MAX || len > BLASD_KEY_MAX - key->len) {
        key->len = BLASD_KEY_MAX + 1;
        return;
    }
    memcpy(key->bytes + key->len, bytes, len);
    key->len += (unsigned)len;
}

void blasd_key_add_int(struct blasd_key *key, int64_t value) {
    blasd_key_add(key, &value, sizeof value);
}

void blasd_key_add_tensor(struct blasd_key *key, const struct blasd_tensor *tensor) {
    unsigned char head[3] = {(unsigned char)tensor->dtype, (unsigned char)tensor->order,
                             (unsigned char)tensor->rank};
    blasd_key_add(key, head, sizeof head);
    if (tensor->rank > 0)
        blasd_key_add(key, tensor->shape, (size_t)tensor->rank * sizeof *tensor->shape);
}

int64_t blasd_value_bits(const struct blasd_param *param, const struct blasd_value *value) {
    int64_t bits;
    switch (param->kind) {
    case BLASD_PARAM_BOOL: return value->b;
    case BLASD_PARAM_INT: return value->i;
    case BLASD_PARAM_FLOAT: memcpy(&bits, &value->f, sizeof bits); return bits;
    default: return value->choice;
    }
}

/* All that the descriptor says a job may differ in: nothing can be forgotten here. Parameters with
 * their default take no room, so that jobs of many dimensions still have one. */
static void make_key(const struct blasd_job *job, struct blasd_key *key) {
    const unsigned char none = 0xff; /* no dtype */
    key->len = 0;
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        if (blasd_job_has(job, i))
            blasd_key_add_tensor(key, &job->inputs[i].tensor);
        else
            blasd_key_add(key, &none, 1);
    }
    for (int i = 0; job->op->params[i].name != NULL; i++) {
        const struct blasd_param *param = &job->op->params[i];
        int64_t value = blasd_value_bits(param, &job->params[i]);
        unsigned char at = (unsigned char)i;
        if (value == blasd_value_bits(param, &param->preset)) continue;
        blasd_key_add(key, &at, 1);
        blasd_key_add_int(key, value);
    }
}

bool blasd_key_equal(const struct blasd_key *a, const struct blasd_key *b) {
    return a->len == b->len && a->len <= BLASD_KEY_MAX && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* "(3, 4)" for element 11 of a (4, 5) tensor, in the order sent. */
static void index_text(const struct blasd_tensor *tensor, int64_t at, char *text, size_t size) {
    struct blasd_tensor index = {.rank = tensor->rank};
    for (int n = 0; n < tensor->rank; n++) {
        int i = tensor->order == BLASD_COLUMN_MAJOR ? n : tensor->rank - 1 - n;
        index.shape[i] = at % tensor->shape[i];
        at /= tensor->shape[i];
    }
    blasd_tensor_shape_text(&index, text, size);
}

static void dtypes_text(unsigned mask, char *text, size_t size) {
    size_t len = 0;
    text[0] = '\0';
    for (int dtype = 0; dtype < BLASD_DTYPE_COUNT && len < size; dtype++)
        if ((mask & BLASD_DTYPE_BIT(dtype)) != 0)
            len += (size_t)snprintf(text + len, size - len, "%s%s", len == 0 ? "" : ", ",
                                    blasd_dtype_name((enum blasd_dtype)dtype));
}

/* How errors call the input. */
static const char *field_of(char field[64], const struct blasd_port *port) {
    blasd_input_field(field, port->name);
    return field;
}

void blasd_input_look_at_splits(struct blasd_input *input, int64_t from, const void *data,
                                int64_t n) {
    int64_t first = 0, at;
    if (n == 0 || input->tensor.dtype != BLASD_int64) return;
    if (from == 0) {
        input->splits = true;
        input->last = 0;
        memcpy(&first, data, sizeof first);
        input->first_descent = first == 0 ? -1 : 0;
    }
    at = blasd_tensor_first_descent(data, n, &input->last);
    if (at >= 0 && input->first_descent < 0) input->first_descent = from + at;
}

/* Values outside the range that the port states. */
static int check_values(const struct blasd_port *port, const struct blasd_input *input,
                        struct blasd_err *err) {
    bool positive = (port->values & BLASD_VALUES_POSITIVE) != 0;
    int64_t at = positive                                          ? input->first_not_positive
                 : (port->values & BLASD_VALUES_NOT_NEGATIVE) != 0 ? input->first_negative
                                                                   : -1;
    char field[64], text[160];
    if (at >= 0) {
        index_text(&input->tensor, at, text, sizeof text);
        return blasd_fail(err, BLASD_E_out_of_range, field_of(field, port),
                          "the element at %s is %s: all elements of %s must be %s", text,
                          !positive                     ? "negative"
                          : at == input->first_negative ? "negative"
                                                        : "0",
                          port->name, positive ? "greater than 0" : "0 or greater");
    }
    if ((port->values & BLASD_VALUES_SPLITS) != 0 && input->splits && input->first_descent >= 0) {
        index_text(&input->tensor, input->first_descent, text, sizeof text);
        return blasd_fail(err, BLASD_E_out_of_range, field_of(field, port),
                          "the element at %s is %s", text,
                          input->first_descent == 0 ? "not 0" : "less than the one before it");
    }
    if ((port->values & BLASD_VALUES_NOT_ALL_ZERO) != 0 && input->all_zero)
        return blasd_fail(err, BLASD_E_out_of_range, field_of(field, port),
                          "all elements of %s are 0: at least one must be positive", port->name);
    return 0;
}

bool blasd_job_refers(const struct blasd_job *job) {
    for (int i = 0; job->op->inputs[i].name != NULL; i++)
        if (blasd_source_refers(&job->inputs[i].source)) return true;
    return false;
}

void blasd_input_blob(const struct blasd_input *input, char name[BLASD_REFERRED_NAME]) {
    snprintf(name, BLASD_REFERRED_NAME, "%s.%s", input->reference->id,
             input->reference->id[0] == BLASD_ID_TENSOR ? "in" : "out");
}

/* Whether NaN and infinities in input number `i` are refused. */
static bool must_be_finite(const struct blasd_job *job, int i) {
    return job->op->inputs[i].finite &&
           (job->op->any_numbers == NULL || (job->op->any_numbers(job) >> i & 1) == 0);
}

int blasd_input_look(const struct blasd_job *job, int i, const struct blasd_tensor *tensor,
                     struct blasd_err *err) {
    const struct blasd_port *port = &job->op->inputs[i];
    int64_t n = blasd_tensor_elements(tensor);
    struct blasd_input seen = {.tensor = *tensor};
    char field[64], text[160];
    seen.first_nonfinite = seen.first_negative = seen.first_not_positive = -1;
    if (must_be_finite(job, i))
        seen.first_nonfinite = blasd_tensor_first_nonfinite(tensor->dtype, tensor->data, n);
    if (seen.first_nonfinite >= 0) {
        index_text(tensor, seen.first_nonfinite, text, sizeof text);
        return blasd_fail(err, BLASD_E_not_finite, field_of(field, port),
                          "the element at %s is NaN or infinite", text);
    }
    if (port->values == 0) return 0;
    seen.first_negative = blasd_tensor_first_negative(tensor->dtype, tensor->data, n, false);
    seen.first_not_positive = blasd_tensor_first_negative(tensor->dtype, tensor->data, n, true);
    if ((port->values & BLASD_VALUES_SPLITS) != 0)
        blasd_input_look_at_splits(&seen, 0, tensor->data, n);
    seen.all_zero = n > 0 && blasd_tensor_all_zero(tensor->dtype, tensor->data, n);
    return check_values(port, &seen, err);
}

static int check_input(const struct blasd_job *job, int i, struct blasd_err *err) {
    const struct blasd_port *port = &job->op->inputs[i];
    const struct blasd_input *input = &job->inputs[i];
    const struct blasd_tensor *tensor = &input->tensor;
    char field[64], text[160];
    if (input->source.kind == BLASD_SOURCE_NONE) {
        if (port->optional) return 0;
        return blasd_fail(err, BLASD_E_missing_input, field_of(field, port),
                          "the input '%s' of shape %s is missing", port->name, port->shape);
    }
    if (blasd_tensor_check(tensor, "", NULL) != 0)
        return blasd_tensor_check(tensor, field_of(field, port), err);
    if ((port->dtypes & BLASD_DTYPE_BIT(tensor->dtype)) == 0) {
        dtypes_text(port->dtypes, text, sizeof text);
        return blasd_fail(err, BLASD_E_unsupported_dtype, field_of(field, port),
                          "%s is not among %s", blasd_dtype_name(tensor->dtype), text);
    }
    if (tensor->rank < port->min_rank || tensor->rank > port->max_rank) {
        blasd_tensor_shape_text(tensor, text, sizeof text);
        return blasd_fail(err, BLASD_E_invalid_shape, field_of(field, port),
                          "its shape is %s, of %d dimensions; %s has %d to %d", text, tensor->rank,
                          port->shape, port->min_rank, port->max_rank);
    }
    if (input->first_nonfinite >= 0 && must_be_finite(job, i)) {
        index_text(tensor, input->first_nonfinite, text, sizeof text);
        return blasd_fail(err, BLASD_E_not_finite, field_of(field, port),
                          "the element at %s is NaN or infinite", text);
    }
    return 0;
}

static int check_param(const struct blasd_param *param, const struct blasd_value *value,
                       struct blasd_err *err) {
    double number = param->kind == BLASD_PARAM_INT ? (double)value->i : value->f;
    char field[64];
    if (!value->given || blasd_param_allows(param, number)) return 0;
    if (param->kind != BLASD_PARAM_INT && param->kind != BLASD_PARAM_FLOAT) return 0;
    snprintf(field, sizeof field, "params.%s", param->name);
    return blasd_fail(err, BLASD_E_invalid_parameter, field, "%g is outside the range %c%g, %g]",
                      number, param->exclusive_least ? '(' : '[', param->least, param->most);
}

/* Inputs that are not as the kernel reads them are converted first; a part that does not lie in one
 * piece is copied. */
static uint64_t converted_bytes(const struct blasd_job *job, const struct blasd_plan *plan) {
    uint64_t bytes = 0;
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        const struct blasd_tensor *tensor = &job->inputs[i].tensor;
        if (!blasd_job_has(job, i)) continue;
        if (blasd_input_sliced(&job->inputs[i]) > 0)
            bytes += blasd_align_up(blasd_tensor_bytes(tensor));
        if (tensor->dtype != plan->input_dtype[i] ||
            (tensor->order != BLASD_ROW_MAJOR && !plan->keep_order[i]))
            bytes += blasd_align_up((uint64_t)blasd_tensor_elements(tensor) *
                                    blasd_dtype_size(plan->input_dtype[i]));
    }
    return bytes;
}

/* Outputs come from the operation's plan, whose lengths are products of the user's: check again.
 * A problem costs something, and so does an element, however little is computed with them. */
static int add_up(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    double least = plan->items;
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        if (!blasd_job_has(job, i)) continue;
        plan->input_bytes += blasd_tensor_bytes(&job->inputs[i].tensor);
        if (job->inputs[i].source.kind == BLASD_SOURCE_RULE)
            plan->made_bytes += blasd_tensor_bytes(&job->inputs[i].tensor);
        least += (double)blasd_tensor_elements(&job->inputs[i].tensor);
    }
    for (int i = 0; job->op->outputs[i].name != NULL; i++) {
        if (plan->outputs[i].rank < 0) continue;
        if (blasd_tensor_check(&plan->outputs[i], "inputs", err) != 0)
            return blasd_fail(err, BLASD_E_job_too_large, "inputs",
                              "the output '%s' would have more elements than can be addressed",
                              job->op->outputs[i].name);
        plan->output_bytes += blasd_tensor_bytes(&plan->outputs[i]);
        least += (double)blasd_tensor_elements(&plan->outputs[i]);
    }
    if (!(plan->flops >= least) && !job->op->composed) plan->flops = least;
    plan->workspace_bytes += converted_bytes(job, plan);
    return 0;
}

int blasd_job_plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    int code;
    memset(plan, 0, offsetof(struct blasd_plan, outputs));
    for (int i = 0; job->op->outputs[i].name != NULL; i++)
        plan->outputs[i] = (struct blasd_tensor){.rank = -1};
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        code = check_input(job, i, err);
        if (code != 0) return code;
    }
    for (int i = 0; job->op->params[i].name != NULL; i++) {
        code = check_param(&job->op->params[i], &job->params[i], err);
        if (code != 0) return code;
    }
    plan->slower = job->op->slower;
    code = job->op->plan(job, plan, err);
    make_key(job, &plan->key);
    /* last: an input that the job should not have at all has no wrong values */
    for (int i = 0; code == 0 && job->op->inputs[i].name != NULL; i++)
        if (job->op->inputs[i].values != 0 && blasd_job_has(job, i))
            code = check_values(&job->op->inputs[i], &job->inputs[i], err);
    return code != 0 ? code : add_up(job, plan, err);
}
