/* What fuzzers of bodies share: a body goes in whole and in pieces, both must come out the same,
 * and an error must be one that a client may see. */
#ifndef BLASD_TESTS_FUZZ_BODY_H
#define BLASD_TESTS_FUZZ_BODY_H

#include "tests/unit/wire/intake_support.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
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

/* check: what is asked of a job that comes out. */
static void fuzz_body(struct blasd_intake_options options, const uint8_t *data, size_t size,
                      void (*check)(const struct outcome *outcome)) {
    struct blasd_limits limits;
    struct outcome whole, pieces;
    uint64_t split = 2 + size;
    for (size_t i = 0; i < size; i++) split = split * 31 + data[i];
    blasd_limits_init(&limits);
    limits.envelope_bytes = 4096;
    limits.body_bytes = 1 << 20;
    limits.multipart_parts = 8;
    limits.graph_steps = 20;
    options.limits = &limits;
    send_body(&options, data, size, WHOLE, &whole);
    send_body(&options, data, size, size < 256 ? BYTE_BY_BYTE : split | 2, &pieces);
    require(same_outcome(&whole, &pieces), "pieces make no difference");
    if (whole.rc == 0)
        check(&whole);
    else
        check_error(&whole);
    outcome_release(&whole);
    outcome_release(&pieces);
}

#endif
