/* Many who read large answers: a turn makes so much for all of them, and nobody is passed over. */
#include "http/pieces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PIECE ((size_t)262144)
#define READERS 100

/* Each reader asks `asks` times a turn, the first of them first. */
static void run(int readers, int turns, int asks, int got[READERS]) {
    struct http_pieces pieces = {0};
    uint64_t had[READERS] = {0};
    for (int turn = 0; turn < turns; turn++) {
        http_pieces_turn(&pieces);
        for (int i = 0; i < asks * readers; i++) {
            if (!http_pieces_next(&pieces, &had[i % readers])) continue;
            pieces.bytes += PIECE;
            got[i % readers]++;
        }
        assert_true(pieces.bytes < HTTP_TURN_BYTES + PIECE);
        assert_true(pieces.bytes > 0);
    }
}

static void test_nobody_is_passed_over(void **state) {
    int got[READERS] = {0};
    (void)state;
    run(READERS, 10 * READERS, 1, got);
    for (int i = 0; i < READERS; i++) assert_true(got[i] >= 18 && got[i] <= 21);
}

static void test_asking_more_often_gains_nothing(void **state) {
    int got[READERS] = {0}, one[READERS] = {0};
    (void)state;
    run(3, 30, 5, got);
    for (int i = 0; i < 3; i++) assert_true(got[i] >= 14);
    run(1, 30, 5, one);
    assert_int_equal(one[0], 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_is_passed_over),
        cmocka_unit_test(test_asking_more_often_gains_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
