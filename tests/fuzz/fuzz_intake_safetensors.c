/* Fuzzer of the way in: bodies of application/x-safetensors, sent and handed in. */
#include "tests/fuzz/fuzz_intake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_intake("application/x-safetensors", data, size);
    memory_in_place = true; /* there may be gaps */
    fuzz_intake("application/x-safetensors", data, size);
    memory_in_place = false;
    return 0;
}
