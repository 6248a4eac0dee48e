/* The bytes of small tensors: read once, whichever were read before; those of others are not. */
#include "http/small_tensors.h"

#include "../store/store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct store_place place;

/* A tensor of so many bytes of `fill`, whose id ends in `last`. */
static struct blasd_stored_tensor put(uint64_t bytes, char fill, const char *last) {
    struct blasd_stored_tensor tensor = {.bytes = bytes};
    struct blasd_blob blob = {.fd = -1};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME], *content = malloc(blasd_stored_bytes(bytes));
    assert_non_null(content);
    memset(content, fill, blasd_stored_bytes(bytes));
    blasd_id_new(BLASD_ID_TENSOR, 0, tensor.id);
    memcpy(tensor.id + BLASD_ID_LEN - 2, last, 2);
    snprintf(name, sizeof name, "%s.in", tensor.id);
    assert_int_equal(blasd_blob_create(place.store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, blasd_stored_bytes(bytes), &err), 0);
    assert_int_equal(blasd_blob_write(&blob, 0, content, blasd_stored_bytes(bytes), &err), 0);
    blasd_blob_close(&blob);
    free(content);
    return tensor;
}

static void take_away(const struct blasd_stored_tensor *tensor) {
    char name[BLASD_BLOB_NAME];
    snprintf(name, sizeof name, "%s.in", tensor->id);
    blasd_store_remove(place.store, name);
}

static void expect(struct http_small_tensors *small, const struct blasd_stored_tensor *tensor,
                   char fill) {
    const char *bytes = http_small_tensor(small, place.store, tensor);
    assert_non_null(bytes);
    for (uint64_t i = 0; i < tensor->bytes; i++) assert_int_equal(bytes[i], fill);
}

static void test_each_has_its_own(void **state) {
    struct http_small_tensors small = {0};
    struct blasd_stored_tensor one = put(HTTP_SMALL_TENSOR, 1, "0a"), two = put(9, 2, "0b"),
                               same_place = put(64, 3, "0a"), empty = put(0, 4, "ff");
    (void)state;
    for (int i = 0; i < 2; i++) {
        expect(&small, &one, 1);
        expect(&small, &two, 2);
        expect(&small, &same_place, 3);
        expect(&small, &empty, 4);
    }
    take_away(&two); /* it was read, and does not change */
    expect(&small, &two, 2);
    http_small_tensors_release(&small);
    assert_null(http_small_tensor(&small, place.store, &two));
    http_small_tensors_release(&small);
}

static void test_what_is_not_read(void **state) {
    struct http_small_tensors small = {0};
    struct blasd_stored_tensor large = put(HTTP_SMALL_TENSOR + 1, 1, "0a"), gone = put(9, 2, "0b"),
                               cut = put(64, 3, "0c");
    (void)state;
    assert_null(http_small_tensor(&small, place.store, &large));
    take_away(&gone);
    assert_null(http_small_tensor(&small, place.store, &gone));
    cut.bytes = 8192; /* more than there is */
    assert_null(http_small_tensor(&small, place.store, &cut));
    http_small_tensors_release(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_has_its_own),
        cmocka_unit_test(test_what_is_not_read),
    };
    int failed;
    if (store_place_open(&place) != 0) return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return store_place_close(&place) != 0 ? 1 : failed;
}
