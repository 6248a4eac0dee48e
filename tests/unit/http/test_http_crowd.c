/* Counting connections by address. */
#include "http/acceptor.h"
#include "http/peer.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static struct http_crowd crowd;
static struct sockaddr_storage storage;

static uint64_t part(const char *text, int port) {
    struct sockaddr_in *four = (void *)&storage;
    struct sockaddr_in6 *six = (void *)&storage;
    storage = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = (in_port_t)port;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &six->sin6_addr), 1);
        six->sin6_family = AF_INET6;
        six->sin6_port = (in_port_t)port;
    }
    return http_peer_part(-1, (const struct sockaddr *)(const void *)&storage);
}

static void test_who_is_one(void **state) {
    (void)state;
    crowd = (struct http_crowd){.seed = 12345};
    for (int i = 0; i < 5; i++) http_crowd_count(&crowd, part("192.0.2.1", i), true);
    assert_int_equal(http_crowd_of(&crowd, part("192.0.2.1", 99)), 5);
    assert_int_equal(http_crowd_of(&crowd, part("::ffff:192.0.2.1", 1)), 5);
    assert_int_equal(http_crowd_of(&crowd, part("192.0.2.2", 1)), 0);
    http_crowd_count(&crowd, part("2001:db8:1:2:3::4", 1), true);
    assert_int_equal(http_crowd_of(&crowd, part("2001:db8:1:2:9::9", 1)), 1);
    assert_int_equal(http_crowd_of(&crowd, part("2001:db8:1:3:3::4", 1)), 0);
    for (int i = 0; i < 5; i++) http_crowd_count(&crowd, part("192.0.2.1", i), false);
    assert_int_equal(http_crowd_of(&crowd, part("192.0.2.1", 1)), 0);
}

/* Of a unix socket the user counts; without a socket nothing does. */
static void test_no_address(void **state) {
    const struct sockaddr_un local = {.sun_family = AF_UNIX};
    const struct sockaddr *address = (const struct sockaddr *)(const void *)&local;
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(http_peer_part(pair[0], address) != 0);
    assert_true(http_peer_part(pair[0], address) == http_peer_part(pair[1], address));
    assert_true(http_peer_part(-1, address) == 0 && http_peer_part(pair[0], NULL) == 0);
    close(pair[0]);
    close(pair[1]);
    for (int i = 0; i < 5; i++) http_crowd_count(&crowd, 0, true);
    assert_int_equal(http_crowd_of(&crowd, 0), 0);
}

/* Of all others hardly anybody shares both slots of a crowd. */
static void test_neighbours(void **state) {
    int found = 0;
    (void)state;
    crowd = (struct http_crowd){.seed = 98765};
    for (int i = 0; i < 1000; i++) http_crowd_count(&crowd, part("192.0.2.1", i), true);
    for (uint32_t i = 0; i < 100000; i++) {
        struct sockaddr_in other = {.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(0x0a000000 + i)};
        const struct sockaddr *from = (const struct sockaddr *)(const void *)&other;
        found += http_crowd_of(&crowd, http_peer_part(-1, from)) > 0;
    }
    assert_true(found <= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_one),
        cmocka_unit_test(test_no_address),
        cmocka_unit_test(test_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
