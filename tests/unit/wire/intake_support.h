/* What tests and fuzzers of the way in share: a table of operations in the place of the real one
 * (none with INTAKE_REAL_OPS), a sink in memory, and a body sent whole or in pieces. */
#ifndef BLASD_TESTS_INTAKE_SUPPORT_H
#define BLASD_TESTS_INTAKE_SUPPORT_H

#include "wire/intake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL_DTYPES (BLASD_DTYPE_BIT(BLASD_DTYPE_COUNT) - 1)

#ifndef INTAKE_REAL_OPS
static const struct blasd_port mix_inputs[] = {
    {.name = "a", .shape = "(...)", .doc = "", .dtypes = ALL_DTYPES, .max_rank = 8},
    {.name = "b", .shape = "(...)", .doc = "", .dtypes = ALL_DTYPES, .max_rank = 8},
    {.name = "V", .shape = "(n)", .doc = "", .dtypes = ALL_DTYPES, .max_rank = 8, .optional = true},
    {.name = "w",
     .shape = "(n)",
     .doc = "",
     .dtypes = ALL_DTYPES,
     .max_rank = 8,
     .optional = true,
     .finite = true,
     .values = BLASD_VALUES_NOT_NEGATIVE | BLASD_VALUES_NOT_ALL_ZERO},
    {.name = "s",
     .shape = "(n)",
     .doc = "",
     .dtypes = ALL_DTYPES,
     .max_rank = 8,
     .optional = true,
     .finite = true,
     .values = BLASD_VALUES_POSITIVE},
    {.name = NULL},
};
enum { I_A, I_B, I_V, I_WEIGHT, I_SCALE };
static const char *const mix_modes[] = {"native", "tf32", "bf16", NULL};
static const struct blasd_param mix_params[] = {
    {.name = "transpose_a", .doc = "", .kind = BLASD_PARAM_BOOL, .preset = {.b = false}},
    {.name = "k",
     .doc = "",
     .kind = BLASD_PARAM_INT,
     .preset = {.i = 5},
     .has_range = true,
     .least = 1,
     .most = 1000},
    {.name = "alpha",
     .doc = "",
     .kind = BLASD_PARAM_FLOAT,
     .preset = {.f = 0.25},
     .has_range = true,
     .exclusive_least = true,
     .least = 0,
     .most = 10},
    {.name = "p",
     .doc = "",
     .kind = BLASD_PARAM_FLOAT,
     .preset = {.f = 2},
     .has_range = true,
     .least = 1,
     .most = INFINITY},
    {.name = "free", .doc = "", .kind = BLASD_PARAM_FLOAT, .preset = {.f = 0}},
    {.name = "mode",
     .doc = "",
     .kind = BLASD_PARAM_CHOICE,
     .preset = {.choice = 0},
     .choices = mix_modes},
    {.name = NULL},
};
enum { P_TRANSPOSE_A, P_K, P_ALPHA, P_P, P_FREE, P_MODE };

static int plan_nothing(const struct blasd_job *job, struct blasd_plan *plan,
                        struct blasd_err *err) {
    (void)job;
    (void)plan;
    (void)err;
    return 0;
}

static const struct blasd_op mix_op = {.name = "mix",
                                       .summary = "",
                                       .doc = "",
                                       .inputs = mix_inputs,
                                       .outputs = &mix_inputs[5],
                                       .params = mix_params,
                                       .plan = plan_nothing};
static const struct blasd_op plain_op = {.name = "plain",
                                         .summary = "",
                                         .doc = "",
                                         .inputs = mix_inputs,
                                         .outputs = &mix_inputs[5],
                                         .params = &mix_params[6],
                                         .plan = plan_nothing};
const struct blasd_op *const blasd_ops[] = {&mix_op, &plain_op, NULL};
#endif

/* --- a sink in memory --- */

struct memory {
    struct blasd_sink sink;
    unsigned char *bytes; /* owned */
    uint64_t len, most;
    int reserves;
    uint64_t written;
};

static int memory_reserve(struct blasd_sink *sink, uint64_t bytes, uint64_t *offset,
                          struct blasd_err *err) {
    struct memory *memory = (struct memory *)sink;
    uint64_t at = (memory->len + 63) / 64 * 64;
    unsigned char *grown;
    if (bytes > memory->most || at > memory->most - bytes)
        return blasd_fail(err, BLASD_E_no_space, "", "the sink has no room for it");
    grown = realloc(memory->bytes, at + bytes + 1);
    if (grown == NULL) return blasd_fail(err, BLASD_E_no_space, "", "out of memory");
    memset(grown + memory->len, 0xa5, at + bytes - memory->len);
    memory->bytes = grown;
    memory->len = at + bytes;
    memory->reserves++;
    *offset = at;
    return 0;
}

static int memory_write(struct blasd_sink *sink, uint64_t offset, const void *bytes, size_t len,
                        struct blasd_err *err) {
    struct memory *memory = (struct memory *)sink;
    (void)err;
    if (offset > memory->len || len > memory->len - offset) abort(); /* outside what was reserved */
    memcpy(memory->bytes + offset, bytes, len);
    memory->written += len;
    return 0;
}

/* --- a body, sent in pieces --- */

enum { WHOLE = 0, BYTE_BY_BYTE = 1 }; /* any other number seeds random pieces */

struct outcome {
    int rc;
    struct blasd_err err;
    struct blasd_job job;
    struct memory memory;
};

static inline void outcome_release(struct outcome *outcome) {
    free(outcome->memory.bytes);
    outcome->memory.bytes = NULL;
    blasd_job_release(&outcome->job);
}

static uint64_t piece_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline int feed_pieces(struct blasd_intake *intake, const void *body, size_t len,
                              uint64_t split, struct blasd_err *err) {
    uint64_t state = split * UINT64_C(2654435769) + 1;
    const char *p = body;
    while (len > 0) {
        size_t take = split == WHOLE          ? len
                      : split == BYTE_BY_BYTE ? 1
                                              : 1 + (size_t)(piece_random(&state) % 40);
        /* a copy of its own, so that a look beyond the piece is seen by the sanitizer */
        char *piece;
        int rc;
        if (take > len) take = len;
        piece = malloc(take);
        if (piece == NULL) abort();
        memcpy(piece, p, take);
        rc = blasd_intake_feed(intake, piece, take, err);
        free(piece);
        if (rc != 0) return rc;
        p += take;
        len -= take;
    }
    return 0;
}

static bool memory_in_place; /* the sink says that the body is used where it lies */

/* Sends a body and says how it went; release the outcome. */
static inline void send_body(const struct blasd_intake_options *options, const void *body,
                             size_t len, uint64_t split, struct outcome *outcome) {
    struct blasd_intake *intake;
    memset(outcome, 0, sizeof *outcome);
    outcome->memory.sink = (struct blasd_sink){
        .in_place = memory_in_place, .reserve = memory_reserve, .write = memory_write};
    outcome->memory.most = 64 << 20;
    outcome->rc = blasd_intake_new(options, &outcome->memory.sink, &intake, &outcome->err);
    if (outcome->rc != 0) return;
    outcome->rc = feed_pieces(intake, body, len, split, &outcome->err);
    if (outcome->rc == 0) outcome->rc = blasd_intake_finish(intake, &outcome->job, &outcome->err);
    blasd_intake_free(intake);
}

/* Whether two outcomes of one body in different pieces are the same. */
static inline bool same_outcome(const struct outcome *a, const struct outcome *b) {
    if (a->rc != b->rc) return false;
    if (a->rc != 0)
        return a->err.code == b->err.code && strcmp(a->err.field, b->err.field) == 0 &&
               strcmp(a->err.detail, b->err.detail) == 0;
    if (a->job.op != b->job.op || a->memory.len != b->memory.len) return false;
    if (a->memory.len > 0 && memcmp(a->memory.bytes, b->memory.bytes, a->memory.len) != 0)
        return false;
    for (int i = 0; a->job.op != NULL && a->job.op->inputs[i].name != NULL; i++) {
        const struct blasd_input *x = &a->job.inputs[i], *y = &b->job.inputs[i];
        if (x->source.kind != y->source.kind ||
            memcmp(&x->source, &y->source, sizeof x->source) != 0 ||
            x->first_nonfinite != y->first_nonfinite || x->first_negative != y->first_negative ||
            x->first_not_positive != y->first_not_positive || x->all_zero != y->all_zero ||
            x->tensor.dtype != y->tensor.dtype || x->tensor.order != y->tensor.order ||
            x->tensor.rank != y->tensor.rank ||
            memcmp(x->tensor.shape, y->tensor.shape, sizeof x->tensor.shape) != 0)
            return false;
    }
    return true;
}

#endif
