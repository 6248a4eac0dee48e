/* Which safetensors headers are read without jansson, and what is read from them. What they mean
 * is compared with jansson's reading in test_intake_safetensors.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/safetensors_plain.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS "\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[0,48]"

/* A copy that ends where the header ends, for the sanitizer to watch. */
static char *copy;

static bool read_copy(const char *header, size_t len, struct safetensors_plain *ret) {
    free(copy);
    copy = malloc(len == 0 ? 1 : len);
    assert_non_null(copy);
    memcpy(copy, header, len);
    return safetensors_plain_read(copy, len, ret);
}

static int forget(void **state) {
    (void)state;
    free(copy);
    copy = NULL;
    return 0;
}

static void test_one(void **state) {
    static const char *const headers[] = {
        "{\"a\":{" MEMBERS "}}",
        " {\t\"a\" :\n{ \"shape\" : [ 2 , 3 ] , \"data_offsets\":[0, 48 ],\"dtype\": \"F64\" } "
        "}\r ",
    };
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct safetensors_plain plain;
        assert_true(read_copy(headers[i], strlen(headers[i]), &plain));
        assert_int_equal(plain.notes, 0);
        assert_int_equal(plain.tensors, 1);
        assert_string_equal(plain.tensor[0].name, "a");
        assert_string_equal(plain.tensor[0].dtype, "F64");
        assert_int_equal(plain.tensor[0].rank, 2);
        assert_int_equal(plain.tensor[0].shape[0], 2);
        assert_int_equal(plain.tensor[0].shape[1], 3);
        assert_int_equal(plain.tensor[0].begin, 0);
        assert_int_equal(plain.tensor[0].end, 48);
    }
}

static void test_notes_and_more(void **state) {
    static const char header[] =
        "{\"__metadata__\":{\"op\":\"matmul\",\"note\":\" it's, {plain} [too]: \"},"
        "\"x\":{\"dtype\":\"\",\"shape\":[],\"data_offsets\":[999999999999999,0]},"
        "\"\":{\"dtype\":\"BOOL\",\"shape\":[1,2,3,4,5,6,7,8],\"data_offsets\":[0,1]}}";
    struct safetensors_plain plain;
    (void)state;
    assert_true(read_copy(header, sizeof header - 1, &plain));
    assert_int_equal(plain.notes, 2);
    assert_string_equal(plain.note[0].name, "op");
    assert_string_equal(plain.note[0].text, "matmul");
    assert_string_equal(plain.note[1].name, "note");
    assert_string_equal(plain.note[1].text, " it's, {plain} [too]: ");
    assert_int_equal(plain.tensors, 2);
    assert_int_equal(plain.tensor[0].rank, 0);
    assert_int_equal(plain.tensor[0].begin, INT64_C(999999999999999));
    assert_int_equal(plain.tensor[0].end, 0);
    assert_string_equal(plain.tensor[1].name, "");
    assert_int_equal(plain.tensor[1].rank, 8);
    assert_int_equal(plain.tensor[1].shape[7], 8);
    assert_true(read_copy("{\"__metadata__\":{}}", 19, &plain));
    assert_int_equal(plain.notes + plain.tensors, 0);
}

/* What is left to jansson, untouched. */
static void expect_left(const char *header, size_t len) {
    struct safetensors_plain plain;
    if (read_copy(header, len, &plain)) fail_msg("read: %.*s", (int)len, header);
    assert_memory_equal(copy, header, len);
}

static void test_left(void **state) {
    static const char *const headers[] = {
        "",
        "{}",
        "[]",
        "7",
        "{\"a\":{" MEMBERS "}",
        "{\"a\":{" MEMBERS "}}}",
        "{\"a\":{" MEMBERS "},}",
        "{\"a\":{" MEMBERS ",}}",
        "{\"a\":{" MEMBERS "} \"b\":{" MEMBERS "}}",
        "{\"a\":{" MEMBERS ",\"more\":1}}",
        "{\"a\":{" MEMBERS ",\"dtype\":\"F64\"}}",
        "{\"a\":{" MEMBERS ",\"shape\":[2,3]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[2,3]}}",
        "{\"a\":{\"dtype\":64,\"shape\":[2,3],\"data_offsets\":[0,48]}}",
        "{\"a\":{" MEMBERS "},\"a\":{" MEMBERS "}}",
        "{\"a\":{" MEMBERS "},\"__metadata__\":{}}",
        "{\"__metadata__\":{\"op\":\"x\",\"op\":\"x\"}}",
        "{\"__metadata__\":{\"op\":1}}",
        "{\"__metadata__\":{\"params\":\"{\\\"k\\\":3}\"}}",
        "{\"\\u0061\":{" MEMBERS "}}",
        "{\"\xc3\xa4\":{" MEMBERS "}}",
        "{\"a\n\":{" MEMBERS "}}",
        "{\"a\x7f\":{" MEMBERS "}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[02,3],\"data_offsets\":[0,48]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[2.0,3],\"data_offsets\":[0,48]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[2e0,3],\"data_offsets\":[0,48]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[-2,3],\"data_offsets\":[0,48]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[2,],\"data_offsets\":[0,48]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[,2],\"data_offsets\":[0,48]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[2 3],\"data_offsets\":[0,48]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,8]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[1000000000000000],\"data_offsets\":[0,48]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[0]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[0,48,0]}}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[]}}",
    };
    static const char zero[] = "{\"a\0\":{" MEMBERS "}}";
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        expect_left(headers[i], strlen(headers[i]));
    expect_left(zero, sizeof zero - 1);
}

/* However it is cut, it is left, and nothing behind the end is looked at. */
static void test_cut(void **state) {
    static const char header[] =
        "{\"__metadata__\":{\"op\":\"matmul\"},\"a\":{" MEMBERS "},\"b\":{" MEMBERS "}}";
    (void)state;
    for (size_t len = 0; len < sizeof header - 1; len++) expect_left(header, len);
}

static void test_many(void **state) {
    for (int count = 1; count <= BLASD_ARRIVALS_MAX + 1; count++) {
        struct safetensors_plain plain;
        char header[4096] = "{";
        for (int i = 0; i < count; i++) {
            char name[] = {i == 0 ? ' ' : ',', '"', (char)('a' + i), '"', ':', '\0'};
            strcat(strcat(header, name), "{" MEMBERS "}");
        }
        strcat(header, "}");
        if (count > BLASD_ARRIVALS_MAX) {
            expect_left(header, strlen(header));
            continue;
        }
        assert_true(read_copy(header, strlen(header), &plain));
        assert_int_equal(plain.tensors, count);
        assert_string_equal(plain.tensor[count - 1].dtype, "F64");
    }
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one, forget),
        cmocka_unit_test_teardown(test_notes_and_more, forget),
        cmocka_unit_test_teardown(test_left, forget),
        cmocka_unit_test_teardown(test_cut, forget),
        cmocka_unit_test_teardown(test_many, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
