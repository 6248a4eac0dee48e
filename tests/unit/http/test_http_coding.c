/* Compressed bodies, in pieces of any size, and what is not so compressed. */
#include "http/coding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

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
    struct http_unpacker *stream = http_unpacker_new(coding);
    struct blasd_err err = {0};
    int rc = 0;
    assert_non_null(stream);
    got.len = 0;
    for (size_t at = 0, used = 0; rc == 0 && at < len; at += used)
        rc = http_unpack(stream, bytes + at, len - at < piece ? len - at : piece, &used, most, take,
                         &got, &err);
    if (rc == 0) rc = http_unpack_end(stream, &err);
    http_unpacker_free(stream);
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

/* Compresses all of it; the result is to be freed. */
static char *pack(enum http_coding coding, const char *bytes, size_t len, size_t *packed) {
    z_stream z = {.next_in = (void *)(uintptr_t)bytes, .avail_in = (uInt)len};
    char *out = malloc(len + 4096);
    assert_non_null(out);
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, coding == HTTP_CODING_GZIP ? 31 : 15, 8, 0),
                     Z_OK);
    z.next_out = (void *)out;
    z.avail_out = (uInt)len + 4096;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    *packed = len + 4096 - z.avail_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    return out;
}

/* However much there is in a piece, one call unpacks a little of it. */
static void test_turns(void **state) {
    struct http_unpacker *stream = http_unpacker_new(HTTP_CODING_GZIP);
    const size_t bytes = (size_t)64 << 20;
    struct blasd_err err = {0};
    char *much = malloc(bytes), *body;
    size_t at = 0, all = 0, len;
    (void)state;
    assert_non_null(much);
    memset(much, '7', bytes);
    body = pack(HTTP_CODING_GZIP, much, bytes, &len);
    while (at < len) {
        size_t used = 0, before = all;
        assert_int_equal(
            http_unpack(stream, body + at, len - at, &used, UINT64_MAX, count, &all, &err), 0);
        assert_true(used > 0 && all - before < HTTP_UNPACK_TURN + ((size_t)128 << 10));
        at += used;
    }
    assert_int_equal(http_unpack_end(stream, &err), 0);
    assert_int_equal(all, bytes);
    free(body);
    free(much);
    http_unpacker_free(stream);
}

static void test_pieces(void **state) {
    static const size_t pieces[] = {1, 7, 4096, BYTES};
    (void)state;
    for (int i = HTTP_CODING_GZIP; i <= HTTP_CODING_DEFLATE; i++) {
        enum http_coding coding = (enum http_coding)i;
        size_t len;
        char *body = pack(coding, text, BYTES, &len);
        for (size_t at = 0; at < sizeof pieces / sizeof *pieces; at++) {
            assert_int_equal(unpack(coding, body, len, pieces[at], BYTES), 0);
            assert_int_equal(got.len, BYTES);
            assert_memory_equal(got.bytes, text, BYTES);
        }
        assert_int_equal(unpack(coding, body, len, 100, BYTES - 1), BLASD_E_body_too_large);
        assert_int_equal(unpack(coding, body, len - 1, 100, BYTES), BLASD_E_malformed_query);
        body[len] = 'x'; /* something behind it */
        assert_int_equal(unpack(coding, body, len + 1, 100, BYTES), BLASD_E_malformed_query);
        free(body);
    }
    assert_int_equal(unpack(HTTP_CODING_GZIP, text, 100, 10, BYTES), BLASD_E_malformed_query);
    assert_int_equal(unpack(HTTP_CODING_GZIP, "", 0, 10, BYTES), BLASD_E_malformed_query);
}

/* Accept-Encoding */
static void test_what_a_client_takes(void **state) {
    static const struct {
        const char *value;
        bool gzip;
    } rows[] = {{"gzip, deflate", true},
                {"deflate, gzip", true},
                {"gzip;q=0.5", true},
                {"br, gzip;q=0.8", true},
                {"GZIP", true},
                {"gzip;q=0.001", true},
                {"br", false},
                {"gzip;q=0", false},
                {"gzip; q=0.000", false},
                {"identity", false},
                {"deflate", false},
                {"", false},
                {",,gzipped,", false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(http_coding_takes_gzip(rows[i].value), rows[i].gzip);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test_setup(test_pieces, setup),
        cmocka_unit_test(test_what_a_client_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
