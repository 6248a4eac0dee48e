/* What the C client refuses before it sends anything, what it does not send twice, and what it says
 * of a service that is not there. A thread stands in for the service. */
#include "clients/c/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- a service that says what a test wants */

struct pretender {
    int listener;
    char url[64];
    pthread_t thread;
    char methods[16]; /* of the requests that came, in order: G, P or D */
    size_t count;
    const char *silent; /* an answer to each '1', the end of the connection to each '0' */
    char document[256];
};

static void fill_address(struct sockaddr_in *address) {
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

/* A socket of a free port of its own; its URL in `url`. */
static int bound_socket(char *url, size_t room) {
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    fill_address(&address);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    snprintf(url, room, "http://127.0.0.1:%d", ntohs(address.sin_port));
    return fd;
}

/* Whether a request has come, whole. */
static bool take_request(int fd, char *first) {
    static char text[1 << 16];
    size_t len = 0, wanted = SIZE_MAX;
    while (len < wanted) {
        ssize_t n = read(fd, text + len, sizeof text - 1 - len);
        const char *end, *length;
        if (n <= 0) return false;
        len += (size_t)n;
        text[len] = '\0';
        end = strstr(text, "\r\n\r\n");
        if (end == NULL) continue;
        length = strcasestr(text, "\r\ncontent-length:");
        wanted = (size_t)(end + 4 - text);
        if (length != NULL && length < end) wanted += strtoul(length + 17, NULL, 10);
    }
    *first = text[0];
    return true;
}

static void *pretend(void *arg) {
    struct pretender *p = arg;
    int fd;
    while ((fd = accept(p->listener, NULL, NULL)) >= 0) {
        char first, answer[512];
        while (p->count < sizeof p->methods - 1 && take_request(fd, &first)) {
            bool speaks = p->silent[p->count] == '1';
            p->methods[p->count++] = first;
            if (!speaks) break;
            snprintf(answer, sizeof answer,
                     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                     "%zu\r\n\r\n%s",
                     strlen(p->document), p->document);
            if (write(fd, answer, strlen(answer)) < 0) break;
        }
        close(fd);
    }
    return NULL;
}

static void start(struct pretender *p, const char *answers) {
    memset(p, 0, sizeof *p);
    p->silent = answers;
    snprintf(p->document, sizeof p->document,
             "{\"id\":\"x\",\"op\":\"matmul\",\"state\":\"queued\",\"progress\":0}");
    p->listener = bound_socket(p->url, sizeof p->url);
    assert_int_equal(listen(p->listener, 8), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, pretend, p), 0);
}

static void stop(struct pretender *p) {
    shutdown(p->listener, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->listener);
}

/* --- tensors */

static void expect_kept_is_refused(const struct blasd_put *put, const char *words) {
    struct blasd_client *client = blasd_client_new("http://127.0.0.1:9");
    struct blasd_problem problem = {0};
    struct blasd_tensor_info tensor;
    assert_int_equal(blasd_tensor_put(client, put, &tensor, &problem), -1);
    if (strstr(problem.message, words) == NULL) fail_msg("%s, not %s", problem.message, words);
    assert_string_equal(tensor.id, "");
    blasd_client_free(client);
}

static void test_what_cannot_be_kept_is_not_sent(void **state) {
    static const double one[1] = {1};
    struct blasd_array array = {.dtype = "float64", .rank = 1, .shape = {1}, .data = one};
    (void)state;
    expect_kept_is_refused(&(struct blasd_put){.life_s = 1}, "one of them");
    expect_kept_is_refused(&(struct blasd_put){.array = &array, .path = "a.npy"}, "one of them");
    expect_kept_is_refused(&(struct blasd_put){.array = &array, .life_s = -1}, "a life of -1");
    expect_kept_is_refused(&(struct blasd_put){.array = &array, .reserved = {1}}, "`reserved`");
    array.reserved[0] = 1;
    expect_kept_is_refused(&(struct blasd_put){.array = &array}, "`reserved`");
    array = (struct blasd_array){.dtype = "float65", .rank = 1, .shape = {1}, .data = one};
    expect_kept_is_refused(&(struct blasd_put){.array = &array}, "float65");
    array = (struct blasd_array){.dtype = "float64", .rank = 1, .shape = {1}};
    expect_kept_is_refused(&(struct blasd_put){.array = &array}, "no data");
}

static void test_what_is_the_id_of_no_tensor_is_not_asked_for(void **state) {
    static const char *const bad[] = {NULL, "", "../jobs", "t 1", "t?x"};
    struct blasd_client *client = blasd_client_new("http://127.0.0.1:9");
    struct blasd_tensor_info tensor;
    struct blasd_problem problem;
    struct blasd_reply *reply;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(blasd_tensor_look(client, bad[i], &tensor, &problem), -1);
        assert_int_equal(blasd_tensor_get(client, bad[i], &reply, &problem), -1);
        assert_null(reply);
        assert_int_equal(blasd_tensor_delete(client, bad[i], &problem), -1);
        assert_non_null(strstr(problem.message, "is not the id of a tensor"));
    }
    blasd_client_free(client);
}

static void test_queued_and_running_jobs_have_not_ended(void **state) {
    static const char *const states[] = {"queued", "running", "succeeded", "failed"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        char *text = NULL;
        struct blasd_problem problem;
        struct blasd_reply *reply;
        assert_true(asprintf(&text, "{\"id\":\"x\",\"state\":\"%s\"}", states[i]) > 0);
        reply = blasd_reply_parse((unsigned char *)text, strlen(text), false, &problem);
        assert_non_null(reply);
        assert_int_equal(blasd_reply_ended(reply), i >= 2);
        blasd_reply_free(reply);
    }
}

/* --- requests */

static double one[1] = {1};
static struct blasd_array good[2] = {
    {.name = "a", .dtype = "float64", .rank = 2, .shape = {1, 1}, .data = one},
    {.name = "b", .dtype = "float64", .rank = 2, .shape = {1, 1}, .data = one}};
static const struct blasd_request product = {.op = "matmul", .inputs = good, .input_count = 2};

static int ask(struct blasd_client *client, struct blasd_problem *problem) {
    struct blasd_reply *reply = NULL;
    int code = blasd_client_get(client, "x", 0, &reply, problem);
    blasd_reply_free(reply);
    return code;
}

static int post(struct blasd_client *client, const struct blasd_request *request,
                struct blasd_problem *problem) {
    struct blasd_reply *reply = NULL;
    int code = blasd_client_submit(client, request, 0, &reply, problem);
    blasd_reply_free(reply);
    return code;
}

static void expect_refused(const struct blasd_request *request, const char *words) {
    struct blasd_client *client = blasd_client_new("http://127.0.0.1:9");
    struct blasd_problem problem = {0};
    struct blasd_reply *reply;
    assert_int_equal(post(client, request, &problem), -1);
    assert_string_not_equal(problem.code, "connection_failed");
    if (strstr(problem.message, words) == NULL) fail_msg("%s, not %s", problem.message, words);
    memset(&problem, 0, sizeof problem);
    assert_int_equal(blasd_client_run(client, request, 1, NULL, NULL, &reply, &problem), -1);
    assert_non_null(strstr(problem.message, words));
    assert_false(problem.retry);
    blasd_client_free(client);
}

static void test_bad_inputs_are_named_with_what_is_wrong(void **state) {
    struct blasd_array bad[2];
    struct blasd_request request = {.op = "matmul", .inputs = bad, .input_count = 2};
    struct blasd_file file = {.name = "a"};
    (void)state;
#define TRY(words, ...)                                                                            \
    do {                                                                                           \
        memcpy(bad, good, sizeof bad);                                                             \
        __VA_ARGS__;                                                                               \
        expect_refused(&request, words);                                                           \
    } while (0)
    TRY("'b' has no data", bad[1].data = NULL);
    TRY("'a' has no data", bad[0].data = NULL; bad[0].rank = 0);
    TRY("no name", bad[0].name = NULL);
    TRY("no name", bad[0].name = "");
    TRY("'a' has no dtype", bad[0].dtype = NULL);
    TRY("'b' has the dtype 'float128'", bad[1].dtype = "float128");
    TRY("rank 9", bad[0].rank = 9);
    TRY("rank -1", bad[0].rank = -1);
    TRY("length -3 in dimension 1", bad[0].shape[1] = -3);
    TRY("more bytes", bad[0].shape[0] = bad[0].shape[1] = INT64_C(1) << 40);
    TRY("has none", request.inputs = NULL);
    request.inputs = bad;
    TRY("no op", request.op = NULL);
    request.op = "matmul";
    TRY("'a' is given twice", bad[1].name = "a");
    TRY("an input has `reserved`", bad[1].reserved[1] = 1);
    TRY("the request has `reserved`", request.reserved[0] = 1);
    request.reserved[0] = 0;
    TRY("deadline of -5", request.deadline_ms = -5);
    request.deadline_ms = 0;
    TRY("idempotency key", request.idempotency_key = "k\r\nHost: x");
    TRY("idempotency key", request.idempotency_key = "");
    request = (struct blasd_request){.op = "matmul", .files = &file, .file_count = 1};
    expect_refused(&request, "no path");
    file = (struct blasd_file){.name = "a", .path = "/dev/null", .reserved = {1}};
    expect_refused(&request, "a file has `reserved`");
    file = (struct blasd_file){.name = "c", .path = "/dev/null"};
    request.inputs = good;
    request.input_count = 2;
    expect_refused(&request, "one way"); /* one of them would be left out */
    request.input_count = 0;
    request.shared = (const struct blasd_shared *)&request;
    expect_refused(&request, "one way");
    request.shared = NULL;
    request.files = NULL;
    expect_refused(&request, "has none");
    expect_refused(NULL, "the request is NULL");
}

static void test_ids_and_names_that_are_none(void **state) {
    struct blasd_client *client = blasd_client_new("http://127.0.0.1:9");
    static const char *const ids[] = {NULL, "", "x?forget=1", "../ops", "x y", "x\r\n"};
    struct blasd_problem problem;
    struct blasd_reply *reply;
    (void)state;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        assert_int_equal(blasd_client_get(client, ids[i], 0, &reply, &problem), -1);
        assert_string_equal(problem.code, "invalid_request");
        assert_int_equal(blasd_client_cancel(client, ids[i], &reply, &problem), -1);
        assert_string_equal(problem.code, "invalid_request");
        assert_int_equal(blasd_client_save(client, "x", ids[i], "/dev/null", &problem), -1);
        assert_string_equal(problem.code, "unknown_output");
    }
    assert_int_equal(blasd_client_jobs(client, "state=a b", &reply, &problem), -1);
    assert_string_equal(problem.code, "invalid_request");
    assert_int_equal(blasd_client_save(client, "x", "c", NULL, &problem), -1);
    assert_string_equal(problem.code, "file_not_writable");
    assert_int_equal(blasd_tensor_save(client, "x", NULL, &problem), -1);
    assert_string_equal(problem.code, "file_not_writable");
    blasd_client_free(client);
}

/* What would be a header of its own, or a number that means nothing. */
static void test_what_a_client_is_not_set_to(void **state) {
    struct blasd_client *client = blasd_client_new("http://127.0.0.1:9");
    struct blasd_problem problem;
    (void)state;
    assert_int_equal(blasd_client_set_api_key(client, "a\nb", &problem), -1);
    assert_int_equal(blasd_client_set_api_key(client, "", &problem), -1);
    assert_int_equal(blasd_client_set_api_key(client, "good", &problem), 0);
    assert_int_equal(blasd_client_set_api_key(client, NULL, &problem), 0);
    assert_int_equal(blasd_client_set_header(client, "a b", "c", &problem), -1);
    assert_int_equal(blasd_client_set_header(client, "", "c", &problem), -1);
    assert_int_equal(blasd_client_set_header(client, "a", "c\r\nd: e", &problem), -1);
    assert_int_equal(blasd_client_set_header(client, "a", "c", &problem), 0);
    assert_int_equal(blasd_client_set_retries(client, -1, &problem), -1);
    assert_int_equal(blasd_client_set_retries(client, 3, &problem), 0);
    assert_int_equal(blasd_client_set_silence(client, 0, &problem), -1);
    assert_int_equal(blasd_client_set_silence(client, (double)NAN, &problem), -1);
    assert_int_equal(blasd_client_set_tls(client, "/nonexistent", NULL, NULL, true, &problem), -1);
    assert_string_equal(problem.code, "file_not_readable");
    assert_int_equal(blasd_client_set_tls(client, NULL, NULL, "/dev/null", true, &problem), -1);
    assert_string_equal(problem.code, "invalid_request");
    blasd_client_free(client);
}

/* libcurl asks for it bit by bit, and for nothing at all where it has no memory for a buffer. */
static void test_a_body_is_read_in_pieces_of_any_size(void **state) {
    struct blasd_upload upload = {
        .arrays = good, .count = 2, .header = (const unsigned char *)"head", .header_len = 4};
    char body[64], piece[64];
    (void)state;
    upload.total = upload.header_len + 2 * sizeof one;
    for (size_t size = 1; size < sizeof piece; size++) {
        size_t len = 0, n;
        assert_int_equal(blasd_upload_seek(&upload, 0, SEEK_SET), CURL_SEEKFUNC_OK);
        assert_int_equal(blasd_upload_read(piece, 1, 0, &upload), CURL_READFUNC_ABORT);
        while ((n = blasd_upload_read(piece, 1, size, &upload)) > 0) {
            assert_true(n <= size && len + n <= sizeof body);
            memcpy(body + len, piece, n);
            len += n;
        }
        assert_int_equal(len, upload.total);
        assert_memory_equal(body, "head", 4);
        assert_memory_equal(body + 4, one, sizeof one);
        assert_memory_equal(body + 4 + sizeof one, one, sizeof one);
    }
}

static void test_no_data_is_needed_where_there_are_no_elements(void **state) {
    struct blasd_array empty[2] = {{.name = "a", .dtype = "float64", .rank = 2, .shape = {0, 3}},
                                   {.name = "b", .dtype = "float64", .rank = 2, .shape = {3, 0}}};
    struct blasd_request request = {.op = "matmul", .inputs = empty, .input_count = 2};
    struct blasd_problem problem = {0};
    static struct pretender p;
    struct blasd_client *client;
    (void)state;
    start(&p, "1");
    client = blasd_client_new(p.url);
    assert_int_equal(post(client, &request, &problem), 0);
    blasd_client_free(client);
    stop(&p);
}

static void test_a_refused_connection_may_be_tried_again(void **state) {
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    char url[64], path[] = "/tmp/blasd-client-requests.npy";
    int fd = bound_socket(url, sizeof url); /* nobody listens there, and nobody else will */
    struct blasd_client *client = blasd_client_new(url);
    (void)state;
    for (int way = 0; way < 6; way++) {
        memset(&problem, 0, sizeof problem);
        assert_int_equal(way == 0   ? ask(client, &problem)
                         : way == 1 ? post(client, &product, &problem)
                         : way == 2
                             ? blasd_client_run(client, &product, 1, NULL, NULL, &reply, &problem)
                         : way == 3 ? blasd_client_cancel(client, "x", &reply, &problem)
                         : way == 4 ? blasd_client_share(client, &problem)
                                    : blasd_client_save(client, "x", "c", path, &problem),
                         -1);
        assert_string_equal(problem.code, "connection_failed");
        assert_true(problem.retry);
        assert_int_equal(problem.status, 0);
        assert_non_null(strstr(problem.message, url));
        assert_null(strstr(problem.message, "idempotency_key")); /* it was not sent */
    }
    blasd_client_free(client);
    close(fd);
}

/* The kept connection ends instead of an answer to the second request. */
static void expect_sent(const struct blasd_request *request, const char *methods, int rc) {
    struct blasd_problem problem = {0};
    struct blasd_client *client;
    static struct pretender p;
    start(&p, "101");
    client = blasd_client_new(p.url);
    assert_int_equal(ask(client, &problem), 0);
    assert_int_equal(request == NULL ? ask(client, &problem) : post(client, request, &problem), rc);
    assert_string_equal(p.methods, methods);
    if (rc != 0) {
        assert_string_equal(problem.code, "connection_failed");
        assert_true(problem.retry);
        assert_non_null(strstr(problem.message, "idempotency_key"));
    }
    blasd_client_free(client);
    stop(&p);
}

static void test_a_job_without_a_key_is_sent_once(void **state) {
    struct blasd_request keyed = product;
    (void)state;
    keyed.idempotency_key = "k";
    expect_sent(&product, "GP", -1);
    expect_sent(&keyed, "GPP", 0);
    expect_sent(NULL, "GGG", 0);
}

/* There is no key for one: what may be kept already would be kept twice. */
static void test_a_tensor_is_sent_once(void **state) {
    static const struct blasd_array array = {
        .dtype = "float64", .rank = 1, .shape = {1}, .data = one};
    (void)state;
    for (int retries = 0; retries < 2; retries++) {
        struct blasd_problem problem = {0};
        struct blasd_tensor_info tensor;
        struct blasd_client *client;
        static struct pretender p;
        start(&p, "10111");
        client = blasd_client_new(p.url);
        assert_int_equal(blasd_client_set_retries(client, 3 * retries, &problem), 0);
        assert_int_equal(ask(client, &problem), 0);
        assert_int_equal(
            blasd_tensor_put(client, &(struct blasd_put){.array = &array}, &tensor, &problem), -1);
        assert_string_equal(p.methods, "GP");
        assert_string_equal(problem.code, "connection_failed");
        assert_non_null(strstr(problem.message, "may have taken it"));
        blasd_client_free(client);
        stop(&p);
    }
}

static void test_passwords_are_in_no_message(void **state) {
    static const char *const hosts[] = {"user:pw@127.0.0.1:9", "pw@127.0.0.1:9",
                                        "u:pw@pw@127.0.0.1:9", ":pw@127.0.0.1:9/path"};
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        struct blasd_problem problem = {0};
        char url[64];
        struct blasd_client *client;
        snprintf(url, sizeof url, "http://%s", hosts[i]);
        client = blasd_client_new(url);
        assert_int_equal(ask(client, &problem), -1);
        assert_non_null(strstr(problem.message, "http://127.0.0.1:9"));
        assert_null(strstr(problem.message, "pw"));
        blasd_client_free(client);
    }
}

static void test_problems_read_as_sentences(void **state) {
    static const char *const texts[][2] = {
        {"{\"code\":\"c\",\"title\":\"T\",\"detail\":\"d\",\"advice\":\"A.\"}", "T: d. A."},
        {"{\"code\":\"c\",\"title\":\"T\",\"detail\":\"d\"}", "T: d"},
        {"{\"code\":\"c\",\"detail\":\"d\"}", "d"},
        {"{\"code\":\"c\",\"title\":\"T\",\"advice\":\"A.\"}", "T. A."},
        {"{\"code\":\"c\"}", ""},
        /* a gateway's own */
        {"{\"message\":\"busy\"}",
         "HTTP 422, and not in the service's words: {\"message\":\"busy\"}"},
        {"", "HTTP 422 and nothing more, as of a proxy before the service"}};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct blasd_problem problem;
        blasd_problem_parse(&problem, 422, texts[i][0], strlen(texts[i][0]));
        assert_string_equal(problem.message, texts[i][1]);
    }
}

/* A proxy's 200. */
static void test_good_answers_that_say_nothing(void **state) {
    static const char *const texts[][2] = {{"", "is empty"},
                                           {"<html>", "not the service's, but begins with: <html>"},
                                           {"[1]", "begins with: [1]"}};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct blasd_problem problem;
        size_t len = strlen(texts[i][0]);
        unsigned char *body = len == 0 ? NULL : malloc(len);
        if (body != NULL) memcpy(body, texts[i][0], len);
        assert_null(blasd_reply_parse(body, len, false, &problem));
        assert_string_equal(problem.code, "bad_answer");
        if (strstr(problem.message, texts[i][1]) == NULL) fail_msg("%s", problem.message);
    }
}

/* The bytes lie by the size of their elements: x of a float32 system comes last. */
static void test_arrays_come_in_the_order_of_the_operation(void **state) {
    static const char header[] =
        "{\"__metadata__\":{\"job\":\"{\\\"id\\\":\\\"1\\\",\\\"state\\\":\\\"succeeded\\\","
        "\\\"outputs\\\":{\\\"x\\\":{},\\\"gone\\\":{},"
        "\\\"info\\\":{}}}\"},"
        "\"more\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"info\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[8,16]},"
        "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[16,20]}}";
    static const char *const names[] = {"x", "info", "more"};
    size_t len = sizeof header - 1;
    unsigned char *body = calloc(1, 8 + len + 20);
    struct blasd_tensor_info tensor;
    struct blasd_problem problem;
    struct blasd_reply *reply;
    (void)state;
    assert_non_null(body);
    body[0] = (unsigned char)(len & 255);
    body[1] = (unsigned char)(len >> 8);
    memcpy(body + 8, header, len);
    reply = blasd_reply_parse(body, 8 + len + 20, true, &problem);
    assert_non_null(reply);
    for (int i = 0; i < 3; i++) assert_string_equal(blasd_reply_array_at(reply, i)->name, names[i]);
    /* no name is the name of none */
    assert_null(blasd_reply_array(reply, NULL));
    assert_null(blasd_reply_data(reply, NULL));
    assert_false(blasd_reply_tensor(reply, NULL, &tensor));
    assert_int_equal(blasd_reply_save(reply, NULL, "/dev/null", &problem), -1);
    assert_string_equal(problem.code, "unknown_output");
    assert_int_equal(blasd_reply_save(reply, "x", NULL, &problem), -1);
    assert_string_equal(problem.code, "file_not_writable");
    blasd_reply_free(reply);
}

/* What a job says that a parameter has to be is told as a number. */
static void test_the_least_of_a_parameter_is_told(void **state) {
    static const char text[] = "{\"code\":\"invalid_parameter\",\"least\":3000000000}";
    struct blasd_problem problem;
    (void)state;
    blasd_problem_parse(&problem, 422, text, strlen(text));
    assert_true(problem.least == 3000000000);
    blasd_problem_parse(&problem, 422, "{\"code\":\"x\"}", 12);
    assert_true(problem.least == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_cannot_be_kept_is_not_sent),
        cmocka_unit_test(test_a_tensor_is_sent_once),
        cmocka_unit_test(test_what_is_the_id_of_no_tensor_is_not_asked_for),
        cmocka_unit_test(test_queued_and_running_jobs_have_not_ended),
        cmocka_unit_test(test_bad_inputs_are_named_with_what_is_wrong),
        cmocka_unit_test(test_ids_and_names_that_are_none),
        cmocka_unit_test(test_what_a_client_is_not_set_to),
        cmocka_unit_test(test_a_body_is_read_in_pieces_of_any_size),
        cmocka_unit_test(test_no_data_is_needed_where_there_are_no_elements),
        cmocka_unit_test(test_a_refused_connection_may_be_tried_again),
        cmocka_unit_test(test_a_job_without_a_key_is_sent_once),
        cmocka_unit_test(test_passwords_are_in_no_message),
        cmocka_unit_test(test_problems_read_as_sentences),
        cmocka_unit_test(test_good_answers_that_say_nothing),
        cmocka_unit_test(test_arrays_come_in_the_order_of_the_operation),
        cmocka_unit_test(test_the_least_of_a_parameter_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
