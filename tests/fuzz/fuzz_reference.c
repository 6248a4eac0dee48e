/* Inputs that refer to something: "JSON\0FORM\0FILE". The JSON is read as an input; what it refers
 * to is a tensor of that form, of which the part that is meant lies inside it, and is gathered; or,
 * at a URL, the file. */
#include "tests/unit/wire/intake_support.h"

#include "core/reference.h"
#include "wire/remote_in.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MOST (1 << 16)

static void require(bool holds) {
    if (!holds) abort();
}

/* Each element of the part is one of the whole's, found by its index. */
static void check_part(const struct blasd_input *sent, const struct blasd_tensor *whole) {
    struct blasd_reference reference = *sent->reference;
    struct blasd_tensor part;
    struct blasd_err err = {0};
    uint64_t at, bytes = blasd_tensor_bytes(whole), extent, size;
    unsigned char *from, *to;
    if (blasd_reference_resolve(&reference, whole, 64, &part, &at, "x", &err) != 0) {
        require(err.code == BLASD_E_invalid_reference);
        return;
    }
    require(blasd_tensor_check(&part, "x", NULL) == 0 && part.rank == whole->rank);
    extent = blasd_reference_extent(&reference, &part);
    size = blasd_tensor_bytes(&part);
    require(at >= 64 && extent >= size);
    if (size == 0) return;
    require(at - 64 <= bytes && extent <= bytes - (at - 64));
    if (bytes > BYTES_MOST || reference.sliced == 0) return;
    from = malloc(bytes);
    to = malloc(size);
    if (from == NULL || to == NULL) abort();
    for (uint64_t i = 0; i < bytes; i++) from[i] = (unsigned char)(i * 131 >> 3);
    part.data = to;
    blasd_reference_gather(&reference, from + (at - 64), &part);
    require(memcmp(to, from + (at - 64), blasd_dtype_size(part.dtype)) == 0);
    require(memcmp(to + size - blasd_dtype_size(part.dtype),
                   from + (at - 64) + extent - blasd_dtype_size(part.dtype),
                   blasd_dtype_size(part.dtype)) == 0);
    free(from);
    free(to);
}

/* As whoever fetches does, in pieces that end where they like. */
static void fetch(struct blasd_remote_in *in, const uint8_t *file, size_t size) {
    struct blasd_err err = {0};
    uint64_t step = 1;
    int rc = blasd_remote_in_size(in, size, &err);
    for (size_t at = 0; rc == 0 && at < size; step = step * 3 % 1021 + 1) {
        size_t take = size - at < step ? size - at : (size_t)step;
        char *piece = malloc(take);
        if (piece == NULL) abort();
        memcpy(piece, file + at, take);
        rc = blasd_remote_in_feed(in, piece, take, &err);
        free(piece);
        at += take;
    }
    if (rc == 0) rc = blasd_remote_in_finish(in, &err);
    if (rc != 0) require(rc == -(int)err.code && err.code != BLASD_E_internal_error);
}

static void try_inputs(const struct blasd_body *body, const char *form, const uint8_t *file,
                       size_t size) {
    struct blasd_remote_in *in = NULL;
    struct blasd_tensor whole;
    struct blasd_err err = {0};
    bool known = blasd_form_read(form, &whole);
    char again[BLASD_FORM_MAX];
    if (known) require(strlen(blasd_form_write(&whole, again)) < BLASD_FORM_MAX);
    for (int i = 0; i < body->inputs->count; i++) {
        const struct blasd_input *input = &body->inputs->items[i].input;
        if (known && blasd_source_refers(&input->source)) check_part(input, &whole);
    }
    require(blasd_remote_in_new(body, &in, &err) == 0);
    while (in != NULL && blasd_remote_in_next(in) != NULL) fetch(in, file, size);
    blasd_remote_in_free(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct blasd_limits limits;
    struct blasd_intake_options options = {.content_type = "application/json", .limits = &limits};
    struct memory memory = {.sink = {.reserve = memory_reserve, .write = memory_write},
                            .most = 1 << 20};
    struct blasd_intake *intake;
    struct blasd_err err = {0};
    char *text = malloc(size + 2), *form;
    size_t json, used;
    if (text == NULL) return 0;
    if (size > 0) memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    json = strlen(text);
    form = text + json + 1;
    used = json + 1 + (json < size ? strlen(form) + 1 : 0);
    blasd_limits_init(&limits);
    limits.envelope_bytes = 4096;
    limits.body_bytes = 1 << 20;
    if (used > size) used = size;
    if (blasd_intake_new(&options, &memory.sink, &intake, &err) == 0) {
        if (blasd_intake_feed(intake, text, json, &err) == 0 && blasd_intake_end(intake, &err) == 0)
            try_inputs(blasd_intake_body(intake), form, data + used, size - used);
        blasd_intake_free(intake);
    }
    free(memory.bytes);
    free(text);
    return 0;
}
