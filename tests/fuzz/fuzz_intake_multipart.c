/* Fuzzer of the way in: bodies of multipart/form-data; boundary=XX. */
#include "tests/fuzz/fuzz_intake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_intake("multipart/form-data; boundary=XX", data, size);
    return 0;
}
