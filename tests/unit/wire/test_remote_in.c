/* Inputs by URL: what a request says of one, and its bytes, as a server would send them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/wire/intake_support.h"
#include "wire/remote_in.h"

static struct blasd_limits limits;
static struct memory memory;
static struct blasd_err err;
static struct blasd_named_input input; /* of the last file, when it had come */
static uint64_t asked;                 /* bytes of it */

/* A request with one input `a`, said so; its reader, or NULL and err. */
static struct blasd_intake *request(const char *reference, struct blasd_remote_in **in) {
    struct blasd_intake_options options = {.content_type = "application/json", .limits = &limits};
    struct blasd_intake *intake;
    char body[1024];
    int len = snprintf(body, sizeof body, "{\"op\":\"mix\",\"inputs\":{\"a\":%s}}", reference);
    free(memory.bytes);
    memory = (struct memory){.sink = {.reserve = memory_reserve, .write = memory_write},
                             .most = 1 << 20};
    err = (struct blasd_err){0};
    *in = NULL;
    assert_int_equal(blasd_intake_new(&options, &memory.sink, &intake, &err), 0);
    if (blasd_intake_feed(intake, body, (size_t)len, &err) == 0 &&
        blasd_intake_end(intake, &err) == 0 &&
        blasd_remote_in_new(blasd_intake_body(intake), in, &err) == 0)
        return intake;
    blasd_intake_free(intake);
    return NULL;
}

/* As the fetcher would, in pieces of up to `piece` bytes. */
static int serve(struct blasd_remote_in *in, const char *file, uint64_t size, uint64_t piece) {
    int rc = blasd_remote_in_size(in, size, &err);
    for (asked = 0; rc == 0 && asked < size;) {
        uint64_t take = size - asked < piece ? size - asked : piece;
        char *copy = malloc(take); /* so that the sanitizer sees a look beyond it */
        assert_non_null(copy);
        memcpy(copy, file + asked, take);
        rc = blasd_remote_in_feed(in, copy, take, &err);
        asked += take;
        free(copy);
    }
    return rc == 0 ? blasd_remote_in_finish(in, &err) : rc;
}

static int fetch(const char *reference, const void *file, uint64_t size, uint64_t piece) {
    struct blasd_remote_in *in;
    struct blasd_intake *intake = request(reference, &in);
    int rc;
    assert_non_null(intake);
    assert_non_null(in);
    assert_string_equal(blasd_remote_in_next(in), "https://h/x");
    assert_string_equal(blasd_remote_in_field(in), "inputs.a");
    rc = serve(in, file, size, piece);
    input = blasd_intake_body(intake)->inputs->items[0];
    assert_null(blasd_remote_in_next(in));
    blasd_remote_in_free(in);
    blasd_intake_free(intake);
    return rc;
}

static void expect(enum blasd_dtype dtype, int64_t length, const void *bytes, size_t len) {
    assert_int_equal(err.code, BLASD_OK);
    assert_int_equal(input.input.tensor.dtype, dtype);
    assert_int_equal(input.input.tensor.rank, 1);
    assert_int_equal(input.input.tensor.shape[0], length);
    assert_int_equal(input.input.source.kind, BLASD_SOURCE_PAYLOAD);
    assert_memory_equal(memory.bytes + input.input.source.offset, bytes, len);
}

static const uint64_t pieces[] = {1, 7, 1 << 20};
#define EACH_PIECE(p) for (const uint64_t *p = pieces; p < pieces + 3; p++)
#define RAW "{\"url\":\"https://h/x\",\"dtype\":\"float32\",\"shape\":[3]}"
#define NPY "{\"url\":\"https://h/x\"}"
static const float floats[] = {1, 2, 4};

static void test_plain_bytes(void **state) {
    (void)state;
    EACH_PIECE(piece) {
        assert_int_equal(fetch(RAW, floats, sizeof floats, *piece), 0);
        expect(BLASD_float32, 3, floats, sizeof floats);
    }
    assert_int_not_equal(fetch(RAW, floats, 8, 8), 0);
    assert_int_equal(err.code, BLASD_E_invalid_tensor);
    assert_int_equal(asked, 0); /* the length tells */
}

static size_t npy_file(char *file, const char *dict, const void *data, size_t len) {
    size_t dict_len = strlen(dict);
    memcpy(file, "\x93NUMPY\1\0", 8);
    file[8] = (char)dict_len;
    file[9] = 0;
    memcpy(file + 10, dict, dict_len);
    memcpy(file + 10 + dict_len, data, len);
    return 10 + dict_len + len;
}

static void test_npy(void **state) {
    static const char dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n";
    char file[256];
    size_t len = npy_file(file, dict, floats, sizeof floats);
    (void)state;
    EACH_PIECE(piece) {
        assert_int_equal(fetch(NPY, file, len, *piece), 0);
        expect(BLASD_float32, 3, floats, sizeof floats);
        assert_int_not_equal(fetch(NPY, file, len - 1, *piece), 0);
        assert_int_not_equal(fetch(NPY, file, 9, *piece), 0);
        assert_int_equal(err.code, BLASD_E_malformed_npy);
        assert_int_not_equal(fetch(NPY, "<!DOCTYPE html>", 15, *piece), 0);
        assert_int_equal(err.code, BLASD_E_malformed_npy);
    }
    assert_int_equal(fetch("{\"dtype\":\"float32\",\"url\":\"https://h/x\"}", file, len, 16), 0);
    assert_int_not_equal(fetch("{\"dtype\":\"float64\",\"url\":\"https://h/x\"}", file, len, 16),
                         0);
    assert_int_equal(err.code, BLASD_E_invalid_reference);
}

static void test_what_is_too_large_is_said_first(void **state) {
    (void)state;
    assert_int_not_equal(fetch(NPY, "", limits.body_bytes + 1, 1), 0);
    assert_int_equal(err.code, BLASD_E_body_too_large);
    assert_int_equal(asked, 0);
}

static void refused(const char *reference) {
    struct blasd_remote_in *in;
    struct blasd_intake *intake = request(reference, &in);
    if (intake != NULL) print_error("taken: %s\n", reference);
    assert_null(intake);
    assert_int_not_equal(err.code, BLASD_OK);
}

static void test_what_is_no_reference(void **state) {
    struct blasd_remote_in *in;
    struct blasd_intake *intake;
    (void)state;
    /* parts of files were taken once */
    refused("{\"tensor\":\"x\",\"url\":\"u\"}");
    assert_non_null(strstr(err.detail, "POST /tensors"));
    refused("{\"url\":\"u\",\"slice\":[[0,1]]}");
    assert_non_null(strstr(err.detail, "POST /tensors"));
    refused("{\"url\":1}");
    refused("{\"url\":\"u\",\"url\":\"u\"}");
    refused("{\"url\":\"u\",\"tensor\":1}");
    refused("{\"url\":\"u\",\"tensor\":\"x\",\"tensor\":\"x\"}");
    refused("{\"url\":\"u\",\"job\":\"x\"}");
    refused("{\"url\":\"u\",\"slice\":[0,1]}");
    refused("{\"url\":\"u\",\"slice\":[],\"slice\":[]}");
    refused("{\"url\":\"u\",\"shape\":[1]}");
    refused("{\"url\":\"u\",\"shape\":[-1],\"dtype\":\"int8\"}");
    refused("{\"url\":\"u\",\"shape\":[1,1,1,1,1,1,1,1,1],\"dtype\":\"int8\"}");
    refused("{\"url\":\"u\",\"shape\":[9223372036854775807,9],\"dtype\":\"int8\"}");
    refused("{\"url\":\"u\",\"tensor\":\"x\",\"shape\":[1],\"dtype\":\"int8\"}");
    refused("{\"url\":\"u\",\"dtype\":\"none\"}");
    refused("{\"url\":\"\\ud800\"}");
    refused("{\"tensor\":\"x\",\"shape\":[1]}");
    refused("{\"shape\":[1],\"tensor\":7}");
    refused("{\"url\":\"u\",\"data\":[1]}");
    intake = request("[1]", &in); /* and one without any */
    assert_non_null(intake);
    assert_null(in);
    blasd_intake_free(intake);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_bytes),
        cmocka_unit_test(test_npy),
        cmocka_unit_test(test_what_is_too_large_is_said_first),
        cmocka_unit_test(test_what_is_no_reference),
    };
    int failed;
    blasd_limits_init(&limits);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(memory.bytes);
    return failed;
}
