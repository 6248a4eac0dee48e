/* For tests that look into records. */
#ifndef TESTS_RECORD_FIXTURE_H
#define TESTS_RECORD_FIXTURE_H

#include "wire/frame.h"

/* Whether stored bytes are a record of that state. */
static inline bool record_is(const void *bytes, size_t len, enum blasd_state state) {
    struct blasd_record record;
    struct blasd_err err;
    size_t payload_at;
    return blasd_record_decode(bytes, len, &record, &payload_at, &err) == 0 &&
           record.state == state;
}

#endif
