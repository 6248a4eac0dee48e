/* Commands cut out of a stream, whole and piece by piece, and a relay between two sockets. */
#include "redis/redis_request.h"
#include "redis/relay.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* The relay between `client` and a server that this test plays. */
struct bed {
    int client, server;
    struct blasd_relay relay;
    pthread_t thread;
    const char *wrong;
};

static bool all_but_no(void *arg, const char *data, const struct blasd_redis_request *request) {
    (void)arg;
    return request->words[0].len != 2 || memcmp(data + request->words[0].at, "NO", 2) != 0;
}

static void *run(void *arg) {
    struct bed *bed = arg;
    bed->wrong = blasd_relay_run(&bed->relay);
    close(bed->relay.client);
    return NULL;
}

static void begin(struct bed *bed) {
    int near[2], far[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, near), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, far), 0);
    *bed = (struct bed){.client = near[0], .server = far[0]};
    bed->relay =
        (struct blasd_relay){.client = near[1], .redis = redisConnectFd(far[1]), .may = all_but_no};
    assert_int_equal(pthread_create(&bed->thread, NULL, run, bed), 0);
}

static void send_text(int fd, const char *text) {
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void expect(int fd, const char *text) {
    char got[256];
    size_t len = strlen(text);
    assert_int_equal(recv(fd, got, len, MSG_WAITALL), len);
    assert_memory_equal(got, text, len);
}

#define PING "*1\r\n$4\r\nPING\r\n"
#define NO "*1\r\n$2\r\nNO\r\n"

static void carried_both_ways(void **state) {
    struct bed bed;
    (void)state;
    begin(&bed);
    send_text(bed.client, PING PING "*1\r\n$4\r\nPI");
    expect(bed.server, PING PING);
    send_text(bed.client, "NG\r\n");
    expect(bed.server, PING);
    send_text(bed.server, "+PONG\r\n+what it likes");
    expect(bed.client, "+PONG\r\n+what it likes");
    send_text(bed.client, PING); /* and goes before there is a reply */
    close(bed.client);
    expect(bed.server, PING);
    pthread_join(bed.thread, NULL);
    assert_null(bed.wrong);
    close(bed.server);
}

/* What stands before it has gone on, it and what is behind it have not. */
static void refused(const char *text, const char *why) {
    struct bed bed;
    char byte;
    begin(&bed);
    send_text(bed.client, text);
    pthread_join(bed.thread, NULL);
    assert_non_null(bed.wrong);
    assert_non_null(strstr(bed.wrong, why));
    expect(bed.server, PING);
    assert_int_equal(recv(bed.server, &byte, 1, 0), 0);
    close(bed.client);
    close(bed.server);
}

static void closed_by_what_may_not(void **state) {
    (void)state;
    refused(PING NO PING, "not its own");
    refused(PING "NO\r\n" PING, "no request");
}

/* More than sockets hold, both at once: neither side waits for the other for ever. */
static void large(void **state) {
    const size_t bytes = 8 << 20;
    struct bed bed;
    char head[64], *text = malloc(bytes), *back = malloc(bytes);
    size_t sent = 0, got = 0;
    (void)state;
    assert_true(text != NULL && back != NULL);
    for (size_t i = 0; i < bytes; i++) text[i] = (char)(i * 31 >> 3);
    begin(&bed);
    snprintf(head, sizeof head, "*2\r\n$3\r\nSET\r\n$%zu\r\n", bytes);
    send_text(bed.client, head);
    while (sent < bytes) { /* the relay takes it, though the server reads nothing yet */
        ssize_t n = send(bed.client, text + sent, bytes - sent, MSG_NOSIGNAL);
        assert_true(n > 0);
        sent += (size_t)n;
    }
    send_text(bed.client, "\r\n");
    expect(bed.server, head);
    assert_int_equal(recv(bed.server, back, bytes, MSG_WAITALL), bytes);
    assert_memory_equal(text, back, bytes);
    expect(bed.server, "\r\n");
    memset(back, 0, bytes);
    for (sent = 0; got < bytes;) {
        ssize_t n = sent < bytes
                        ? send(bed.server, text + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL)
                        : 0;
        if (n > 0) sent += (size_t)n;
        n = recv(bed.client, back + got, bytes - got, sent < bytes ? MSG_DONTWAIT : 0);
        if (n > 0) got += (size_t)n;
    }
    assert_memory_equal(text, back, bytes);
    close(bed.server);
    pthread_join(bed.thread, NULL);
    assert_null(bed.wrong);
    close(bed.client);
    free(text);
    free(back);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request),
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(no_request),
        cmocka_unit_test(carried_both_ways),
        cmocka_unit_test(closed_by_what_may_not),
        cmocka_unit_test(large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
