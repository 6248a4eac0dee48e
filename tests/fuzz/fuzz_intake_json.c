/* Fuzzer of the way in: bodies of application/json. */
#include "tests/fuzz/fuzz_intake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_intake("application/json", data, size);
    return 0;
}
