/* Commands cut out of a stream, whole and piece by piece. */
#include "redis/redis_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int read_all(const char *text, struct blasd_redis_request *request) {
    blasd_redis_request_reset(request);
    return blasd_redis_request_read(request, text, strlen(text));
}

static void a_request(void **state) {
    static const char text[] = "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n\r\n$1\r\n*1\r\n$4\r\nPING\r\n";
    struct blasd_redis_request request = {0};
    (void)state;
    assert_int_equal(read_all(text, &request), 1);
    assert_int_equal(request.count, 3);
    assert_memory_equal(text + request.words[0].at, "SET", 3);
    assert_int_equal(request.words[1].len, 0);
    assert_int_equal(request.words[2].len, 4);
    assert_memory_equal(text + request.words[2].at, "\r\n$1", 4);
    assert_int_equal(request.bytes, strlen(text) - strlen("*1\r\n$4\r\nPING\r\n"));
    blasd_redis_request_release(&request);
}

/* Whichever way it comes it is the same. */
static void byte_by_byte(void **state) {
    struct blasd_redis_request request = {0};
    char text[4096];
    size_t len = (size_t)snprintf(text, sizeof text, "*130\r\n");
    (void)state;
    for (int i = 0; i < 130; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "$%d\r\n%0*d\r\n", i % 12 + 1,
                                i % 12 + 1, 7);
    for (size_t have = 0; have < len; have++)
        assert_int_equal(blasd_redis_request_read(&request, text, have), 0);
    assert_int_equal(blasd_redis_request_read(&request, text, len), 1);
    assert_int_equal(request.count, 130);
    assert_int_equal(request.bytes, len);
    for (size_t i = 0; i < request.count; i++) {
        assert_int_equal(request.words[i].len, i % 12 + 1);
        assert_int_equal(text[request.words[i].at + request.words[i].len - 1], '7');
    }
    blasd_redis_request_release(&request);
}

static void no_request(void **state) {
    static const char *const texts[] = {"PING\r\n",
                                        "*0\r\n",
                                        "*-1\r\n",
                                        "*\r\n",
                                        "*1\n$1\nx\n",
                                        "*1\rx",
                                        "*1\r\n*1\r\n",
                                        "*1\r\n$-1\r\n",
                                        "*1\r\n$\r\n",
                                        "*1\r\n$2\r\nabc\r\n",
                                        "*1\r\n$2\r\nabX\n",
                                        "*1\r\n$1073741825\r\n",
                                        "*1048577\r\n",
                                        "*00000000000000001\r\n",
                                        "*9999999999999999999999\r\n",
                                        "* 1\r\n",
                                        "*+1\r\n"};
    struct blasd_redis_request request = {0};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (read_all(texts[i], &request) != -1) fail_msg("%s is taken", texts[i]);
        assert_true(request.count <= 1);
    }
    /* the most, and what is not all there */
    assert_int_equal(read_all("*1048576\r\n$1073741000\r\n", &request), 0);
    blasd_redis_request_release(&request);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request),
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(no_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
