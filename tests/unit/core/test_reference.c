/* Parts of tensors: which bytes are meant, and that what does not lie in one piece is gathered
 * right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "core/reference.h"

#define OPEN BLASD_SLICE_OPEN
#define SHAPE(...)                                                                                 \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {           \
        __VA_ARGS__                                                                                \
    }

static struct blasd_tensor part;
static struct blasd_reference reference;
static uint64_t at;

static int resolve(const struct blasd_tensor *whole, int sliced, const int64_t (*bounds)[2]) {
    struct blasd_err err = {0};
    memset(&reference, 0, sizeof reference);
    reference.sliced = sliced;
    for (int i = 0; i < sliced; i++) {
        reference.from[i] = bounds[i][0];
        reference.to[i] = bounds[i][1];
    }
    return blasd_reference_resolve(&reference, whole, 128, &part, &at, "inputs.a", &err);
}

static void expect_piece(uint64_t begin, enum blasd_order order, int rank, const int64_t *shape) {
    assert_int_equal(reference.sliced, 0);
    assert_int_equal(at, begin);
    assert_int_equal(part.order, order);
    assert_int_equal(part.rank, rank);
    assert_memory_equal(part.shape, shape, (size_t)rank * sizeof *shape);
    assert_int_equal(blasd_reference_extent(&reference, &part), blasd_tensor_bytes(&part));
}

static void test_pieces(void **state) {
    struct blasd_tensor whole = blasd_tensor_make(BLASD_float64, SHAPE(10, 6));
    (void)state;
    assert_int_equal(resolve(&whole, 0, NULL), 0);
    expect_piece(128, BLASD_ROW_MAJOR, SHAPE(10, 6));
    assert_int_equal(resolve(&whole, 1, (const int64_t[][2]){{2, 5}}), 0);
    expect_piece(128 + 2 * 6 * 8, BLASD_ROW_MAJOR, SHAPE(3, 6));
    assert_int_equal(resolve(&whole, 2, (const int64_t[][2]){{OPEN, 4}, {OPEN, OPEN}}), 0);
    expect_piece(128, BLASD_ROW_MAJOR, SHAPE(4, 6));
    assert_int_equal(resolve(&whole, 2, (const int64_t[][2]){{3, 4}, {1, 5}}), 0);
    expect_piece(128 + (3 * 6 + 1) * 8, BLASD_ROW_MAJOR, SHAPE(1, 4));
    assert_int_equal(resolve(&whole, 2, (const int64_t[][2]){{3, 3}, {1, 5}}), 0);
    expect_piece(128, BLASD_ROW_MAJOR, SHAPE(0, 4));
    whole.order = BLASD_COLUMN_MAJOR;
    assert_int_equal(resolve(&whole, 2, (const int64_t[][2]){{OPEN, OPEN}, {2, 4}}), 0);
    expect_piece(128 + 2 * 10 * 8, BLASD_COLUMN_MAJOR, SHAPE(10, 2));
}

static void test_bounds(void **state) {
    const struct blasd_tensor whole = blasd_tensor_make(BLASD_int8, SHAPE(4, 3));
    (void)state;
    assert_int_equal(resolve(&whole, 2, (const int64_t[][2]){{0, 4}, {0, 3}}),
                     0); /* at the limit */
    assert_int_equal(resolve(&whole, 1, (const int64_t[][2]){{4, 4}}), 0);
    assert_int_equal(resolve(&whole, 1, (const int64_t[][2]){{0, 5}}), -BLASD_E_invalid_reference);
    assert_int_equal(resolve(&whole, 1, (const int64_t[][2]){{3, 2}}), -BLASD_E_invalid_reference);
    assert_int_equal(resolve(&whole, 1, (const int64_t[][2]){{-1, 2}}), -BLASD_E_invalid_reference);
    assert_int_equal(resolve(&whole, 1, (const int64_t[][2]){{OPEN, INT64_MAX}}),
                     -BLASD_E_invalid_reference);
    assert_int_equal(resolve(&whole, 3, (const int64_t[][2]){{0, 1}, {0, 1}, {0, 1}}),
                     -BLASD_E_invalid_reference);
}

/* Every slice of every small tensor of both orders, element by element. */
static void check_gather(const struct blasd_tensor *whole, const unsigned char *bytes,
                         const int64_t (*bounds)[2]) {
    int64_t index[BLASD_MAX_RANK] = {0}, n;
    unsigned char out[4 * 4 * 4 * 2];
    assert_int_equal(resolve(whole, whole->rank, bounds), 0);
    n = blasd_tensor_elements(&part);
    if (reference.sliced == 0) return;
    part.data = out;
    blasd_reference_gather(&reference, bytes + (at - 128), &part);
    assert_true(at - 128 + blasd_reference_extent(&reference, &part) <= blasd_tensor_bytes(whole));
    for (int64_t k = 0; k < n; k++) {
        int64_t from = 0, left = k;
        for (int i = whole->rank - 1; i >= 0; i--) {
            index[i] = bounds[i][0] + left % part.shape[i];
            left /= part.shape[i];
        }
        for (int i = 0; i < whole->rank; i++) {
            int d = whole->order == BLASD_ROW_MAJOR ? i : whole->rank - 1 - i;
            from = from * whole->shape[d] + index[d];
        }
        assert_memory_equal(out + 2 * k, bytes + 2 * from, 2);
    }
}

static void test_gather(void **state) {
    unsigned char bytes[4 * 3 * 4 * 2];
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    for (int order = BLASD_ROW_MAJOR; order <= BLASD_COLUMN_MAJOR; order++) {
        struct blasd_tensor whole = blasd_tensor_make(BLASD_int16, SHAPE(4, 3, 4));
        whole.order = (enum blasd_order)order;
        for (int64_t code = 0; code < 4 * 4 * 3 * 3 * 4 * 4; code++) {
            int64_t a = code % 4, b = code / 4 % 4, c = code / 16 % 3, d = code / 48 % 3;
            int64_t e = code / 144 % 4, f = code / 576;
            const int64_t bounds[3][2] = {{a, b + 1}, {c, d + 1}, {e, f + 1}};
            if (a <= b && c <= d && e <= f) check_gather(&whole, bytes, bounds);
        }
    }
}

static void test_forms(void **state) {
    static const char *const bad[] = {"",
                                      "float64",
                                      "float65 0 1",
                                      "float64 2 1",
                                      "float64 0 x",
                                      "float64 0 -1",
                                      "float64 0 1 1 1 1 1 1 1 1 1",
                                      "float64 01",
                                      "float64 0 4611686018427387904"};
    struct blasd_tensor tensor = blasd_tensor_make(BLASD_bfloat16, SHAPE(3, 0, 7)), again;
    char form[BLASD_FORM_MAX];
    (void)state;
    tensor.order = BLASD_COLUMN_MAJOR;
    assert_true(blasd_form_read(blasd_form_write(&tensor, form), &again));
    assert_memory_equal(&again, &tensor, sizeof tensor);
    assert_true(blasd_form_read("bool 0", &again));
    assert_int_equal(again.rank, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(blasd_form_read(bad[i], &again));
}

static void test_ids_of_kept_outputs(void **state) {
    struct blasd_keeping keeping = {.keep = 5};
    char job[BLASD_ID_LEN + 1], id[BLASD_ID_LEN + 1];
    (void)state;
    blasd_id_new(BLASD_ID_SYNC, 1, job);
    memcpy(keeping.ids[2], "0123456789ab", 13);
    blasd_keeping_id(&keeping, job, 2, id);
    assert_true(blasd_id_tensor_valid(id));
    assert_false(blasd_id_valid(id));
    assert_memory_equal(id + 1, job + 1, BLASD_ID_ENTRY - 1);
    assert_true(blasd_keeps(&keeping, 0) && !blasd_keeps(&keeping, 1) && blasd_keeps(&keeping, 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_ids_of_kept_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
