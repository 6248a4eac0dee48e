/* Addresses in log lines, and whose process is at the other end. */
#include "http/peer.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void test_peers(void **state) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(65535)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(80)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    char text[HTTP_PEER_TEXT];
    (void)state;
    inet_pton(AF_INET, "192.0.2.1", &four.sin_addr);
    http_peer_text((const struct sockaddr *)(const void *)&four, text);
    assert_string_equal(text, "192.0.2.1:65535");
    inet_pton(AF_INET6, "2001:db8:1111:2222:3333:4444:5555:6666", &six.sin6_addr);
    http_peer_text((const struct sockaddr *)(const void *)&six, text);
    assert_string_equal(text, "[2001:db8:1111:2222:3333:4444:5555:6666]:80");
    http_peer_text((const struct sockaddr *)(const void *)&local, text);
    assert_string_equal(text, "-");
    http_peer_text(NULL, text);
    assert_string_equal(text, "-");
}

/* The two ends of a connection on this machine; from `from`. */
static void connect_one(const struct sockaddr *to, socklen_t size, int listener, int ends[2]) {
    ends[0] = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(ends[0] >= 0);
    assert_int_equal(connect(ends[0], to, size), 0);
    ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(ends[1] >= 0);
}

static int listen_on(struct sockaddr *address, socklen_t *size) {
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, address, *size) != 0 || listen(fd, 128) != 0) return -1;
    assert_int_equal(getsockname(fd, address, size), 0);
    return fd;
}

static void test_users(void **state) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    socklen_t four_size = sizeof four, any_size = sizeof any;
    int plain = listen_on((void *)&four, &four_size), both = listen_on((void *)&any, &any_size);
    int ends[2];
    uid_t uid = 4711;
    (void)state;
    assert_true(plain >= 0);
    connect_one((void *)&four, sizeof four, plain, ends);
    assert_true(http_peer_uid(ends[1], &uid));
    assert_int_equal(uid, geteuid());
    close(ends[0]);
    uid = 4711;
    assert_false(http_peer_uid(ends[1], &uid)); /* nobody's any more */
    close(ends[1]);
    if (both >= 0) { /* one of IPv4 at a socket of IPv6 */
        four.sin_port = any.sin6_port;
        connect_one((void *)&four, sizeof four, both, ends);
        assert_true(http_peer_uid(ends[1], &uid));
        assert_int_equal(uid, geteuid());
        close(ends[0]);
        close(ends[1]);
        close(both);
    }
    close(plain);
}

static unsigned long long bytes_read(void) {
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/self/io", "re");
    if (file == NULL) return 0;
    assert_int_equal(fscanf(file, "rchar: %llu", &bytes), 1);
    fclose(file);
    return bytes;
}

/* However many connections there are, and however often it is asked. */
static void test_users_cost(void **state) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof four;
    int plain = listen_on((void *)&four, &size), ends[200][2];
    unsigned long long before, least;
    uid_t uid;
    (void)state;
    for (int i = 0; i < 200; i++) connect_one((void *)&four, sizeof four, plain, ends[i]);
    before = bytes_read();
    least = bytes_read() - before;
    before = bytes_read();
    for (int i = 0; i < 200; i++) (void)http_peer_uid(ends[i][1], &uid);
    /* a table has 400 lines of 150 bytes; where the kernel cannot be asked one is read, or two */
    assert_true(bytes_read() - before - least < UINT64_C(20) * 400 * 150);
    for (int i = 0; i < 200; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
    }
    close(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peers), cmocka_unit_test(test_users),
                                       cmocka_unit_test(test_users_cost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
