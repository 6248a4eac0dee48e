/* The sum over a tensor: the same in whatever pieces it comes, another one for other bytes. */
#include "http/body_sink.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint64_t sum_of(const unsigned char *bytes, size_t len, size_t piece) {
    struct http_sum sum = {0};
    for (size_t at = 0; at < len; at += piece)
        http_sum_add(&sum, bytes + at, len - at < piece ? len - at : piece);
    return http_sum_end(&sum);
}

static void test_pieces(void **state) {
    unsigned char bytes[259];
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 37 + 11);
    for (size_t len = 0; len <= sizeof bytes; len += 7)
        for (size_t piece = 1; piece <= 40; piece++)
            assert_int_equal(sum_of(bytes, len, piece), sum_of(bytes, len, sizeof bytes));
}

static void test_other_bytes(void **state) {
    unsigned char bytes[64] = {0};
    uint64_t zeros = sum_of(bytes, sizeof bytes, 64);
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] = (unsigned char)(1u << bit);
            assert_int_not_equal(sum_of(bytes, sizeof bytes, 64), zeros);
            bytes[i] = 0;
        }
    bytes[7] = bytes[15] = 0x80; /* the signs of two numbers */
    assert_int_not_equal(sum_of(bytes, sizeof bytes, 64), zeros);
    bytes[7] = bytes[15] = 0;
    for (size_t len = 0; len < sizeof bytes; len++)
        assert_int_not_equal(sum_of(bytes, len, 64), zeros);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_other_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
