/* The sum over a tensor: the same in whatever pieces it comes, another one for other bytes. */
#include "http/body_sink.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool more; /* which half of the digest is looked at */

static uint64_t sum_of(const unsigned char *bytes, size_t len, size_t piece) {
    struct http_sum sum = {0};
    struct http_digest digest;
    for (size_t at = 0; at < len; at += piece)
        http_sum_add(&sum, bytes + at, len - at < piece ? len - at : piece);
    digest = http_sum_end(&sum);
    return more ? digest.more : digest.hash;
}

/* Two bodies of one hash, made so: the second word takes back what the first one changed. */
static void test_collision(void **state) {
    struct http_sum one = {0}, other = {0};
    uint64_t a[2] = {1, 2}, b[2] = {3, 0};
    struct http_digest of_a, of_b;
    (void)state;
    http_sum_add(&one, &a[0], sizeof a[0]);
    http_sum_add(&other, &b[0], sizeof b[0]);
    b[1] = a[1] ^ one.hash ^ other.hash;
    http_sum_add(&one, &a[1], sizeof a[1]);
    http_sum_add(&other, &b[1], sizeof b[1]);
    of_a = http_sum_end(&one);
    of_b = http_sum_end(&other);
    assert_int_equal(of_a.hash, of_b.hash);
    assert_int_not_equal(of_a.more, of_b.more);
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
    uint64_t zeros;
    more = *state != NULL;
    zeros = sum_of(bytes, sizeof bytes, 64);
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
        cmocka_unit_test(test_pieces),      cmocka_unit_test(test_collision),
        cmocka_unit_test(test_other_bytes), cmocka_unit_test_prestate(test_other_bytes, &more),
        cmocka_unit_test(test_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
