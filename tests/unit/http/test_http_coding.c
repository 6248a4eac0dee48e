/* Compressed bodies: there and back in pieces of any size, and what is not so compressed. */
#include "http/coding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 300000

static char text[BYTES];

/* What was unpacked. */
struct got {
    char bytes[BYTES + 1];
    size_t len;
};
static struct got got;

static int take(void *arg, const void *bytes, size_t len, struct blasd_err *err) {
    struct got *to = arg;
    if (len > sizeof to->bytes - to->len)
        return blasd_fail(err, BLASD_E_internal_error, "", "more than there was");
    memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
    return 0;
}

/* Unpacks in pieces of `piece` bytes; 0, or the code of the first error. */
static int unpack(enum http_coding coding, const char *bytes, size_t len, size_t piece,
                  uint64_t most) {
    struct http_stream *stream = http_unpacker_new(coding);
    struct blasd_err err = {0};
    int rc = 0;
    assert_non_null(stream);
    got.len = 0;
    for (size_t at = 0, used = 0; rc == 0 && at < len; at += used)
        rc = http_unpack(stream, bytes + at, len - at < piece ? len - at : piece, &used, most, take,
                         &got, &err);
    if (rc == 0) rc = http_unpack_end(stream, &err);
    http_stream_free(stream);
    return -rc;
}

static int setup(void **state) {
    (void)state;
    for (unsigned i = 0; i < BYTES; i++) text[i] = "0123456789,.-[]"[(i * i / 7 + i) % 15];
    return 0;
}

static int count(void *arg, const void *bytes, size_t len, struct blasd_err *err) {
    (void)bytes, (void)err;
    *(size_t *)arg += len;
    return 0;
}

/* However much there is in a piece, one call unpacks a little of it. */
static void test_turns(void **state) {
    struct http_stream *stream = http_unpacker_new(HTTP_CODING_GZIP);
    const size_t bytes = (size_t)64 << 20;
    struct blasd_err err = {0};
    struct blasd_buf body;
    size_t at = 0, all = 0;
    (void)state;
    blasd_buf_init(&body, bytes);
    assert_int_equal(blasd_buf_reserve(&body, bytes), 0);
    memset(body.data, '7', bytes);
    body.len = bytes;
    assert_true(http_coding_pack(HTTP_CODING_GZIP, &body));
    while (at < body.len) {
        size_t used = 0, before = all;
        assert_int_equal(http_unpack(stream, body.data + at, body.len - at, &used, UINT64_MAX,
                                     count, &all, &err),
                         0);
        assert_true(used > 0 && all - before < HTTP_UNPACK_TURN + ((size_t)128 << 10));
        at += used;
    }
    assert_int_equal(http_unpack_end(stream, &err), 0);
    assert_int_equal(all, bytes);
    blasd_buf_release(&body);
    http_stream_free(stream);
}

/* What there is to pack: `left` bytes of one kind. */
struct source {
    size_t left, given;
};

static size_t give(void *arg, char *out, size_t max) {
    struct source *source = arg;
    size_t len = source->left < max ? source->left : max;
    memset(out, '7', len);
    source->left -= len;
    source->given += len;
    return len;
}

/* However well it packs, one call takes a little of it. */
static void test_turns_of_packing(void **state) {
    struct http_stream *packer = http_packer_new(HTTP_CODING_GZIP),
                       *unpacker = http_unpacker_new(HTTP_CODING_GZIP);
    const size_t bytes = (size_t)64 << 20;
    struct source source = {.left = bytes};
    struct blasd_err err = {0};
    char out[32768];
    size_t all = 0;
    (void)state;
    while (!http_pack_ended(packer)) {
        size_t len, used;
        source.given = 0;
        len = http_pack_read(packer, give, &source, out, sizeof out);
        assert_true(source.given < HTTP_PACK_TURN + ((size_t)128 << 10));
        for (size_t at = 0; at < len; at += used)
            assert_int_equal(
                http_unpack(unpacker, out + at, len - at, &used, UINT64_MAX, count, &all, &err), 0);
    }
    assert_int_equal(http_unpack_end(unpacker, &err), 0);
    assert_int_equal(all, bytes);
    http_stream_free(packer);
    http_stream_free(unpacker);
}

static void test_there_and_back(void **state) {
    static const size_t pieces[] = {1, 7, 4096, BYTES};
    (void)state;
    for (int coding = HTTP_CODING_GZIP; coding <= HTTP_CODING_DEFLATE; coding++) {
        struct blasd_buf body;
        blasd_buf_init(&body, BYTES);
        assert_int_equal(blasd_buf_add(&body, text, BYTES), 0);
        assert_true(http_coding_pack((enum http_coding)coding, &body));
        assert_true(body.len < BYTES);
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            assert_int_equal(
                unpack((enum http_coding)coding, body.data, body.len, pieces[i], BYTES), 0);
            assert_int_equal(got.len, BYTES);
            assert_memory_equal(got.bytes, text, BYTES);
        }
        assert_int_equal(unpack((enum http_coding)coding, body.data, body.len, 100, BYTES - 1),
                         BLASD_E_body_too_large);
        assert_int_equal(unpack((enum http_coding)coding, body.data, body.len - 1, 100, BYTES),
                         BLASD_E_malformed_query);
        assert_int_equal(blasd_buf_add(&body, "x", 1), 0);
        assert_int_equal(unpack((enum http_coding)coding, body.data, body.len, 100, BYTES),
                         BLASD_E_malformed_query);
        blasd_buf_release(&body);
    }
}

static void test_what_is_not_packed(void **state) {
    struct blasd_buf body;
    (void)state;
    blasd_buf_init(&body, BYTES);
    assert_int_equal(blasd_buf_add(&body, text, 100), 0);
    assert_false(http_coding_pack(HTTP_CODING_GZIP, &body)); /* short */
    assert_false(http_coding_pack(HTTP_CODING_NONE, &body));
    blasd_buf_reset(&body);
    for (uint32_t i = 0, x = 1; i < 5000; i++) { /* noise does not shrink */
        x = x * 1664525 + 1013904223;
        assert_int_equal(blasd_buf_add(&body, (const char *)&x + 3, 1), 0);
    }
    assert_false(http_coding_pack(HTTP_CODING_GZIP, &body));
    assert_int_equal(body.len, 5000);
    blasd_buf_release(&body);
    assert_int_equal(unpack(HTTP_CODING_GZIP, text, 100, 10, BYTES), BLASD_E_malformed_query);
    assert_int_equal(unpack(HTTP_CODING_GZIP, "", 0, 10, BYTES), BLASD_E_malformed_query);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_turns_of_packing),
        cmocka_unit_test_setup(test_there_and_back, setup),
        cmocka_unit_test_setup(test_what_is_not_packed, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
