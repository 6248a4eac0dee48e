/* Documents on their way out: jobs, problems, operations; and the Accept header. */
#include "tests/unit/wire/answer_support.h"

#include <math.h>

static json_t *document_of(const struct blasd_record *record, const void *payload,
                           uint64_t inline_elements) {
    struct blasd_buf text;
    json_t *root;
    blasd_buf_init(&text, 1 << 20);
    assert_int_equal(blasd_job_document(record, payload, inline_elements, false, &text), 0);
    root = parse(&text);
    blasd_buf_release(&text);
    return root;
}

static double member_number(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void a_job_document_says_everything(void **state) {
    double payload[4] = {19, 22, 43, 50};
    const int64_t shape[] = {2, 2};
    struct blasd_record record;
    json_t *root, *part;
    (void)state;
    make_record(&record);
    add_output(&record, 0, BLASD_float64, 2, shape);
    snprintf(record.execution.device_name, sizeof record.execution.device_name, "two cores");
    snprintf(record.execution.warnings[0].text, BLASD_WARNING_MAX, "ill-conditioned");
    record.execution.warning_count = 1;
    root = document_of(&record, payload, 4);
    assert_member(root, "id", ID);
    assert_member(root, "op", "sample");
    assert_member(root, "state", "succeeded");
    assert_member(root, "priority", "normal");
    assert_member(root, "device", "cpu"); /* where it ran */
    assert_member(root, "created_at", "2023-11-14T22:13:20.123456Z");
    assert_member(root, "started_at", "2023-11-14T22:13:20.200000Z");
    assert_member(root, "finished_at", "2023-11-14T22:13:21.000000Z");
    assert_true(member_number(root, "progress") == 1);
    assert_null(json_object_get(root, "error"));
    part = json_object_get(root, "timing");
    assert_int_equal(json_object_size(part), 7);
    assert_true(member_number(part, "receive_ms") == 0.001);
    assert_true(member_number(part, "queue_ms") == 1.5);
    assert_true(member_number(part, "batch_wait_ms") == 0);
    assert_true(member_number(part, "upload_ms") == 0);
    assert_true(member_number(part, "compute_ms") == 0);
    assert_true(member_number(part, "download_ms") == 0);
    assert_true(member_number(part, "total_ms") == 2000);
    part = json_object_get(root, "execution");
    assert_member(part, "device", "cpu:0");
    assert_member(part, "device_name", "two cores");
    assert_member(part, "method", "dgemm");
    assert_int_equal(json_integer_value(json_object_get(part, "batch_size")), 3);
    assert_int_equal(json_integer_value(json_object_get(part, "attempts")), 0);
    assert_int_equal(json_integer_value(json_object_get(part, "flops")), 2000000000);
    assert_int_equal(json_integer_value(json_object_get(part, "bytes")), 96);
    assert_null(json_object_get(part, "energy_joules"));
    assert_string_equal(json_string_value(json_array_get(json_object_get(part, "warnings"), 0)),
                        "ill-conditioned");
    part = json_object_get(json_object_get(root, "outputs"), "c");
    assert_member(part, "dtype", "float64");
    assert_member(part, "href", "/jobs/" ID "/outputs/c");
    part = json_array_get(json_array_get(json_object_get(part, "data"), 1), 0);
    assert_true(json_number_value(part) == 43);
    json_decref(root);
}

/* A share of the batch's time and energy, by the prices there are. */
static void a_job_has_a_cost(void **state) {
    struct blasd_prices prices = {.per_kwh = 0.5, .currency = "EUR"};
    struct blasd_record record;
    json_t *root, *cost;
    (void)state;
    make_record(&record);
    record.timing.upload_us = 1000000;
    record.timing.compute_us = 6000000;
    record.timing.download_us = 2000000;
    root = document_of(&record, NULL, 4);
    assert_null(json_object_get(root, "cost")); /* nothing has a price */
    json_decref(root);
    record.prices = &prices;
    root = document_of(&record, NULL, 4);
    assert_true(json_is_null(json_object_get(root, "cost"))); /* this has none */
    json_decref(root);
    prices.per_hour[BLASD_DEVICE_CPU] = 36;
    prices.priced[BLASD_DEVICE_CPU] = true;
    record.execution.energy_joules = 3 * 3.6e6; /* of three jobs */
    root = document_of(&record, NULL, 4);
    cost = json_object_get(root, "cost");
    assert_int_equal(json_object_size(cost), 7);
    assert_member(cost, "currency", "EUR");
    assert_member(cost, "device", "cpu");
    assert_true(member_number(cost, "device_s") == 3);
    assert_true(member_number(cost, "per_hour") == 36);
    assert_true(member_number(cost, "energy_joules") == 3.6e6);
    assert_true(member_number(cost, "per_kwh") == 0.5);
    assert_true(fabs(member_number(cost, "amount") - 0.53) < 1e-12);
    json_decref(root);
    record.execution.device[0] = '\0'; /* it has not begun */
    root = document_of(&record, NULL, 4);
    assert_null(json_object_get(root, "cost"));
    json_decref(root);
}

static void labels_stand_in_the_document(void **state) {
    struct blasd_record record;
    json_t *root, *labels;
    (void)state;
    make_record(&record);
    root = document_of(&record, NULL, 4);
    assert_null(json_object_get(root, "labels"));
    json_decref(root);
    snprintf(record.labels, sizeof record.labels, "bare=,project=thesis,x/y=a:b@c+d");
    root = document_of(&record, NULL, 4);
    labels = json_object_get(root, "labels");
    assert_int_equal(json_object_size(labels), 3);
    assert_member(labels, "bare", "");
    assert_member(labels, "project", "thesis");
    assert_member(labels, "x/y", "a:b@c+d");
    json_decref(root);
}

static void large_outputs_carry_href_alone(void **state) {
    static double payload[5000];
    const int64_t shape[] = {5000}, hollow[] = {100000, 0};
    struct blasd_record record;
    json_t *root, *output;
    (void)state;
    make_record(&record);
    add_output(&record, 0, BLASD_float64, 1, shape);
    add_output(&record, 2, BLASD_float64, 2, hollow); /* no elements, but so many lists */
    root = document_of(&record, payload, 4999);
    output = json_object_get(json_object_get(root, "outputs"), "c");
    assert_null(json_object_get(output, "data"));
    assert_non_null(json_object_get(output, "href"));
    output = json_object_get(json_object_get(root, "outputs"), "flag");
    assert_null(json_object_get(output, "data"));
    json_decref(root);
    root = document_of(&record, payload, 5000);
    output = json_object_get(json_object_get(root, "outputs"), "c");
    assert_int_equal(json_array_size(json_object_get(output, "data")), 5000);
    json_decref(root);
    root = document_of(&record, NULL, 5000);
    output = json_object_get(json_object_get(root, "outputs"), "c");
    assert_null(json_object_get(output, "data"));
    json_decref(root);
}

static json_t *remaining_of(struct blasd_record *record, enum blasd_state state, int64_t us) {
    json_t *root, *remaining;
    record->state = state;
    record->remaining_us = us;
    root = document_of(record, NULL, 100);
    remaining = json_incref(json_object_get(root, "remaining_ms"));
    json_decref(root);
    return remaining;
}

/* Only of what runs, and where it is known. */
static void what_a_job_has_left(void **state) {
    struct blasd_record record;
    json_t *left;
    (void)state;
    make_record(&record);
    left = remaining_of(&record, BLASD_RUNNING, 1500);
    assert_true(json_number_value(left) == 1.5);
    json_decref(left);
    left = remaining_of(&record, BLASD_RUNNING, 0);
    assert_true(json_is_number(left) && json_number_value(left) == 0);
    json_decref(left);
    assert_null(remaining_of(&record, BLASD_RUNNING, -1));
    assert_null(remaining_of(&record, BLASD_QUEUED, 1500));
    assert_null(remaining_of(&record, BLASD_SUCCEEDED, 1500));
}

static void a_queued_job_has_nulls(void **state) {
    struct blasd_record record;
    json_t *root, *part;
    (void)state;
    make_record(&record);
    record.state = BLASD_QUEUED;
    record.started_us = record.finished_us = 0;
    record.progress = 0;
    memset(&record.execution, 0, sizeof record.execution);
    root = document_of(&record, NULL, 100);
    assert_member(root, "state", "queued");
    assert_true(json_is_null(json_object_get(root, "started_at")));
    assert_true(json_is_null(json_object_get(root, "finished_at")));
    assert_int_equal(json_object_size(json_object_get(root, "outputs")), 0);
    assert_true(json_is_object(json_object_get(root, "outputs")));
    part = json_object_get(root, "execution");
    assert_true(json_is_null(json_object_get(part, "device")));
    assert_true(json_is_array(json_object_get(part, "warnings")));
    assert_member(root, "device", "auto");
    json_decref(root);
    record.device = BLASD_DEVICE_CUDA; /* it was sent there */
    root = document_of(&record, NULL, 100);
    assert_member(root, "device", "cuda");
    json_decref(root);
    snprintf(record.execution.device, sizeof record.execution.device, "cpu:0"); /* and ran here */
    root = document_of(&record, NULL, 100);
    assert_member(root, "device", "cpu");
    json_decref(root);
    snprintf(record.execution.device, sizeof record.execution.device, "tpu:0");
    root = document_of(&record, NULL, 100);
    assert_member(root, "device", "cuda");
    json_decref(root);
}

static void a_failed_job_says_why(void **state) {
    struct blasd_record record;
    json_t *root, *error;
    (void)state;
    make_record(&record);
    record.state = BLASD_FAILED;
    blasd_fail(&record.error, BLASD_E_singular_matrix, "inputs.a", "pivot %d is 0", 3);
    root = document_of(&record, NULL, 100);
    error = json_object_get(root, "error");
    assert_member(error, "type", "/errors/singular_matrix");
    assert_member(error, "code", "singular_matrix");
    assert_member(error, "detail", "pivot 3 is 0");
    assert_member(error, "field", "inputs.a");
    assert_int_equal(json_integer_value(json_object_get(error, "status")), 422);
    assert_true(json_is_false(json_object_get(error, "retry")));
    json_decref(root);
    record.state = BLASD_RUNNING; /* no error while it runs */
    root = document_of(&record, NULL, 100);
    assert_null(json_object_get(root, "error"));
    json_decref(root);
}

static void energy_where_the_card_tells(void **state) {
    struct blasd_record record;
    json_t *root;
    (void)state;
    make_record(&record);
    record.execution.energy_joules = 12.5;
    root = document_of(&record, NULL, 100);
    assert_true(member_number(json_object_get(root, "execution"), "energy_joules") == 12.5);
    json_decref(root);
}

static void strange_values_still_give_json(void **state) {
    struct blasd_record record;
    json_t *root, *timing;
    (void)state;
    make_record(&record);
    record.created_us = INT64_MIN;
    record.finished_us = INT64_MAX;
    record.progress = NAN;
    record.execution.flops = INFINITY;
    record.execution.energy_joules = INFINITY;
    record.execution.batch_size = -1;
    record.timing.queue_us = -1500;
    record.timing.total_us = INT64_MIN;
    snprintf(record.op, sizeof record.op, "gone\"");
    root = document_of(&record, NULL, 100);
    assert_member(root, "op", "gone\"");
    assert_null(json_object_get(json_object_get(root, "execution"), "energy_joules"));
    assert_true(json_is_null(json_object_get(root, "created_at")));
    assert_true(json_is_null(json_object_get(root, "finished_at")));
    timing = json_object_get(root, "timing");
    assert_true(member_number(timing, "queue_ms") == -1.5);
    assert_true(member_number(timing, "total_ms") == -9223372036854775.808);
    json_decref(root);
}

static void problems_are_documents(void **state) {
    struct blasd_err problem;
    struct blasd_buf text;
    json_t *root;
    (void)state;
    blasd_buf_init(&text, 1 << 16);
    for (int code = 1; code < BLASD_E_COUNT; code++) {
        const struct blasd_err_info *info = blasd_err_info((enum blasd_code)code);
        char type[80];
        blasd_fail(&problem, (enum blasd_code)code, code % 2 == 0 ? "" : "inputs.a", "%s",
                   "a \"b\" \\ \x01\x1f\x7f \t\r\n \xe2\x82\xac");
        blasd_buf_reset(&text);
        assert_int_equal(blasd_problem_document(&problem, &text), 0);
        root = parse(&text);
        snprintf(type, sizeof type, "/errors/%s", info->name);
        assert_member(root, "type", type);
        assert_member(root, "title", info->title);
        assert_member(root, "code", info->name);
        assert_member(root, "advice", info->advice);
        assert_member(root, "detail", problem.detail);
        assert_int_equal(json_integer_value(json_object_get(root, "status")), info->http_status);
        assert_int_equal(json_is_true(json_object_get(root, "retry")), info->retry);
        assert_int_equal(json_object_get(root, "field") != NULL, code % 2 == 1);
        json_decref(root);
    }
    blasd_buf_release(&text);
}

/* `bad` stands in a detail; what JSON text comes out. */
static void expect_detail(const char *detail, const char *expected) {
    struct blasd_err problem;
    struct blasd_buf text;
    char member[600];
    blasd_fail(&problem, BLASD_E_queue_full, "", "%s", detail);
    blasd_buf_init(&text, 1 << 16);
    assert_int_equal(blasd_problem_document(&problem, &text), 0);
    json_decref(parse(&text));
    snprintf(member, sizeof member, "\"detail\":\"%s\",", expected);
    if (memmem(text.data, text.len, member, strlen(member)) == NULL)
        fail_msg("%s not in %.*s", member, (int)text.len, text.data);
    blasd_buf_release(&text);
}

static void text_is_escaped_and_made_utf8(void **state) {
#define FFFD "\xef\xbf\xbd"
    (void)state;
    expect_detail("", "");
    expect_detail("\"\\/\b\f\n\r\t\x01", "\\\"\\\\/\\u0008\\u000c\\n\\r\\t\\u0001");
    expect_detail("\x7f", "\\u007f");
    expect_detail("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    expect_detail("\x80x", FFFD "x");
    expect_detail("\xc3", FFFD);
    expect_detail("\xc3(", FFFD "(");
    expect_detail("\xc0\xaf", FFFD FFFD);                   /* overlong */
    expect_detail("\xe0\x80\x80", FFFD FFFD FFFD);          /* overlong */
    expect_detail("\xed\xa0\x80", FFFD FFFD FFFD);          /* a surrogate */
    expect_detail("\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD); /* above U+10FFFF */
    expect_detail("\xe2\x82", FFFD FFFD);                   /* cut */
    expect_detail("\xff\xfe", FFFD FFFD);
}

/* Text is read in words: a byte must be seen wherever in one it lies, beside whatever. */
static void every_byte_is_escaped_at_every_place(void **state) {
    static const char around[] = "abcdefghijklmnopqrstuvw";
    (void)state;
    for (int c = 1; c < 256; c++) {
        char as[8] = {(char)c};
        if (c == '"' || c == '\\')
            snprintf(as, sizeof as, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(as, sizeof as, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (c < 0x20 || c == 0x7f)
            snprintf(as, sizeof as, "\\u%04x", c);
        else if (c >= 0x80)
            strcpy(as, FFFD); /* alone, it begins nothing that goes on */
        for (int at = 0; at < (int)sizeof around; at++) {
            char detail[64], expected[64];
            snprintf(detail, sizeof detail, "%.*s%c%s", at, around, c, around + at);
            snprintf(expected, sizeof expected, "%.*s%s%s", at, around, as, around + at);
            expect_detail(detail, expected);
        }
    }
}

static void documents_keep_to_the_cap(void **state) {
    static double payload[1000];
    const int64_t shape[] = {1000};
    struct blasd_record record;
    struct blasd_err problem = {.code = BLASD_E_queue_full};
    struct blasd_buf whole, text;
    (void)state;
    make_record(&record);
    add_output(&record, 0, BLASD_float64, 1, shape);
    blasd_buf_init(&whole, 1 << 20);
    assert_int_equal(blasd_job_document(&record, payload, 1000, false, &whole), 0);
    for (size_t cap = 0; cap < whole.len; cap += 1 + cap / 50) {
        blasd_buf_init(&text, cap);
        assert_int_equal(blasd_job_document(&record, payload, 1000, false, &text), -1);
        assert_int_equal(text.len, 0);
        blasd_buf_release(&text);
    }
    blasd_buf_init(&text, whole.len);
    assert_int_equal(blasd_job_document(&record, payload, 1000, false, &text), 0);
    assert_memory_equal(text.data, whole.data, whole.len);
    assert_int_equal(blasd_problem_document(&problem, &text), -1);
    assert_int_equal(blasd_ops_document(NULL, &text), -1);
    assert_int_equal(text.len, whole.len);
    blasd_buf_release(&text);
    blasd_buf_release(&whole);
}

static void operations_describe_themselves(void **state) {
    struct blasd_buf text;
    json_t *root, *op, *port, *param, *range;
    (void)state;
    blasd_buf_init(&text, 1 << 20);
    assert_int_equal(blasd_ops_document(NULL, &text), 0);
    root = parse(&text);
    assert_int_equal(json_array_size(json_object_get(root, "ops")), 2);
    op = json_array_get(json_object_get(root, "ops"), 0);
    assert_member(op, "name", "sample");
    assert_member(op, "summary", "A sample");
    assert_int_equal(json_array_size(json_object_get(op, "inputs")), 3);
    port = json_array_get(json_object_get(op, "inputs"), 2);
    assert_member(port, "name", "sample_weight");
    assert_member(port, "shape", "(n)");
    assert_member(port, "doc", "Weights \"w\" \\ of each row:\n\x01\xe2\x82\xac\xef\xbf\xbd.");
    assert_true(json_is_true(json_object_get(port, "optional")));
    assert_true(json_is_true(json_object_get(port, "finite")));
    assert_int_equal(json_integer_value(json_object_get(port, "min_rank")), 1);
    assert_int_equal(json_integer_value(json_object_get(port, "max_rank")), 1);
    range = json_object_get(port, "range");
    assert_true(json_number_value(json_object_get(range, "least")) == 0);
    assert_true(json_is_null(json_object_get(range, "most")));
    assert_true(json_is_false(json_object_get(range, "exclusive_least")));
    assert_true(json_is_true(json_object_get(port, "not_all_zero")));
    assert_null(json_object_get(json_array_get(json_object_get(op, "inputs"), 0), "range"));
    port = json_object_get(port, "dtypes");
    assert_int_equal(json_array_size(port), 2);
    assert_string_equal(json_string_value(json_array_get(port, 1)), "float32");
    assert_int_equal(json_array_size(json_object_get(op, "outputs")), 3);
    assert_int_equal(json_array_size(json_object_get(op, "params")), 4);
    param = json_array_get(json_object_get(op, "params"), 0);
    assert_member(param, "type", "bool");
    assert_true(json_is_true(json_object_get(param, "default")));
    param = json_array_get(json_object_get(op, "params"), 1);
    assert_member(param, "type", "int");
    assert_int_equal(json_integer_value(json_object_get(param, "default")), 5);
    range = json_object_get(param, "range");
    assert_true(json_number_value(json_object_get(range, "most")) == 1000);
    param = json_array_get(json_object_get(op, "params"), 2);
    assert_member(param, "type", "float");
    assert_true(json_real_value(json_object_get(param, "default")) == 0.1);
    range = json_object_get(param, "range");
    assert_true(json_is_null(json_object_get(range, "most")));
    assert_true(json_is_true(json_object_get(range, "exclusive_least")));
    param = json_array_get(json_object_get(op, "params"), 3);
    assert_member(param, "type", "choice");
    assert_member(param, "default", "native");
    assert_int_equal(json_array_size(json_object_get(param, "choices")), 3);
    json_decref(root);
    blasd_buf_reset(&text);
    assert_int_equal(blasd_ops_document(&plain_op, &text), 0);
    root = parse(&text);
    assert_member(root, "name", "plain");
    assert_int_equal(json_array_size(json_object_get(root, "params")), 0);
    json_decref(root);
    blasd_buf_release(&text);
}

/* The format that one or two headers get; -1: none. */
static int chosen(const char *first, const char *second, bool one) {
    struct blasd_accept accept = {0};
    enum blasd_format format;
    if (first != NULL) blasd_accept_add(&accept, first);
    if (second != NULL) blasd_accept_add(&accept, second);
    return blasd_accept_choose(&accept, one, &format) ? (int)format : -1;
}

static void several_accept_headers_are_one_list(void **state) {
    static const char npy[] = "application/x-npy", json[] = "application/json;q=0.5";
    (void)state;
    assert_int_equal(chosen(npy, json, true), BLASD_FORMAT_NPY);
    assert_int_equal(chosen(json, npy, true), BLASD_FORMAT_NPY);
    assert_int_equal(chosen(json, npy, false), BLASD_FORMAT_JSON);
    assert_int_equal(chosen("text/html", npy, true), BLASD_FORMAT_NPY);
    assert_int_equal(chosen("", npy, true), BLASD_FORMAT_NPY);
    assert_int_equal(chosen("text/html", "image/png", true), -1);
    assert_int_equal(chosen("application/json;q=0.1, */*;q=0.2", "application/json;q=0.9", true),
                     BLASD_FORMAT_JSON);
}

static void accept_headers_choose_the_format(void **state) {
    enum { J = BLASD_FORMAT_JSON, S = BLASD_FORMAT_SAFETENSORS, N = BLASD_FORMAT_NPY, NONE = -1 };
    static const struct {
        const char *accept;
        int one, all; /* with and without .npy */
    } cases[] = {
        {NULL, J, J},
        {"", J, J},
        {" ", J, J},
        {"*/*", J, J},
        {"application/*", J, J},
        {"application/json", J, J},
        {"Application/JSON; charset=utf-8", J, J},
        {"application/x-safetensors", S, S},
        {"application/octet-stream", S, S},
        {"application/x-npy", N, NONE},
        {"application/x-npy, */*", N, J},
        {"application/x-npy;q=0.5, application/json;q=0.4", N, J},
        {"application/json;q=0.5,application/x-safetensors", S, S},
        {"application/json,application/x-safetensors", J, J},
        {"application/x-safetensors,application/json", J, J},
        {"application/x-safetensors ; q=0.9 , application/json ; q=0.8", S, S},
        {"application/json;q=0, */*", S, S},
        {"application/json;q=0", NONE, NONE},
        {"*/*;q=0", NONE, NONE},
        {"*/*;q=0, application/x-npy", N, NONE},
        {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", J, J},
        {"text/html", NONE, NONE},
        {"application/json;q=2", NONE, NONE},
        {"application/json;q=", NONE, NONE},
        {"application/json;q=0.1234", NONE, NONE},
        {"application/json;q=1.001", NONE, NONE},
        {"application/json;q=1.000", J, J},
        {"application/json;q=0.001", J, J},
        {"application/json;q=x, application/x-safetensors;q=0.1", S, S},
        {"application/json;profile=\"a,b;q=0\";q=0.3, application/x-safetensors;q=0.2", J, J},
        {"application/json;profile=\"unclosed, application/x-safetensors", J, J},
        {"application", NONE, NONE},
        {"json", NONE, NONE},
        {"/", NONE, NONE},
        {",,, application/x-npy ,,", N, NONE},
        {";q=1", NONE, NONE},
        {"application/octet-stream;q=0.2, application/x-safetensors;q=0.7, application/json;q=0.5",
         S, S},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int one = chosen(cases[i].accept, NULL, true), all = chosen(cases[i].accept, NULL, false);
        if (one != cases[i].one || all != cases[i].all)
            fail_msg("Accept: %s gave %d and %d", cases[i].accept, one, all);
    }
    assert_string_equal(blasd_format_type(BLASD_FORMAT_NPY), "application/x-npy");
    assert_string_equal(blasd_format_type(BLASD_FORMAT_JSON), "application/json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_document_says_everything),
        cmocka_unit_test(a_job_has_a_cost),
        cmocka_unit_test(labels_stand_in_the_document),
        cmocka_unit_test(large_outputs_carry_href_alone),
        cmocka_unit_test(what_a_job_has_left),
        cmocka_unit_test(a_queued_job_has_nulls),
        cmocka_unit_test(a_failed_job_says_why),
        cmocka_unit_test(energy_where_the_card_tells),
        cmocka_unit_test(strange_values_still_give_json),
        cmocka_unit_test(problems_are_documents),
        cmocka_unit_test(text_is_escaped_and_made_utf8),
        cmocka_unit_test(every_byte_is_escaped_at_every_place),
        cmocka_unit_test(documents_keep_to_the_cap),
        cmocka_unit_test(operations_describe_themselves),
        cmocka_unit_test(accept_headers_choose_the_format),
        cmocka_unit_test(several_accept_headers_are_one_list),
    };
    return cmocka_run_group_tests_name("answer_document", tests, NULL, NULL);
}
