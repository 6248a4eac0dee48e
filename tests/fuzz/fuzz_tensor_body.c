/* Bodies that are tensors alone, as POST /tensors takes them, which may come compressed as other
 * bodies do: the first byte says how (0 as it is, 1 gzip, 2 deflate; as texts do, '0', '1', '2'),
 * the rest is the body. What comes out is the same whole and in pieces; a tensor that was taken
 * lies in the payload, and says rightly where its values are not finite. */
#define INTAKE_REAL_OPS
#include "tests/unit/wire/intake_support.h"

#include "http/coding.h"
#include "wire/tensor_body.h"
#include "wire/tensor_writer.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BODY_MOST (1 << 20)

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

static int take(void *arg, const void *bytes, size_t len, struct blasd_err *err) {
    (void)err;
    return blasd_buf_add(arg, bytes, len) == 0 ? 0 : -1;
}

/* Whole, or three bytes at a time. */
static int unpack(enum http_coding coding, const uint8_t *data, size_t size, bool pieces,
                  struct blasd_buf *body, struct blasd_err *err) {
    struct http_unpacker *stream = http_unpacker_new(coding);
    int rc = 0;
    require(stream != NULL, "an unpacker");
    for (size_t at = 0; rc == 0 && at < size;) {
        size_t len = pieces && size - at > 3 ? 3 : size - at, used = 0;
        rc = http_unpack(stream, data + at, len, &used, BODY_MOST, take, body, err);
        require(used <= len, "no more than there was");
        require(rc != 0 || used > 0, "each call gets on");
        at += used;
    }
    if (rc == 0) rc = http_unpack_end(stream, err);
    http_unpacker_free(stream);
    require(body->len <= BODY_MOST, "no more than may come out");
    return rc;
}

static void check_tensors(const struct blasd_named_inputs *inputs, const struct memory *memory) {
    require(inputs->count >= 0 && inputs->count <= BLASD_GRAPH_INPUTS_MAX, "as many as may be");
    for (int i = 0; i < inputs->count; i++) {
        const struct blasd_input *input = &inputs->items[i].input;
        const unsigned char *bytes = memory->bytes + input->source.offset;
        int64_t at;
        struct blasd_err err;
        require(inputs->items[i].remote == NULL, "nothing is fetched");
        require(input->source.kind == BLASD_SOURCE_PAYLOAD, "a tensor with its data");
        require(blasd_tensor_check(&input->tensor, "x", &err) == 0, "a shape that is right");
        require(blasd_tensor_bytes(&input->tensor) == input->source.bytes, "bytes of the shape");
        require(input->source.offset <= memory->len &&
                    input->source.bytes <= memory->len - input->source.offset,
                "bytes inside the payload");
        at = blasd_tensor_first_nonfinite(input->tensor.dtype, bytes,
                                          blasd_tensor_elements(&input->tensor));
        if (input->tensor.dtype != BLASD_bool)
            require(at == input->first_nonfinite, "the first element that is not finite");
    }
}

/* Reads the body; the outcome has no job. */
static void read_tensors(const struct blasd_buf *body, uint64_t split, struct outcome *outcome) {
    struct blasd_limits limits;
    struct blasd_intake_options options = {.limits = &limits,
                                           .reader = blasd_tensor_body_reader_new};
    struct blasd_intake *intake;
    blasd_limits_init(&limits);
    limits.envelope_bytes = 4096;
    memset(outcome, 0, sizeof *outcome);
    outcome->memory.sink = (struct blasd_sink){.reserve = memory_reserve, .write = memory_write};
    outcome->memory.most = 64 << 20;
    outcome->rc = blasd_intake_new(&options, &outcome->memory.sink, &intake, &outcome->err);
    if (outcome->rc != 0) return;
    outcome->rc = feed_pieces(intake, body->data, body->len, split, &outcome->err);
    if (outcome->rc == 0) outcome->rc = blasd_intake_end(intake, &outcome->err);
    if (outcome->rc == 0) check_tensors(blasd_intake_inputs(intake), &outcome->memory);
    blasd_intake_free(intake);
}

static void check_body(const struct blasd_buf *body) {
    struct outcome whole, pieces;
    read_tensors(body, WHOLE, &whole);
    read_tensors(body, body->len < 256 ? BYTE_BY_BYTE : body->len | 2, &pieces);
    require(same_outcome(&whole, &pieces), "pieces make no difference");
    if (whole.rc != 0) {
        require(whole.rc == -(int)whole.err.code && whole.err.code < BLASD_E_COUNT, "a code");
        require(whole.err.code != BLASD_E_internal_error, "the user's mistake is not ours");
        for (const char *p = whole.err.detail; *p != '\0'; p++)
            require(*p >= ' ' && *p <= '~', "a detail that can be printed");
    }
    outcome_release(&whole);
    outcome_release(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct blasd_buf body, again;
    struct blasd_err err = {0}, other = {0};
    int rc, rc_again;
    if (size == 0) return 0;
    blasd_buf_init(&body, 2 * BODY_MOST);
    blasd_buf_init(&again, 2 * BODY_MOST);
    if ((data[0] & 3) == 0 || (data[0] & 3) == 3) {
        require(blasd_buf_add(&body, data + 1, size - 1) == 0 || size > BODY_MOST, "room");
        check_body(&body);
    } else {
        enum http_coding coding = (data[0] & 3) == 1 ? HTTP_CODING_GZIP : HTTP_CODING_DEFLATE;
        rc = unpack(coding, data + 1, size - 1, false, &body, &err);
        rc_again = unpack(coding, data + 1, size - 1, true, &again, &other);
        /* of a body that is both too long and damaged either may be said */
        require((rc == 0) == (rc_again == 0), "in pieces it is taken as it is whole");
        if (rc == 0) {
            require(body.len == again.len &&
                        (body.len == 0 || memcmp(body.data, again.data, body.len) == 0),
                    "unpacked in pieces it is the same");
            check_body(&body);
        }
    }
    blasd_buf_release(&body);
    blasd_buf_release(&again);
    return 0;
}
