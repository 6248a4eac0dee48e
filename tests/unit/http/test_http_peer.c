/* Addresses in log lines. */
#include "http/peer.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
