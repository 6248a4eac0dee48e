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

/* As whoever fetches would: what is wanted, in pieces of up to `piece` bytes. */
static int serve(struct blasd_remote_in *in, const char *file, uint64_t size, uint64_t piece) {
    uint64_t at = 0, end = 0;
    int rc = blasd_remote_in_size(in, size, &at, &end, &err);
    for (asked = 0; rc == 0 && at < end;) {
        uint64_t take = end - at < piece ? end - at : piece;
        char *copy = malloc(take); /* so that the sanitizer sees a look beyond it */
        assert_non_null(copy);
        assert_true(end <= size);
        memcpy(copy, file + at, take);
        rc = blasd_remote_in_feed(in, copy, take, &at, &end, &err);
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
#define OF(name) "{\"tensor\":\"" name "\",\"url\":\"https://h/x\"}"
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

static size_t safetensors_file(char *file, const char *header, const void *data, size_t len) {
    uint64_t header_len = strlen(header);
    memcpy(file, &header_len, 8);
    memcpy(file + 8, header, header_len);
    memcpy(file + 8 + header_len, data, len);
    return 8 + header_len + len;
}

static void test_one_tensor_of_many(void **state) {
    static const char header[] =
        "{\"p\":{\"dtype\":\"U8\",\"shape\":[500],\"data_offsets\":[0,500]},"
        "\"a.b\":{\"data_offsets\":[500,512],\"dtype\":\"F32\",\"shape\":[3]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[12,12]},"
        "\"beyond\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[512,524]}}";
    char data[512], file[1200];
    size_t len;
    (void)state;
    memset(data, 7, sizeof data);
    memcpy(data + 500, floats, sizeof floats);
    len = safetensors_file(file, header, data, sizeof data);
    EACH_PIECE(piece) {
        assert_int_equal(fetch(OF("a.b"), file, len, *piece), 0);
        expect(BLASD_float32, 3, floats, sizeof floats);
        assert_int_equal(asked, 8 + sizeof header - 1 + sizeof floats);
        assert_int_equal(fetch(OF("empty"), file, len, *piece), 0);
        assert_int_not_equal(fetch(OF("beyond"), file, len, *piece), 0);
        assert_int_equal(err.code, BLASD_E_malformed_safetensors);
        assert_int_not_equal(fetch(OF("none"), file, len, *piece), 0);
        assert_int_equal(err.code, BLASD_E_invalid_reference);
        for (size_t cut = 0; cut < 8 + sizeof header + 20; cut += 5) {
            assert_int_not_equal(fetch(OF("a.b"), file, cut, *piece), 0);
            assert_int_equal(err.code, BLASD_E_malformed_safetensors);
        }
    }
    len = safetensors_file(file, "{\"a\":[1],\"b\":{\"dtype\":\"F3", data, 0);
    assert_int_not_equal(fetch(OF("b"), file, len, 64), 0);
    assert_int_equal(err.code, BLASD_E_malformed_safetensors);
    len = safetensors_file(file, "[1]", data, 0);
    assert_int_not_equal(fetch(OF("b"), file, len, 64), 0);
    memset(file, 0xff, 64); /* a header of 2^64 - 1 bytes */
    assert_int_not_equal(fetch(OF("b"), file, 64, 64), 0);
    assert_int_equal(err.code, BLASD_E_malformed_safetensors);
}

static void expect_part(int64_t rows, int64_t columns, const float *from) {
    const struct blasd_tensor *tensor = &input.input.tensor;
    assert_int_equal(err.code, BLASD_OK);
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->shape[0], rows);
    assert_int_equal(tensor->shape[1], columns);
    assert_int_equal(input.input.reference.sliced, 0); /* it came as what it is */
    assert_memory_equal(memory.bytes + input.input.source.offset, from,
                        (size_t)(rows * columns) * sizeof *from);
}

#define PART(slice, more) "{\"url\":\"https://h/x\",\"slice\":" slice more "}"

/* No other byte of the elements is asked for. */
static void test_parts_of_files(void **state) {
    static const char c_order[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }\n";
    static const char f_order[] = "{'descr': '<f4', 'fortran_order': True, 'shape': (4, 3), }\n";
    static const char tensors[] = "{\"t\":{\"dtype\":\"F32\",\"shape\":[4,3],"
                                  "\"data_offsets\":[0,48]}}";
    static const float matrix[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const size_t head = 10 + sizeof c_order - 1, row = 3 * sizeof(float);
    char file[256];
    size_t len;
    (void)state;
    EACH_PIECE(piece) {
        len = npy_file(file, c_order, matrix, sizeof matrix);
        assert_int_equal(fetch(PART("[[1,3]]", ""), file, len, *piece), 0);
        expect_part(2, 3, matrix + 3);
        assert_int_equal(asked, head + 2 * row);
        assert_int_equal(fetch(PART("[[2,3],[1,null]]", ""), file, len, *piece), 0);
        expect_part(1, 2, matrix + 7);
        assert_int_equal(fetch(PART("[[4,4]]", ""), file, len, *piece), 0);
        expect_part(0, 3, matrix);
        assert_int_equal(asked, head);
        assert_int_not_equal(fetch(PART("[[0,2],[0,1]]", ""), file, len, *piece), 0);
        assert_int_equal(err.code, BLASD_E_invalid_reference);
        assert_int_not_equal(fetch(PART("[[0,5]]", ""), file, len, *piece), 0);
        assert_int_equal(err.code, BLASD_E_invalid_reference);
        assert_int_not_equal(fetch(PART("[[0,1]]", ""), file, head + 20, *piece), 0);
        assert_int_equal(err.code, BLASD_E_malformed_npy);
        assert_int_not_equal(fetch(PART("[[0,1]]", ""), file, 7, *piece), 0);
        assert_int_equal(err.code, BLASD_E_malformed_npy);
        len = npy_file(file, f_order, matrix, sizeof matrix);
        assert_int_equal(fetch(PART("[[null,null],[1,2]]", ""), file, len, *piece), 0);
        expect_part(4, 1, matrix + 4);
        assert_int_not_equal(fetch(PART("[[0,2]]", ""), file, len, *piece), 0);
        len = safetensors_file(file, tensors, matrix, sizeof matrix);
        assert_int_equal(fetch(PART("[[3,4]]", ",\"tensor\":\"t\""), file, len, *piece), 0);
        expect_part(1, 3, matrix + 9);
        assert_int_equal(asked, 8 + sizeof tensors - 1 + row);
        assert_int_equal(fetch(PART("[[1,2]]", ",\"dtype\":\"float32\",\"shape\":[4,3]"), matrix,
                               sizeof matrix, *piece),
                         0);
        expect_part(1, 3, matrix + 3);
        assert_int_equal(asked, row);
    }
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
        cmocka_unit_test(test_one_tensor_of_many),
        cmocka_unit_test(test_parts_of_files),
        cmocka_unit_test(test_what_is_too_large_is_said_first),
        cmocka_unit_test(test_what_is_no_reference),
    };
    int failed;
    blasd_limits_init(&limits);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(memory.bytes);
    return failed;
}
