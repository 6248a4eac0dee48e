/* What the tests and the fuzzer of inference requests share: a body is sent as a model's, and what
 * it says beside its job is kept. */
#ifndef BLASD_TESTS_OIP_SUPPORT_H
#define BLASD_TESTS_OIP_SUPPORT_H

#include "oip/oip.h"
#include "tests/unit/wire/intake_support.h"

#define OIP_WAIT_MS 300000

/* An inference of the operation `mix`; `header_bytes` negative: the body is JSON alone. */
static inline void send_inference(const struct blasd_limits *limits, const void *body, size_t len,
                                  int64_t header_bytes, uint64_t split, struct blasd_oip *oip,
                                  struct outcome *outcome) {
    struct blasd_intake_options options = {
        .limits = limits, .content_length = len, .reader = blasd_oip_reader_new, .reader_arg = oip};
    memset(oip, 0, sizeof *oip);
    oip->op = blasd_ops[0];
    oip->wait_ms = OIP_WAIT_MS;
    oip->has_header = header_bytes >= 0;
    oip->header_bytes = header_bytes < 0 ? 0 : (uint64_t)header_bytes;
    send_body(&options, body, len, split, outcome);
}

#endif
