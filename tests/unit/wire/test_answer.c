/* Tensors on their way out: JSON, safetensors and .npy, in pieces of any size. */
#include "tests/unit/wire/answer_support.h"
#include "wire/frame_graph.h"

#include "core/half.h"

/* --- JSON --- */

/* Writes one output of `n` elements as JSON and returns its data as a list. New: decref the root.
 */
static json_t *list_of(enum blasd_dtype dtype, const void *data, int64_t n, json_t **root) {
    struct blasd_record record;
    struct blasd_buf text;
    json_t *list;
    make_record(&record);
    add_output(&record, 0, dtype, 1, &n);
    read_answer_all_ways(&record, data, 0, BLASD_FORMAT_JSON, &text);
    *root = parse(&text);
    assert_member(*root, "name", "c");
    assert_member(*root, "dtype", blasd_dtype_name(dtype));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(*root, "shape"), 0)), n);
    list = json_object_get(*root, "data");
    assert_int_equal(json_array_size(list), n);
    blasd_buf_release(&text);
    return list;
}

/* The double that a JSON value stands for. */
static double number_of(const json_t *value) {
    const char *text = json_string_value(value);
    if (text == NULL) {
        assert_true(json_is_number(value));
        return json_number_value(value);
    }
    if (strcmp(text, "NaN") == 0) return NAN;
    if (strcmp(text, "Infinity") == 0) return INFINITY;
    assert_string_equal(text, "-Infinity");
    return -INFINITY;
}

static uint64_t next_random(void) {
    static uint64_t seed = 2463534242u;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void doubles_read_back_bit_for_bit(void **state) {
    enum { N = 20000 };
    static const double special[] = {0.0,
                                     -0.0,
                                     INFINITY,
                                     -INFINITY,
                                     NAN,
                                     5e-324,
                                     -5e-324,
                                     2.2250738585072014e-308,
                                     2.225073858507201e-308,
                                     1.7976931348623157e308,
                                     0.1,
                                     1.0 / 3,
                                     1e15,
                                     1e16,
                                     1e21,
                                     1e22,
                                     1e23,
                                     9007199254740991.0,
                                     9007199254740992.0,
                                     9007199254740994.0,
                                     9223372036854775807.0,
                                     9223372036854775808.0,
                                     -9223372036854775808.0,
                                     12345678901234567168.0,
                                     18446744073709551616.0,
                                     -19.0};
    static double values[N];
    json_t *root, *list;
    (void)state;
    for (size_t i = 0; i < N; i++) {
        uint64_t bits = next_random();
        memcpy(&values[i], &bits, sizeof bits);
        if (i % 4 == 1) values[i] = (double)(int64_t)(bits >> (i % 64));
        if (i % 4 == 2) values[i] = (double)(int64_t)(bits >> 40) / 1024;
        if (i < sizeof special / sizeof *special) values[i] = special[i];
    }
    list = list_of(BLASD_float64, values, N, &root);
    for (size_t i = 0; i < N; i++) {
        double back = number_of(json_array_get(list, i));
        if (isnan(values[i]))
            assert_true(isnan(back));
        else
            assert_memory_equal(&back, &values[i], sizeof back);
    }
    json_decref(root);
}

static void floats_read_back_bit_for_bit(void **state) {
    enum { N = 20000 };
    static float values[N];
    json_t *root, *list;
    (void)state;
    for (size_t i = 0; i < N; i++) {
        values[i] = blasd_float_from_bits((uint32_t)next_random());
        if (i % 4 == 1) values[i] = (float)(next_random() >> (i % 64));
    }
    values[0] = -0.0f;
    values[1] = 1e-45f;
    values[2] = 3.4028235e38f;
    list = list_of(BLASD_float32, values, N, &root);
    for (size_t i = 0; i < N; i++) {
        float back = (float)number_of(json_array_get(list, i));
        if (isnan(values[i]))
            assert_true(isnan(back));
        else
            assert_memory_equal(&back, &values[i], sizeof back);
    }
    json_decref(root);
}

static void every_half_reads_back(void **state) {
    static uint16_t values[65536];
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) values[i] = (uint16_t)i;
    for (int kind = 0; kind < 2; kind++) {
        json_t *root,
            *list = list_of(kind == 0 ? BLASD_float16 : BLASD_bfloat16, values, 65536, &root);
        for (size_t i = 0; i < 65536; i++) {
            float value =
                kind == 0 ? blasd_float16_read(values[i]) : blasd_bfloat16_read(values[i]);
            float back = (float)number_of(json_array_get(list, i));
            if (isnan(value))
                assert_true(isnan(back));
            else
                assert_memory_equal(&back, &value, sizeof back);
        }
        json_decref(root);
    }
}

/* The text of one output's data. */
static void expect_data(enum blasd_dtype dtype, int rank, const int64_t *shape, const void *data,
                        const char *expected) {
    struct blasd_record record;
    struct blasd_buf text;
    char *at;
    make_record(&record);
    add_output(&record, 0, dtype, rank, shape);
    read_answer_all_ways(&record, data, 0, BLASD_FORMAT_JSON, &text);
    /* jansson takes no integers above 2^63 */
    if (dtype != BLASD_uint64) json_decref(parse(&text));
    at = memmem(text.data, text.len, "\"data\":", 7);
    assert_non_null(at);
    assert_int_equal(text.data[text.len - 1], '}');
    text.len = (size_t)(text.data + text.len - 1 - (at + 7));
    memmove(text.data, at + 7, text.len);
    assert_text(&text, expected);
    blasd_buf_release(&text);
}
#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {                 \
        __VA_ARGS__                                                                                \
    }

static void integers_and_booleans_are_exact(void **state) {
    (void)state;
    expect_data(BLASD_int64, SHAPE(3), (const int64_t[]){INT64_MIN, -1, INT64_MAX},
                "[-9223372036854775808,-1,9223372036854775807]");
    expect_data(BLASD_int32, SHAPE(2), (const int32_t[]){INT32_MIN, INT32_MAX},
                "[-2147483648,2147483647]");
    expect_data(BLASD_int16, SHAPE(2), (const int16_t[]){-32768, 32767}, "[-32768,32767]");
    expect_data(BLASD_int8, SHAPE(2), (const int8_t[]){-128, 127}, "[-128,127]");
    expect_data(BLASD_uint64, SHAPE(2), (const uint64_t[]){0, UINT64_MAX},
                "[0,18446744073709551615]");
    expect_data(BLASD_uint32, SHAPE(1), (const uint32_t[]){UINT32_MAX}, "[4294967295]");
    expect_data(BLASD_uint16, SHAPE(1), (const uint16_t[]){UINT16_MAX}, "[65535]");
    expect_data(BLASD_uint8, SHAPE(1), (const uint8_t[]){UINT8_MAX}, "[255]");
    expect_data(BLASD_bool, SHAPE(3), (const uint8_t[]){1, 0, 2}, "[true,false,true]");
}

static void lists_nest_as_the_shape_says(void **state) {
    static const double n[] = {19, 22, 43, 50, -1.5, 1e100, -0.0, 7};
    (void)state;
    expect_data(BLASD_float64, 0, NULL, n, "19");
    expect_data(BLASD_float64, SHAPE(1), n, "[19]");
    expect_data(BLASD_float64, SHAPE(2, 2), n, "[[19,22],[43,50]]");
    expect_data(BLASD_float64, SHAPE(2, 1, 4), n, "[[[19,22,43,50]],[[-1.5,1e+100,-0.0,7]]]");
    expect_data(BLASD_float64, SHAPE(2, 2, 2), n, "[[[19,22],[43,50]],[[-1.5,1e+100],[-0.0,7]]]");
    expect_data(BLASD_float64, SHAPE(1, 1, 1, 1, 1, 1, 1, 2), n, "[[[[[[[[19,22]]]]]]]]");
    expect_data(BLASD_float64, SHAPE(2, 1, 1, 1, 1, 1, 1, 1), n,
                "[[[[[[[[19]]]]]]],[[[[[[[22]]]]]]]]");
}

static void empty_tensors_are_empty_lists(void **state) {
    (void)state;
    expect_data(BLASD_float64, SHAPE(0), NULL, "[]");
    expect_data(BLASD_float64, SHAPE(0, 3), NULL, "[]");
    expect_data(BLASD_float64, SHAPE(2, 0), NULL, "[[],[]]");
    expect_data(BLASD_float32, SHAPE(2, 2, 0, 9), NULL, "[[[],[]],[[],[]]]");
    /* a billion empty lists help nobody: the shape stands beside */
    expect_data(BLASD_float64, SHAPE(1000000000, 0), NULL, "[]");
}

static void all_outputs_come_in_the_job_document(void **state) {
    _Alignas(8) unsigned char payload[256] = {0};
    const double c[] = {1, 2.5, -3, 4, 5, 6};
    const int64_t index[] = {7, 8};
    struct blasd_record record;
    struct blasd_buf text;
    json_t *root, *outputs, *output;
    (void)state;
    make_record(&record);
    add_output(&record, 0, BLASD_float64, SHAPE(2, 3));
    add_output(&record, 1, BLASD_int64, SHAPE(2));
    memcpy(payload + record.outputs[0].offset, c, sizeof c);
    memcpy(payload + record.outputs[1].offset, index, sizeof index);
    read_answer_all_ways(&record, payload, -1, BLASD_FORMAT_JSON, &text);
    root = parse(&text);
    assert_member(root, "id", ID);
    assert_member(root, "state", "succeeded");
    outputs = json_object_get(root, "outputs");
    assert_int_equal(json_object_size(outputs), 2);
    output = json_object_get(outputs, "c");
    assert_member(output, "dtype", "float64");
    assert_member(output, "href", "/jobs/" ID "/outputs/c");
    output = json_array_get(json_array_get(json_object_get(output, "data"), 1), 2);
    assert_true(json_number_value(output) == 6);
    output = json_object_get(json_object_get(outputs, "index"), "data");
    assert_int_equal(json_integer_value(json_array_get(output, 1)), 8);
    json_decref(root);
    blasd_buf_release(&text);
}

/* The payload may lie anywhere in a reply of Redis. */
static void payloads_need_no_alignment(void **state) {
    unsigned char payload[65];
    const double values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    (void)state;
    memcpy(payload + 1, values, sizeof values);
    expect_data(BLASD_float64, SHAPE(8), payload + 1, "[1,2,3,4,5,6,7,8]");
}

/* --- safetensors --- */

static uint64_t little_endian(const char *bytes, size_t n) {
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    return value;
}

/* Checks one entry of a header and its bytes. */
static void expect_entry(const json_t *header, const struct blasd_buf *file, uint64_t data_at,
                         const char *name, const char *code, const struct blasd_output *output,
                         const unsigned char *payload) {
    const json_t *entry = json_object_get(header, name);
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *shape = json_object_get(entry, "shape");
    uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
    uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
    assert_member(entry, "dtype", code);
    assert_int_equal(json_array_size(shape), output->tensor.rank);
    for (int i = 0; i < output->tensor.rank; i++)
        assert_true(json_integer_value(json_array_get(shape, (size_t)i)) ==
                    output->tensor.shape[i]);
    assert_true(end - begin == output->bytes && data_at + end <= file->len);
    assert_int_equal((data_at + begin) % blasd_dtype_size(output->tensor.dtype), 0);
    assert_memory_equal(file->data + data_at + begin, payload + output->offset, output->bytes);
}

static void safetensors_hold_what_the_header_says(void **state) {
    unsigned char payload[512];
    struct blasd_record record;
    struct blasd_buf file;
    struct blasd_buf job;
    json_t *header, *document;
    uint64_t size;
    (void)state;
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (unsigned char)next_random();
    make_record(&record);
    snprintf(record.execution.warnings[0].text, BLASD_WARNING_MAX, "a \"quoted\" \\ warning\n\xff");
    record.execution.warning_count = 1;
    add_output(&record, 0, BLASD_bfloat16, SHAPE(3, 3));
    add_output(&record, 1, BLASD_int64, SHAPE(5));
    add_output(&record, 2, BLASD_bool, 0, NULL);
    read_answer_all_ways(&record, payload, -1, BLASD_FORMAT_SAFETENSORS, &file);
    size = little_endian(file.data, 8);
    assert_int_equal((size + 8) % 64, 0);
    assert_true(8 + size + 18 + 40 + 1 == file.len); /* and there are no gaps */
    header = json_loadb(file.data + 8, size, 0, NULL);
    assert_non_null(header);
    assert_int_equal(json_object_size(header), 4);
    expect_entry(header, &file, 8 + size, "c", "BF16", &record.outputs[0], payload);
    expect_entry(header, &file, 8 + size, "index", "I64", &record.outputs[1], payload);
    expect_entry(header, &file, 8 + size, "flag", "BOOL", &record.outputs[2], payload);
    document = json_loads(
        json_string_value(json_object_get(json_object_get(header, "__metadata__"), "job")), 0,
        NULL);
    assert_non_null(document);
    blasd_buf_init(&job, 1 << 16);
    assert_int_equal(blasd_job_document(&record, NULL, 0, false, &job), 0);
    json_t *direct = parse(&job);
    assert_true(json_equal(document, direct));
    json_decref(direct);
    json_decref(document);
    json_decref(header);
    blasd_buf_release(&job);
    blasd_buf_release(&file);
}

static void one_output_as_safetensors(void **state) {
    unsigned char payload[64] = {1, 2, 3, 4};
    struct blasd_record record;
    struct blasd_buf file;
    json_t *header;
    (void)state;
    make_record(&record);
    add_output(&record, 0, BLASD_float32, SHAPE(2, 0));
    add_output(&record, 2, BLASD_uint8, SHAPE(4));
    read_answer_all_ways(&record, payload, 2, BLASD_FORMAT_SAFETENSORS, &file);
    header = json_loadb(file.data + 8, little_endian(file.data, 8), 0, NULL);
    assert_non_null(header);
    assert_int_equal(json_object_size(header), 2);
    expect_entry(header, &file, 8 + little_endian(file.data, 8), "flag", "U8", &record.outputs[2],
                 payload);
    json_decref(header);
    blasd_buf_release(&file);
    /* an empty one, for which there may be no payload at all */
    read_answer_all_ways(&record, NULL, 0, BLASD_FORMAT_SAFETENSORS, &file);
    assert_true(file.len == 8 + little_endian(file.data, 8));
    blasd_buf_release(&file);
}

static void files_are_cut_anywhere(void **state) {
    unsigned char payload[256] = {7, 8, 9};
    struct blasd_record record;
    struct blasd_buf file;
    (void)state;
    make_record(&record);
    add_output(&record, 0, BLASD_float32, SHAPE(2, 3));
    read_answer_all_ways(&record, payload, 0, BLASD_FORMAT_NPY, &file);
    for (size_t from = 0; from < file.len; from++) {
        struct blasd_answer *answer = blasd_answer_new(&record, payload, 0, BLASD_FORMAT_NPY);
        char room[512];
        blasd_answer_cut(answer, from, file.len - from);
        assert_int_equal(blasd_answer_read(answer, room, sizeof room), file.len - from);
        assert_memory_equal(room, file.data + from, file.len - from);
        blasd_answer_free(answer);
    }
    blasd_buf_release(&file);
}

/* --- .npy --- */

static void expect_npy(enum blasd_dtype dtype, int rank, const int64_t *shape,
                       const char *expected) {
    static unsigned char payload[4096];
    struct blasd_record record;
    struct blasd_buf file;
    size_t size;
    make_record(&record);
    add_output(&record, 0, dtype, rank, shape);
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (unsigned char)next_random();
    read_answer_all_ways(&record, payload, 0, BLASD_FORMAT_NPY, &file);
    assert_memory_equal(file.data, "\x93NUMPY\x01\x00", 8);
    size = (size_t)little_endian(file.data + 8, 2);
    assert_int_equal((size + 10) % 64, 0);
    assert_int_equal(file.data[10 + size - 1], '\n');
    assert_memory_equal(file.data + 10, expected, strlen(expected));
    for (size_t i = 10 + strlen(expected); i < 10 + size - 1; i++)
        assert_int_equal(file.data[i], ' ');
    assert_true(file.len == 10 + size + record.outputs[0].bytes);
    assert_memory_equal(file.data + 10 + size, payload, record.outputs[0].bytes);
    blasd_buf_release(&file);
}

static void complex_numbers_are_pairs(void **state) {
    static const double values[] = {1, -2.5, 0.1, 1e300, -0.0, NAN};
    struct blasd_record record;
    struct blasd_buf text;
    json_t *root, *list = list_of(BLASD_complex128, values, 3, &root);
    (void)state;
    assert_int_equal(json_array_size(list), 3);
    for (size_t i = 0; i < 6; i++) {
        json_t *pair = json_array_get(list, i / 2);
        double back;
        assert_int_equal(json_array_size(pair), 2);
        back = number_of(json_array_get(pair, i % 2));
        if (i == 5)
            assert_true(isnan(back));
        else
            assert_memory_equal(&back, &values[i], sizeof back);
    }
    json_decref(root);
    make_record(&record);
    add_output(&record, 0, BLASD_complex64, SHAPE(1, 1, 1, 1, 1, 1, 1, 2));
    read_answer_all_ways(&record, (float[]){1, 2, 3, -4}, -1, BLASD_FORMAT_JSON, &text);
    assert_non_null(strstr(text.data, "[[[[[[[[[1,2],[3,-4]]]]]]]]]"));
    blasd_buf_release(&text);
}

static void npy_headers_are_numpys(void **state) {
    (void)state;
    expect_npy(BLASD_float64, SHAPE(3, 4),
               "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }");
    expect_npy(BLASD_float32, SHAPE(5),
               "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }");
    expect_npy(BLASD_bool, 0, NULL, "{'descr': '|b1', 'fortran_order': False, 'shape': (), }");
    expect_npy(BLASD_int64, SHAPE(2, 0, 7),
               "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 0, 7), }");
    expect_npy(BLASD_float16, SHAPE(1, 1, 1, 1, 1, 1, 2, 3),
               "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 2, 3), }");
    expect_npy(BLASD_complex128, SHAPE(2, 3),
               "{'descr': '<c16', 'fortran_order': False, 'shape': (2, 3), }");
    expect_npy(BLASD_complex64, SHAPE(0),
               "{'descr': '<c8', 'fortran_order': False, 'shape': (0,), }");
    expect_npy(BLASD_uint8, SHAPE(1), "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }");
}

/* --- what cannot be --- */

/* As many steps as there may be (graph_steps), and all that is said of each as long as it gets. */
static void graphs_of_any_length_are_answered(void **state) {
    enum { STEPS = 2000 };
    struct blasd_graph_report *graph = calloc(1, sizeof *graph + STEPS * sizeof *graph->steps);
    struct blasd_record record;
    (void)state;
    assert_non_null(graph);
    make_record(&record);
    memset(record.execution.device_name, 'N', sizeof record.execution.device_name - 1);
    record.graph = graph;
    graph->step_count = STEPS;
    for (int i = 0; i < STEPS; i++) {
        struct blasd_graph_ran *ran = &graph->steps[i];
        snprintf(ran->name, sizeof ran->name, "a_name_of_a_step_as_long_a_%04d", i);
        snprintf(ran->op, sizeof ran->op, "regression");
        memset(ran->execution.method, 'm', sizeof ran->execution.method - 1);
        ran->timing = (struct blasd_timing){.upload_us = 1234567,
                                            .compute_us = 123456789,
                                            .download_us = 1234567,
                                            .total_us = 1234567890};
        ran->execution.flops = 1e15;
        ran->execution.bytes = ran->upload_bytes = ran->download_bytes = INT64_C(1) << 36;
        ran->execution.energy_joules = 1234.5678901234567;
    }
    for (enum blasd_format format = BLASD_FORMAT_JSON; format <= BLASD_FORMAT_SAFETENSORS;
         format++) {
        struct blasd_answer *answer = blasd_answer_new(&record, NULL, -1, format);
        assert_non_null(answer);
        assert_true(blasd_answer_size(answer) > STEPS * 400);
        blasd_answer_free(answer);
    }
    free(graph);
}

static void what_cannot_be_answered(void **state) {
    unsigned char payload[64] = {0};
    struct blasd_record record;
    (void)state;
    make_record(&record);
    add_output(&record, 0, BLASD_bfloat16, SHAPE(4));
    add_output(&record, 2, BLASD_float32, SHAPE(2, 0));
    assert_true(blasd_answer_possible(&record, 0, BLASD_FORMAT_JSON));
    assert_true(blasd_answer_possible(&record, 0, BLASD_FORMAT_SAFETENSORS));
    assert_false(blasd_answer_possible(&record, 0, BLASD_FORMAT_NPY));
    assert_true(blasd_answer_possible(&record, 2, BLASD_FORMAT_NPY));
    assert_true(blasd_answer_possible(&record, -1, BLASD_FORMAT_SAFETENSORS));
    assert_false(blasd_answer_possible(&record, -1, BLASD_FORMAT_NPY));
    assert_false(blasd_answer_possible(&record, 1, BLASD_FORMAT_JSON)); /* absent */
    assert_false(blasd_answer_possible(&record, 3, BLASD_FORMAT_JSON)); /* the operation has none */
    assert_false(blasd_answer_possible(&record, -2, BLASD_FORMAT_JSON));
    assert_false(blasd_answer_possible(&record, 4000, BLASD_FORMAT_JSON));
    assert_null(blasd_answer_new(&record, payload, 0, BLASD_FORMAT_NPY));
    assert_null(blasd_answer_new(&record, payload, 1, BLASD_FORMAT_JSON));
    assert_null(blasd_answer_new(&record, NULL, 0, BLASD_FORMAT_JSON));
    record.state = BLASD_FAILED;
    assert_false(blasd_answer_possible(&record, 0, BLASD_FORMAT_JSON));
    blasd_answer_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_read_back_bit_for_bit),
        cmocka_unit_test(floats_read_back_bit_for_bit),
        cmocka_unit_test(complex_numbers_are_pairs),
        cmocka_unit_test(every_half_reads_back),
        cmocka_unit_test(integers_and_booleans_are_exact),
        cmocka_unit_test(lists_nest_as_the_shape_says),
        cmocka_unit_test(empty_tensors_are_empty_lists),
        cmocka_unit_test(all_outputs_come_in_the_job_document),
        cmocka_unit_test(payloads_need_no_alignment),
        cmocka_unit_test(safetensors_hold_what_the_header_says),
        cmocka_unit_test(one_output_as_safetensors),
        cmocka_unit_test(files_are_cut_anywhere),
        cmocka_unit_test(npy_headers_are_numpys),
        cmocka_unit_test(graphs_of_any_length_are_answered),
        cmocka_unit_test(what_cannot_be_answered),
    };
    return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
