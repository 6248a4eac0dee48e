/* Fetching from a server that does as each test says: whole, cut off, and everything by which an
 * answer is not the file that was asked for. */
#include "outgoing/fetch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWERS 8

/* One that answers each connection with the next of its texts. */
struct server {
    int fd, port;
    const char *answers[ANSWERS]; /* NULL: none, until it is released */
    size_t lens[ANSWERS];         /* 0: to the zero */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int asked, held[ANSWERS], held_count; /* under the lock, as the next */
    char requests[ANSWERS][1024];
};

static void take_request(struct server *server, int fd) {
    char text[1024] = "";
    size_t len = 0;
    ssize_t got;
    int at;
    while (strstr(text, "\r\n\r\n") == NULL && len < sizeof text - 1 &&
           (got = read(fd, text + len, sizeof text - 1 - len)) > 0)
        text[len += (size_t)got] = '\0';
    pthread_mutex_lock(&server->lock);
    at = server->asked++;
    if (at < ANSWERS) memcpy(server->requests[at], text, len + 1);
    if (at < ANSWERS && server->answers[at] == NULL) server->held[server->held_count++] = fd;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    if (at >= ANSWERS || server->answers[at] == NULL) return;
    len = server->lens[at] > 0 ? server->lens[at] : strlen(server->answers[at]);
    for (size_t sent = 0; sent < len; sent += (size_t)got)
        if ((got = send(fd, server->answers[at] + sent, len - sent, MSG_NOSIGNAL)) <= 0) break;
    close(fd);
}

static void *serve(void *arg) {
    struct server *server = arg;
    int fd;
    while ((fd = accept(server->fd, NULL, NULL)) >= 0) take_request(server, fd);
    return NULL;
}

static void server_start(struct server *server) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server->fd, 16), 0);
    assert_int_equal(getsockname(server->fd, (struct sockaddr *)&address, &len), 0);
    server->port = ntohs(address.sin_port);
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_release(struct server *server) {
    pthread_mutex_lock(&server->lock);
    while (server->held_count > 0) close(server->held[--server->held_count]);
    pthread_mutex_unlock(&server->lock);
}

static int server_stop(struct server *server) {
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    server_release(server);
    close(server->fd);
    return server->asked;
}

static void await_asked(struct server *server, int count) {
    pthread_mutex_lock(&server->lock);
    while (server->asked < count) pthread_cond_wait(&server->changed, &server->lock);
    pthread_mutex_unlock(&server->lock);
}

/* What is wanted of a file, and what came of it. */
struct want {
    struct blasd_fetch fetch; /* must come first */
    enum blasd_code refuse;   /* what it makes of the size, if not BLASD_OK */
    char bytes[64];
    uint64_t len, most; /* most: as was said */
    struct blasd_err err;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;
};

static int on_size(struct blasd_fetch *fetch, uint64_t size, struct blasd_err *err) {
    struct want *want = (struct want *)fetch;
    if (want->refuse != BLASD_OK) return blasd_fail(err, want->refuse, "size", "no");
    want->most = size;
    return 0;
}

static int on_feed(struct blasd_fetch *fetch, const char *bytes, size_t len,
                   struct blasd_err *err) {
    struct want *want = (struct want *)fetch;
    (void)err;
    assert_true(len > 0 && want->len + len <= want->most);
    if (want->len + len <= sizeof want->bytes) memcpy(want->bytes + want->len, bytes, len);
    want->len += len;
    return 0;
}

static void on_done(struct blasd_fetch *fetch, const struct blasd_err *err) {
    struct want *want = (struct want *)fetch;
    pthread_mutex_lock(&want->lock);
    if (err != NULL) want->err = *err;
    want->over = true;
    pthread_cond_broadcast(&want->changed);
    pthread_mutex_unlock(&want->lock);
}

static void begin(struct blasd_fetcher *fetcher, struct want *want, const char *url) {
    want->fetch.url = url;
    want->fetch.field = "inputs.a";
    want->fetch.size = on_size;
    want->fetch.feed = on_feed;
    want->fetch.done = on_done;
    pthread_mutex_init(&want->lock, NULL);
    pthread_cond_init(&want->changed, NULL);
    blasd_fetch_begin(fetcher, &want->fetch);
}

static enum blasd_code await(struct want *want) {
    pthread_mutex_lock(&want->lock);
    while (!want->over) pthread_cond_wait(&want->changed, &want->lock);
    pthread_mutex_unlock(&want->lock);
    return want->err.code;
}

struct bed {
    struct blasd_limits limits;
    struct blasd_outgoing *outgoing;
    struct blasd_fetcher *fetcher;
    char url[64];
};

static void bed_open(struct bed *bed, struct server *server) {
    struct blasd_err err;
    char hosts[64];
    server_start(server);
    blasd_limits_init(&bed->limits);
    bed->limits.url_transfers = 4;
    snprintf(hosts, sizeof hosts, "http://127.0.0.1:%d,http://localhost:%d", server->port,
             server->port);
    snprintf(bed->url, sizeof bed->url, "http://127.0.0.1:%d/x?y#z", server->port);
    assert_int_equal(blasd_outgoing_new(hosts, NULL, &bed->outgoing, &err), 0);
    assert_int_equal(blasd_fetcher_start(bed->outgoing, &bed->limits, &bed->fetcher, &err), 0);
}

static int bed_close(struct bed *bed, struct server *server) {
    blasd_fetcher_stop(bed->fetcher);
    blasd_outgoing_free(bed->outgoing);
    return server_stop(server);
}

#define FILE_TEXT "0123456789"
#define HEAD(status, length, more)                                                                 \
    "HTTP/1.1 " status "\r\nContent-Length: " length "\r\n" more "\r\n"
#define WHOLE HEAD("200 OK", "10", "ETag: \"one\"\r\n") FILE_TEXT
#define CUT HEAD("200 OK", "10", "ETag: \"one\"\r\n") "0123"

struct answer_case {
    const char *answers[2];
    enum blasd_code code;
    int asked;
    const char *why; /* a part of the error's detail */
};

static void expect(const struct answer_case *c) {
    struct server server = {.answers = {c->answers[0], c->answers[1]}};
    struct want want = {.err.code = BLASD_OK};
    struct bed bed;
    bed_open(&bed, &server);
    begin(bed.fetcher, &want, bed.url);
    if (await(&want) != c->code) fail_msg("%s\n%s", c->answers[c->asked - 1], want.err.detail);
    if (c->code == BLASD_OK) {
        assert_int_equal(want.len, 10);
        assert_memory_equal(want.bytes, FILE_TEXT, 10);
    } else {
        assert_string_equal(want.err.field, "inputs.a");
        if (strstr(want.err.detail, c->why) == NULL) fail_msg("%s", want.err.detail);
    }
    assert_int_equal(bed_close(&bed, &server), c->asked);
    assert_non_null(strstr(server.requests[0], "GET /x?y HTTP/1.1\r\n"));
    assert_null(strstr(server.requests[c->asked - 1], "Range:"));
}

#define URL(code) BLASD_E_url_##code

/* Answers to a first request. */
static void first_answers(void **state) {
    static const struct answer_case cases[] = {
        {{WHOLE}, BLASD_OK, 1, ""},
        {{"HTTP/1.1 100 Continue\r\nETag: \"x\"\r\nContent-Length: 3\r\n\r\n" WHOLE},
         BLASD_OK,
         1,
         ""},
        {{HEAD("200 OK", "10", "content-ENCODING:\tIdentity \r\n") FILE_TEXT}, BLASD_OK, 1, ""},
        {{WHOLE "and more than was said"}, BLASD_OK, 1, ""},
        {{"HTTP/1.1 200 OK\r\n\r\n" FILE_TEXT}, URL(refused), 1, "how long the file is"},
        {{HEAD("200 OK", "10", "Content-Encoding: gzip\r\n") FILE_TEXT},
         URL(refused),
         1,
         "compressed"},
        {{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n" FILE_TEXT "\r\n0\r\n\r\n"},
         URL(refused),
         1,
         "compressed"},
        {{HEAD("206 Part", "10", "Content-Range: bytes 0-9/10\r\n") FILE_TEXT},
         URL(refused),
         1,
         "206 where it should send the file (200)"},
        {{HEAD("299 OK", "10", "") FILE_TEXT}, URL(refused), 1, "299"},
        {{HEAD("300 Choices", "0", "")}, URL(refused), 1, "redirects"},
        {{HEAD("302 Found", "0", "Location: http://127.0.0.1/\r\n")}, URL(refused), 1, "redirects"},
        {{HEAD("399 Odd", "0", "")}, URL(refused), 1, "redirects"},
        {{HEAD("400 Bad", "0", "")}, URL(refused), 1, "400"},
        {{HEAD("404 Not Found", "0", "")}, URL(refused), 1, "404"},
        {{HEAD("501 No", "0", "")}, URL(refused), 1, "501"},
        {{HEAD("505 No", "0", "")}, URL(refused), 1, "505"},
        /* worth another try */
        {{HEAD("408 Late", "0", ""), WHOLE}, BLASD_OK, 2, ""},
        {{HEAD("429 Many", "0", ""), WHOLE}, BLASD_OK, 2, ""},
        {{HEAD("500 Oh", "0", ""), WHOLE}, BLASD_OK, 2, ""},
        {{HEAD("502 Oh", "0", ""), WHOLE}, BLASD_OK, 2, ""},
        {{HEAD("504 Oh", "0", ""), WHOLE}, BLASD_OK, 2, ""},
        {{HEAD("507 Full", "0", ""), WHOLE}, BLASD_OK, 2, ""},
        {{HEAD("520 Odd", "0", ""), WHOLE}, BLASD_OK, 2, ""},
        {{"", WHOLE}, BLASD_OK, 2, ""},
        /* nothing was taken of it: it may come again, but as long as before */
        {{HEAD("200 OK", "10", ""), WHOLE}, BLASD_OK, 2, ""},
        {{HEAD("200 OK", "11", ""), WHOLE}, URL(unavailable), 2, "changed"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect(&cases[i]);
}

/* A part of it came: it is not gone on with, for the file may have changed. */
static void cut_off(void **state) {
    static const struct answer_case cases[] = {
        {{CUT}, URL(unavailable), 1, "4 of 10 bytes came"},
        {{HEAD("200 OK", "10", "") "012345678"}, URL(unavailable), 1, "9 of 10 bytes came"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect(&cases[i]);
}

static void five_tries(void **state) {
    struct server server;
    struct want want = {.err.code = BLASD_OK};
    struct bed bed;
    memset(&server, 0, sizeof server);
    for (int i = 0; i < ANSWERS; i++) server.answers[i] = HEAD("503 Away", "0", "");
    (void)state;
    bed_open(&bed, &server);
    begin(bed.fetcher, &want, bed.url);
    assert_int_equal(await(&want), URL(unavailable));
    assert_string_equal(want.err.detail, "the server answers 503, 5 times");
    assert_int_equal(bed_close(&bed, &server), 5);
}

static void refused_by_its_owner(void **state) {
    struct server server = {.answers = {WHOLE}};
    struct want want = {.refuse = BLASD_E_body_too_large};
    struct bed bed;
    (void)state;
    bed_open(&bed, &server);
    begin(bed.fetcher, &want, bed.url);
    assert_int_equal(await(&want), BLASD_E_body_too_large);
    assert_string_equal(want.err.field, "size");
    assert_int_equal(want.len, 0);
    assert_int_equal(bed_close(&bed, &server), 1);
}

/* A host that is not listed; one that is, but not as this machine's. */
static void not_allowed(void **state) {
    struct server server = {.answers = {WHOLE}};
    struct want other = {.err.code = BLASD_OK}, local = {.err.code = BLASD_OK};
    struct bed bed;
    char url[64];
    (void)state;
    bed_open(&bed, &server);
    begin(bed.fetcher, &other, "http://127.0.0.2/");
    assert_int_equal(await(&other), URL(not_allowed));
    snprintf(url, sizeof url, "http://localhost:%d/", server.port);
    begin(bed.fetcher, &local, url);
    assert_int_equal(await(&local), URL(not_allowed));
    assert_non_null(strstr(local.err.detail, "its address"));
    assert_int_equal(bed_close(&bed, &server), 0);
}

/* Nobody wants it any more; the thread ends. */
static void given_up(void **state) {
    struct server server = {.answers = {NULL}};
    struct want want = {.err.code = BLASD_OK}, late = {.err.code = BLASD_OK};
    struct bed bed;
    (void)state;
    bed_open(&bed, &server);
    begin(bed.fetcher, &want, bed.url);
    await_asked(&server, 1);
    blasd_fetch_cancel(&want.fetch);
    assert_int_equal(await(&want), URL(unavailable));
    assert_non_null(strstr(want.err.detail, "not wanted"));
    begin(bed.fetcher, &late, bed.url);
    await_asked(&server, 2);
    assert_int_equal(bed_close(&bed, &server), 2);
    assert_int_equal(await(&late), URL(unavailable));
    blasd_fetcher_stop(NULL);
}

/* One tenant has a quarter of the transfers, whoever has none all of them. */
static void shares(void **state) {
    struct server server = {.answers = {NULL, WHOLE, WHOLE, WHOLE}};
    struct want wants[4];
    struct bed bed;
    (void)state;
    memset(wants, 0, sizeof wants);
    bed_open(&bed, &server);
    for (int i = 0; i < 2; i++) memcpy(wants[i].fetch.tenant, "greedy", 7);
    memcpy(wants[2].fetch.tenant, "other", 6);
    begin(bed.fetcher, &wants[0], bed.url);
    await_asked(&server, 1);
    for (int i = 1; i < 4; i++) begin(bed.fetcher, &wants[i], bed.url);
    assert_int_equal(await(&wants[2]), BLASD_OK);
    assert_int_equal(await(&wants[3]), BLASD_OK);
    pthread_mutex_lock(&server.lock);
    assert_int_equal(server.asked, 3);
    pthread_mutex_unlock(&server.lock);
    assert_false(wants[1].over);
    blasd_fetch_cancel(&wants[0].fetch);
    assert_int_equal(await(&wants[1]), BLASD_OK);
    assert_int_equal(bed_close(&bed, &server), 4);
}

/* No more than the limit at one time. */
static void all_of_them(void **state) {
    struct server server = {.answers = {NULL, NULL, NULL, NULL, WHOLE}};
    struct want wants[5];
    struct bed bed;
    (void)state;
    memset(wants, 0, sizeof wants);
    bed_open(&bed, &server);
    for (int i = 0; i < 5; i++) begin(bed.fetcher, &wants[i], bed.url);
    await_asked(&server, 4);
    blasd_fetch_cancel(&wants[1].fetch);
    assert_int_equal(await(&wants[1]), URL(unavailable));
    assert_int_equal(await(&wants[4]), BLASD_OK);
    assert_int_equal(bed_close(&bed, &server), 5);
    assert_int_equal(await(&wants[0]), URL(unavailable));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_answers), cmocka_unit_test(cut_off),
        cmocka_unit_test(five_tries),    cmocka_unit_test(refused_by_its_owner),
        cmocka_unit_test(not_allowed),   cmocka_unit_test(given_up),
        cmocka_unit_test(shares),        cmocka_unit_test(all_of_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
