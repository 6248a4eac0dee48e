/* Fuzzer of inference requests: the first two bytes say how long the JSON is (0xffff: there is
 * nothing behind it), the rest is the body. */
#include "tests/fuzz/fuzz_intake.h"
#include "tests/unit/oip/oip_support.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct blasd_limits limits;
    struct blasd_oip whole_asked, pieces_asked;
    struct outcome whole, pieces;
    int64_t header;
    if (size < 2) return 0;
    header = data[0] | data[1] << 8;
    if (header == 0xffff) header = -1;
    data += 2;
    size -= 2;
    blasd_limits_init(&limits);
    limits.envelope_bytes = 4096;
    limits.body_bytes = 1 << 20;
    send_inference(&limits, data, size, header, WHOLE, &whole_asked, &whole);
    send_inference(&limits, data, size, header, size < 256 ? BYTE_BY_BYTE : size | 2, &pieces_asked,
                   &pieces);
    require(same_outcome(&whole, &pieces), "pieces make no difference");
    if (whole.rc != 0) {
        check_error(&whole);
    } else {
        require(whole_asked.output_count <= BLASD_MAX_OUTPUTS, "no more than there is room for");
        check_job(&whole);
    }
    blasd_oip_release(&whole_asked);
    blasd_oip_release(&pieces_asked);
    outcome_release(&whole);
    outcome_release(&pieces);
    return 0;
}
