/* What the fuzzers of the way in share: a body goes in whole and in pieces, and whatever it holds,
 * both must come out the same, and a job that comes out must be one that its payload bears out. */
#ifndef BLASD_TESTS_FUZZ_INTAKE_H
#define BLASD_TESTS_FUZZ_INTAKE_H

#include "tests/unit/wire/intake_support.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

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
    require(input->source.bytes == 0, "no bytes of a rule");
    require(input->source.rule.kind < BLASD_RULE_KINDS, "a rule");
    blasd_rule_make(&input->source.rule, &input->tensor, 0, some, room);
    blasd_rule_make(&input->source.rule, &input->tensor, n - some, some, room);
    if (blasd_dtype_kind(input->tensor.dtype) == 'f' && input->first_nonfinite < 0)
        require(blasd_tensor_first_nonfinite(input->tensor.dtype, room, some) < 0, "finite");
}

static void check_job(const struct outcome *outcome) {
    const struct blasd_job *job = &outcome->job;
    require(job->op != NULL, "a job has an operation");
    require(job->priority < BLASD_PRIORITY_COUNT, "priority");
    require(job->device < BLASD_DEVICE_CLASS_COUNT, "device");
    for (int i = 0; i < BLASD_MAX_INPUTS; i++) {
        const struct blasd_input *input = &job->inputs[i];
        const unsigned char *bytes;
        int64_t at = -1;
        struct blasd_err err;
        if (input->source.kind == BLASD_SOURCE_NONE) continue;
        if (input->source.kind == BLASD_SOURCE_RULE) {
            check_rule(input);
            continue;
        }
        bytes = outcome->memory.bytes + input->source.offset;
        require(i < blasd_op_input_count(job->op), "an input of the operation");
        require(blasd_tensor_check(&input->tensor, "x", &err) == 0, "a shape that is right");
        require(blasd_tensor_bytes(&input->tensor) == input->source.bytes, "bytes of the shape");
        require(input->source.offset % 64 == 0, "alignment");
        require(input->source.offset <= outcome->memory.len &&
                    input->source.bytes <= outcome->memory.len - input->source.offset,
                "bytes inside the payload");
        if (blasd_dtype_kind(input->tensor.dtype) == 'f')
            at = blasd_tensor_first_nonfinite(input->tensor.dtype, bytes,
                                              blasd_tensor_elements(&input->tensor));
        require(at == input->first_nonfinite, "the first element that is not finite");
        check_values(&job->op->inputs[i], input, bytes);
        if (input->tensor.dtype == BLASD_bool)
            for (uint64_t k = 0; k < input->source.bytes; k++) require(bytes[k] <= 1, "bools");
    }
}

static void check_error(const struct outcome *outcome) {
    const struct blasd_err *err = &outcome->err;
    require(outcome->rc == -(int)err->code, "the code that is returned is the error's");
    require(err->code > BLASD_OK && err->code < BLASD_E_COUNT, "a code of the table");
    require(err->code != BLASD_E_internal_error, "the user's mistake is not ours");
    require(err->detail[0] != '\0', "a detail");
    for (const char *p = err->detail; *p != '\0'; p++)
        require(*p >= ' ' && *p <= '~', "a detail that can be printed");
    for (const char *p = err->field; *p != '\0'; p++)
        require(*p >= ' ' && *p <= '~', "a field that can be printed");
}

static inline void fuzz_body(const char *content_type, const uint8_t *data, size_t size) {
    struct blasd_limits limits;
    struct blasd_intake_options options = {.content_type = content_type, .limits = &limits};
    struct outcome whole, pieces;
    uint64_t split = 2 + size;
    for (size_t i = 0; i < size; i++) split = split * 31 + data[i];
    blasd_limits_init(&limits);
    limits.envelope_bytes = 4096;
    limits.body_bytes = 1 << 20;
    limits.multipart_parts = 8;
    send_body(&options, data, size, WHOLE, &whole);
    send_body(&options, data, size, size < 256 ? BYTE_BY_BYTE : split | 2, &pieces);
    require(same_outcome(&whole, &pieces), "pieces make no difference");
    if (whole.rc == 0)
        check_job(&whole);
    else
        check_error(&whole);
    outcome_release(&whole);
    outcome_release(&pieces);
}

#endif
