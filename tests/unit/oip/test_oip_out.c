/* Records become answers, and descriptors metadata. */
#include "tests/unit/wire/answer_support.h"

#include "oip/oip.h"

static struct blasd_record record;
static _Alignas(64) unsigned char payload[4096];

static int setup(void **state) {
    (void)state;
    make_record(&record);
    add_output(&record, 0, BLASD_float64, 2, (const int64_t[]){2, 1});
    add_output(&record, 1, BLASD_int64, 1, (const int64_t[]){3});
    memcpy(payload + record.outputs[0].offset, (const double[]){0.5, -2}, 16);
    memcpy(payload + record.outputs[1].offset, (const int64_t[]){7, 8, 9}, 24);
    return 0;
}

/* The whole answer in pieces of seven bytes; *header as of blasd_oip_answer. */
static void answer(const struct blasd_oip *oip, struct blasd_buf *text, size_t *header) {
    struct blasd_err err = {0};
    struct blasd_answer *made = blasd_oip_answer(&record, payload, oip, header, &err);
    char piece[7];
    size_t n;
    assert_non_null(made);
    blasd_buf_init(text, 1 << 20);
    while ((n = blasd_answer_read(made, piece, sizeof piece)) > 0)
        assert_int_equal(blasd_buf_add(text, piece, n), 0);
    if (blasd_answer_size(made) >= 0) assert_int_equal(blasd_answer_size(made), text->len);
    blasd_answer_free(made);
}

/* The JSON of an answer, whose first `len` bytes it is. New reference. */
static json_t *parse_head(const struct blasd_buf *text, size_t len) {
    json_t *root = json_loadb(text->data, len, 0, NULL);
    assert_non_null(root);
    return root;
}

static json_t *output(json_t *root, size_t i) {
    return json_array_get(json_object_get(root, "outputs"), i);
}

static void test_json(void **state) {
    struct blasd_oip oip = {.op = blasd_op_find("sample"), .id = (char[]){"a\"b"}};
    struct blasd_buf text;
    size_t header;
    json_t *root, *data;
    (void)state;
    answer(&oip, &text, &header);
    assert_int_equal(header, 0);
    root = parse_head(&text, text.len);
    assert_string_equal(json_string_value(json_object_get(root, "model_name")), "sample");
    assert_string_equal(json_string_value(json_object_get(root, "model_version")), "1");
    assert_string_equal(json_string_value(json_object_get(root, "id")), "a\"b");
    assert_int_equal(json_array_size(json_object_get(root, "outputs")), 2);
    assert_string_equal(json_string_value(json_object_get(output(root, 0), "datatype")), "FP64");
    data = json_object_get(output(root, 0), "data");
    assert_int_equal(json_array_size(data), 2); /* flat */
    assert_true(json_number_value(json_array_get(data, 1)) == -2);
    assert_int_equal(
        json_integer_value(json_array_get(json_object_get(output(root, 1), "data"), 2)), 9);
    json_decref(root);
    blasd_buf_release(&text);
}

static void test_binary(void **state) {
    struct blasd_oip oip = {.op = blasd_op_find("sample"), .binary_outputs = true};
    struct blasd_buf text;
    size_t header;
    json_t *root;
    (void)state;
    answer(&oip, &text, &header);
    root = parse_head(&text, header);
    assert_int_equal(text.len, header + 16 + 24);
    assert_memory_equal(text.data + header, payload + record.outputs[0].offset, 16);
    assert_memory_equal(text.data + header + 16, payload + record.outputs[1].offset, 24);
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(output(root, 1), "parameters"), "binary_data_size")),
                     24);
    json_decref(root);
    blasd_buf_release(&text);
}

/* In the order asked for: one behind the JSON, one in it. */
static void test_chosen(void **state) {
    struct blasd_oip oip = {.op = blasd_op_find("sample"), .output_count = 2};
    struct blasd_buf text;
    size_t header;
    json_t *root;
    (void)state;
    oip.outputs[0] = (struct blasd_oip_output){.position = 1, .binary = true};
    oip.outputs[1] = (struct blasd_oip_output){.position = 0};
    answer(&oip, &text, &header);
    root = parse_head(&text, header);
    assert_int_equal(text.len, header + 24);
    assert_string_equal(json_string_value(json_object_get(output(root, 0), "name")), "index");
    assert_int_equal(json_array_size(json_object_get(output(root, 1), "data")), 2);
    json_decref(root);
    blasd_buf_release(&text);
}

static void expect_none(const struct blasd_oip *oip, enum blasd_code code, const char *detail) {
    struct blasd_err err = {0};
    size_t header;
    assert_null(blasd_oip_answer(&record, payload, oip, &header, &err));
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.detail, detail));
}

static void test_impossible(void **state) {
    struct blasd_oip oip = {.op = blasd_op_find("sample"), .output_count = 1};
    (void)state;
    oip.outputs[0].position = 2;
    expect_none(&oip, BLASD_E_output_not_found, "no output 'flag'");
    record.outputs[0].tensor.dtype = BLASD_bfloat16;
    oip.outputs[0] = (struct blasd_oip_output){.position = 0};
    expect_none(&oip, BLASD_E_not_acceptable, "binary alone");
    record.outputs[0].tensor.dtype = BLASD_complex64;
    expect_none(&oip, BLASD_E_not_acceptable, "no datatype for complex64");
}

static void test_problem(void **state) {
    const struct blasd_err err = {
        .code = BLASD_E_shape_mismatch, .field = "inputs.\"b", .detail = "a \"quote\""};
    struct blasd_buf text;
    json_t *root;
    const char *said;
    (void)state;
    blasd_buf_init(&text, 4096);
    assert_int_equal(blasd_oip_problem(&err, &text), 0);
    root = parse_head(&text, text.len);
    assert_int_equal(json_object_size(root), 1);
    said = json_string_value(json_object_get(root, "error"));
    assert_ptr_equal(strstr(said, "shape_mismatch: inputs.\"b: a \"quote\""), said);
    json_decref(root);
    blasd_buf_release(&text);
}

static size_t rank_of(json_t *model, const char *list, size_t i) {
    return json_array_size(
        json_object_get(json_array_get(json_object_get(model, list), i), "shape"));
}

static void test_metadata(void **state) {
    struct blasd_buf text;
    json_t *root;
    (void)state;
    blasd_buf_init(&text, 1 << 20);
    assert_int_equal(blasd_oip_model(blasd_op_find("sample"), &text), 0);
    root = parse_head(&text, text.len);
    assert_int_equal(rank_of(root, "inputs", 0), 2);          /* (..., m, k) */
    assert_int_equal(rank_of(root, "optional_inputs", 0), 1); /* (n) */
    assert_int_equal(rank_of(root, "outputs", 1), 0);
    assert_int_equal(json_array_size(json_object_get(root, "inputs")), 2);
    json_decref(root);
    blasd_buf_reset(&text);
    assert_int_equal(blasd_oip_config(blasd_op_find("sample"), &text), 0);
    root = parse_head(&text, text.len);
    assert_int_equal(json_array_size(json_object_get(root, "input")), 2);
    json_decref(root);
    blasd_buf_release(&text);
}

static void test_statistics(void **state) {
    struct blasd_oip_stats stats[8] = {{.inferences = 3, .executions = 1.4, .queue_ns = 5000}};
    struct blasd_buf text;
    json_t *root, *model;
    (void)state;
    blasd_buf_init(&text, 1 << 20);
    assert_int_equal(blasd_oip_statistics(blasd_ops[0], stats, &text), 0);
    root = parse_head(&text, text.len);
    model = json_array_get(json_object_get(root, "model_stats"), 0);
    assert_int_equal(json_integer_value(json_object_get(model, "inference_count")), 3);
    assert_int_equal(json_integer_value(json_object_get(model, "execution_count")), 1);
    assert_string_equal(json_string_value(json_object_get(model, "version")), "1");
    json_decref(root);
    blasd_buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_json, setup),
        cmocka_unit_test_setup(test_binary, setup),
        cmocka_unit_test_setup(test_chosen, setup),
        cmocka_unit_test_setup(test_impossible, setup),
        cmocka_unit_test_setup(test_problem, setup),
        cmocka_unit_test_setup(test_metadata, setup),
        cmocka_unit_test_setup(test_statistics, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
