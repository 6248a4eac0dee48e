/* What the fuzzers of the way in share: whatever a body holds, a job that comes out must be one
 * that its payload bears out. */
#ifndef BLASD_TESTS_FUZZ_INTAKE_H
#define BLASD_TESTS_FUZZ_INTAKE_H

#include "tests/fuzz/fuzz_body.h"

/* What the descriptor's range asks to be looked for was found where it is, or not looked for. */
static void check_values(const struct blasd_port *port, const struct blasd_input *input,
                         const unsigned char *bytes) {
    unsigned asked = blasd_ops_values(port->name);
    int64_t n = blasd_tensor_elements(&input->tensor), negative = -1, not_positive = -1;
    bool all_zero = (asked & BLASD_VALUES_NOT_ALL_ZERO) != 0 && n > 0 &&
                    blasd_tensor_all_zero(input->tensor.dtype, bytes, n);
    if ((asked & (BLASD_VALUES_NOT_NEGATIVE | BLASD_VALUES_POSITIVE)) != 0)
        negative = blasd_tensor_first_negative(input->tensor.dtype, bytes, n, false);
    if ((asked & BLASD_VALUES_POSITIVE) != 0)
        not_positive = blasd_tensor_first_negative(input->tensor.dtype, bytes, n, true);
    require(negative == input->first_negative, "the first negative element");
    require(not_positive == input->first_not_positive, "the first element that is not positive");
    require(all_zero == input->all_zero, "whether all are zero");
}

/* What a rule makes can be made, from any element on. */
static void check_rule(const struct blasd_input *input) {
    _Alignas(16) unsigned char room[64 * BLASD_RULE_VALUE_BYTES];
    struct blasd_err err;
    int64_t n = blasd_tensor_elements(&input->tensor), some = n < 64 ? n : 64;
    require(blasd_tensor_check(&input->tensor, "x", &err) == 0, "a shape that is right");
    require(input->source.rule.kind < BLASD_RULE_KINDS, "a rule");
    blasd_rule_make(&input->source.rule, &input->tensor, 0, some, room);
    blasd_rule_make(&input->source.rule, &input->tensor, n - some, some, room);
    if (input->first_nonfinite < 0)
        require(blasd_tensor_first_nonfinite(input->tensor.dtype, room, some) < 0, "finite");
}

static void check_job(const struct outcome *outcome) {
    const struct blasd_job *job = &outcome->job;
    require(job->op != NULL, "a job has an operation");
    require(job->priority < BLASD_PRIORITY_COUNT, "priority");
    require(job->device < BLASD_DEVICE_CLASS_COUNT, "device");
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        const struct blasd_input *input = &job->inputs[i];
        const unsigned char *bytes;
        int64_t at;
        struct blasd_err err;
        if (input->source.kind == BLASD_SOURCE_NONE) continue;
        if (input->source.kind == BLASD_SOURCE_RULE) {
            check_rule(input);
            continue;
        }
        bytes = outcome->memory.bytes + input->source.offset;
        require(blasd_tensor_check(&input->tensor, "x", &err) == 0, "a shape that is right");
        require(blasd_tensor_bytes(&input->tensor) == input->source.bytes, "bytes of the shape");
        require(input->source.offset % 64 == 0, "alignment");
        require(input->source.offset <= outcome->memory.len &&
                    input->source.bytes <= outcome->memory.len - input->source.offset,
                "bytes inside the payload");
        at = blasd_tensor_first_nonfinite(input->tensor.dtype, bytes,
                                          blasd_tensor_elements(&input->tensor));
        require(at == input->first_nonfinite, "the first element that is not finite");
        check_values(&job->op->inputs[i], input, bytes);
        if (input->tensor.dtype == BLASD_bool)
            for (uint64_t k = 0; k < input->source.bytes; k++) require(bytes[k] <= 1, "bools");
    }
}

static inline void fuzz_intake(const char *content_type, const uint8_t *data, size_t size) {
    const struct blasd_intake_options options = {.content_type = content_type};
    fuzz_body(options, data, size, check_job);
}

#endif
