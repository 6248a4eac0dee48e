/* Fuzzer of the way in: bodies of application/x-safetensors. */
#include "tests/fuzz/fuzz_intake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_body("application/x-safetensors", data, size);
    return 0;
}
