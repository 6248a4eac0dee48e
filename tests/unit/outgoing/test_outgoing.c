/* Whom clients may name, and whom a request of the service may reach: lists, URLs meant to be read
 * in two ways, addresses of every special kind, and names that lead to this machine. */
#include "outgoing/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static struct blasd_outgoing *list_of(const char *hosts) {
    struct blasd_outgoing *outgoing;
    struct blasd_err err = {0};
    if (blasd_outgoing_new(hosts, NULL, &outgoing, &err) != 0)
        fail_msg("%s: %s", hosts, err.detail);
    return outgoing;
}

static enum blasd_code verdict(const struct blasd_outgoing *outgoing, const char *url) {
    char plain[BLASD_OUTGOING_URL];
    struct blasd_err err = {0};
    int code = blasd_outgoing_check(outgoing, url, strlen(url), "notify", plain, &err);
    assert_int_equal(code, -(int)err.code);
    if (code != 0) assert_string_equal(err.field, "notify");
    return err.code;
}

static void lists(void **state) {
    static const char *const bad[] = {"*",
                                      "*.",
                                      "a..b",
                                      ".example.com",
                                      "example.com.",
                                      "ftp://example.com",
                                      "https://example.com/",
                                      "user@example.com",
                                      "example.com:0",
                                      "example.com:65536",
                                      "example.com:",
                                      "example.com:+80",
                                      "example.com:80x",
                                      "[::1",
                                      "[127.0.0.1]",
                                      "[::1]x:80",
                                      "::1",
                                      "127.1",
                                      "0x7f.0.0.1",
                                      "2130706433",
                                      "127.0.0.01",
                                      "*.0.0.1",
                                      "*.127.0.0.1",
                                      "b\303\274cher.example",
                                      "example.com+public",
                                      "ex*mple.com",
                                      "good.example, bad..example"};
    struct blasd_outgoing *outgoing;
    struct blasd_err err;
    char name[70];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int code = blasd_outgoing_new(bad[i], NULL, &outgoing, &err);
        if (code != -(int)BLASD_E_invalid_field) fail_msg("'%s' was taken", bad[i]);
        assert_null(outgoing);
    }
    memset(name, 'a', 64);
    snprintf(name + 64, 6, ".com");
    assert_int_not_equal(blasd_outgoing_new(name, NULL, &outgoing, &err), 0);
    outgoing = list_of(" one.example,\n*.Two.example:8443  http://three.example:80+private ,"
                       "[::1]:9,[0:0::2],10.0.0.7,xn--bcher-kva.example, ");
    assert_int_equal(outgoing->count, 7);
    assert_string_equal(outgoing->hosts[1].name, ".two.example");
    assert_int_equal(outgoing->hosts[1].port, 8443);
    assert_true(outgoing->hosts[2].private && outgoing->hosts[2].http);
    assert_string_equal(outgoing->hosts[4].name, "::2");
    assert_int_equal(outgoing->hosts[4].port, 443);
    assert_true(outgoing->hosts[5].literal && !outgoing->hosts[5].private);
    blasd_outgoing_free(outgoing);
    outgoing = list_of("");
    assert_int_equal(verdict(outgoing, "https://one.example/"), BLASD_E_url_not_allowed);
    assert_int_equal(verdict(NULL, "https://one.example/"), BLASD_E_url_not_allowed);
    blasd_outgoing_free(outgoing);
    blasd_outgoing_free(NULL);
}

struct url_case {
    const char *url;
    enum blasd_code code;
};

#define NOT_LISTED BLASD_E_url_not_allowed
#define BAD BLASD_E_invalid_field

static void urls(void **state) {
    static const struct url_case cases[] = {
        {"https://one.example", BLASD_OK},
        {"HTTPS://ONE.Example/a?b=c#d", BLASD_OK},
        {"https://one.example:443/", BLASD_OK},
        {"https://one.example?x=@evil.example", BLASD_OK},
        {"https://one.example#@evil.example", BLASD_OK},
        {"https://a.two.example:8443/x", BLASD_OK},
        {"https://a.b.two.example:8443/x", BLASD_OK},
        {"http://three.example/", BLASD_OK},
        {"https://[::1]:9/", BLASD_OK},
        {"https://[0000::0001]:9/", BLASD_OK},
        {"https://10.0.0.7/", BLASD_OK},
        {"https://%6fne.example/", BLASD_OK}, /* libcurl decodes it, and would connect there */
        /* another scheme, port or host */
        {"http://one.example/", NOT_LISTED},
        {"https://three.example/", NOT_LISTED},
        {"https://one.example:8443/", NOT_LISTED},
        {"https://one.example:80/", NOT_LISTED},
        {"https://two.example:8443/", NOT_LISTED},
        {"https://atwo.example:8443/", NOT_LISTED},
        {"https://a.two.example/", NOT_LISTED},
        {"https://one.example.evil.example/", NOT_LISTED},
        {"https://evil.example/https://one.example/", NOT_LISTED},
        {"https://evil.example#one.example", NOT_LISTED},
        {"https://evil.example?one.example", NOT_LISTED},
        {"https://xone.example/", NOT_LISTED},
        {"https://localhost/", NOT_LISTED},
        {"https://[::2]:9/", NOT_LISTED},
        {"https://[::ffff:10.0.0.7]/", NOT_LISTED},
        {"https://10.0.0.8/", NOT_LISTED},
        /* no scheme of ours */
        {"one.example", BAD},
        {"//one.example/", BAD},
        {"ftp://one.example/", BAD},
        {"file:///etc/passwd", BAD},
        {"gopher://one.example/", BAD},
        {"https:one.example", BAD},
        {"https:/one.example", BAD},
        {"https:///one.example/", BAD},
        {"https:////one.example/", BAD},
        {"https://", BAD},
        {"https://?one.example", BAD},
        {"", BAD},
        /* a user */
        {"https://one.example@evil.example/", BAD},
        {"https://user:word@one.example/", BAD},
        {"https://@one.example/", BAD},
        {"https://evil.example\\@one.example/", BAD},
        {"https://one.example:443@evil.example/", BAD},
        /* a host that some take for another */
        {"https://one.example./", BAD},
        {"https://one.example:/x:y@z", BLASD_OK},
        {"https://one.example:0/", BAD},
        {"https://one.example:65536/", BAD},
        {"https://one.example:99999999999/", BAD},
        {"https://one.example:4 43/", BAD},
        {"https://one..example/", BAD},
        {"https://one%2eexample%00.evil.example/", BAD},
        {"https://one.example%2f.evil.example/", BAD},
        {"https://one.example%40evil.example/", BAD},
        {"https://[::1%25lo]:9/", BAD},
        {"https://[::1%lo]:9/", BAD},
        {"https://[::1]]:9/", BAD},
        {"https://::1:9/", BAD},
        {"https://one.example\r\nHost: evil/", BAD},
        {"https://one.example/\t", BAD},
        {"https://one.example/ x", BAD},
        {"https://b\303\274cher.example/", BAD},
        {"https://one\343\200\202example/", BAD},
        {"https://\357\274\221\357\274\220.0.0.7/", BAD},
    };
    struct blasd_outgoing *outgoing =
        list_of("one.example,*.two.example:8443,http://three.example,[::1]:9,10.0.0.7");
    char longest[BLASD_OUTGOING_URL + 1] = "https://one.example/";
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum blasd_code code = verdict(outgoing, cases[i].url);
        if (code != cases[i].code)
            fail_msg("%s: %s", cases[i].url,
                     code == BLASD_OK ? "was taken" : blasd_err_info(code)->name);
    }
    memset(longest + 20, 'x', sizeof longest - 21);
    assert_int_equal(verdict(outgoing, longest), BAD);
    longest[sizeof longest - 6] = '\0';
    assert_int_equal(verdict(outgoing, longest), BLASD_OK);
    blasd_outgoing_free(outgoing);
}

/* Ways of writing an address that are not the one: whatever libcurl makes of them, it is refused,
 * or it is the address that is listed. */
static void numbers(void **state) {
    static const char *const urls[] = {
        "https://2130706433/",   "https://0x7f000001/", "https://0177.0.0.1/",
        "https://127.1/",        "https://127.0.1/",    "https://0x7f.1/",
        "https://017700000001/", "https://127.0.0.1./", "https://0/",
        "https://127.0.0.01/"};
    struct blasd_outgoing *outgoing = list_of("one.example,10.0.0.7,*.example");
    (void)state;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        assert_int_not_equal(verdict(outgoing, urls[i]), BLASD_OK);
    blasd_outgoing_free(outgoing);
}

struct plain_case {
    const char *url, *plain;
};

static void plain_urls(void **state) {
    static const struct plain_case cases[] = {
        {"HTTPS://ONE.example", "https://one.example:443"},
        {"https://one.example:0443/A?b=C#d", "https://one.example:443/A?b=C"},
        {"https://one.example?b=/#/", "https://one.example:443?b=/"},
        {"https://%6fne.example#x", "https://one.example:443"},
        {"https://[0:0::1]:9/x", "https://[::1]:9/x"},
    };
    struct blasd_outgoing *outgoing = list_of("one.example,[::1]:9");
    char plain[BLASD_OUTGOING_URL], longest[BLASD_OUTGOING_URL] = "https://one.example/";
    struct blasd_err err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *url = cases[i].url;
        char *exact = malloc(strlen(url)); /* no zero behind it */
        memcpy(exact, url, strlen(url));
        assert_int_equal(blasd_outgoing_check(outgoing, exact, strlen(url), "x", plain, &err), 0);
        assert_string_equal(plain, cases[i].plain);
        free(exact);
    }
    memset(longest + 20, 'x', sizeof longest - 21);
    assert_int_equal(blasd_outgoing_check(outgoing, longest, sizeof longest - 1, "x", plain, &err),
                     -(int)BLASD_E_invalid_field); /* with its port it is longer */
    assert_int_equal(blasd_outgoing_check(outgoing, longest, sizeof longest - 5, "x", plain, &err),
                     0);
    blasd_outgoing_free(outgoing);
}

/* --- addresses --- */

static struct sockaddr_storage address_of(const char *text) {
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&storage;
    storage.ss_family = strchr(text, ':') == NULL ? AF_INET : AF_INET6;
    assert_int_equal(
        inet_pton(storage.ss_family, text,
                  storage.ss_family == AF_INET ? (void *)&in->sin_addr : (void *)&in6->sin6_addr),
        1);
    return storage;
}

static void reaches(void **state) {
    static const char *const public[] = {
        "1.1.1.1",      "8.8.8.8",        "11.0.0.0",       "9.255.255.255",   "172.15.0.1",
        "172.32.0.1",   "100.63.255.255", "100.128.0.0",    "192.167.1.1",     "223.255.255.255",
        "2606:4700::1", "2400::1",        "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"};
    static const char *const private[] = {
        "127.0.0.1",  "127.255.255.254", "10.0.0.1",         "10.255.255.255",  "172.16.0.1",
        "172.31.9.9", "192.168.0.1",     "100.64.0.1",       "100.127.0.1",     "::1",
        "fc00::1",    "fdff::1",         "::ffff:127.0.0.1", "::ffff:10.1.2.3", "64:ff9b::a01:203"};
    static const char *const never[] = {"0.0.0.0",
                                        "0.1.2.3",
                                        "169.254.169.254",
                                        "169.254.0.1",
                                        "100.100.100.200",
                                        "168.63.129.16",
                                        "192.0.0.1",
                                        "192.0.2.1",
                                        "198.18.0.1",
                                        "198.19.255.1",
                                        "198.51.100.1",
                                        "224.0.0.1",
                                        "239.1.1.1",
                                        "240.0.0.1",
                                        "255.255.255.255",
                                        "203.0.113.9",
                                        "::",
                                        "::2",
                                        "::127.0.0.1",
                                        "fe80::1",
                                        "fec0::1",
                                        "ff02::1",
                                        "fd00:ec2::254",
                                        "::ffff:169.254.169.254",
                                        "2002:7f00:1::",
                                        "2001::1",
                                        "2001:db8::1",
                                        "3fff::1",
                                        "64:ff9b::a9fe:a9fe",
                                        "64:ff9b:1::1",
                                        "100::1",
                                        "5f00::1"};
    struct sockaddr local = {.sa_family = AF_UNIX};
    (void)state;
    assert_int_equal(outgoing_reach_of(&local), OUTGOING_NEVER);
#define EACH(texts, reach)                                                                         \
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {                                    \
        struct sockaddr_storage address = address_of(texts[i]);                                    \
        if (outgoing_reach_of((struct sockaddr *)&address) != (reach)) fail_msg("%s", texts[i]);   \
    }
    EACH(public, OUTGOING_PUBLIC)
    EACH(private, OUTGOING_PRIVATE)
    EACH(never, OUTGOING_NEVER)
#undef EACH
}

static bool may(const char *hosts, const char *address) {
    struct blasd_outgoing *outgoing = list_of(hosts);
    struct sockaddr_storage storage = address_of(address);
    bool yes = outgoing_may_connect(&outgoing->hosts[0], (struct sockaddr *)&storage);
    blasd_outgoing_free(outgoing);
    return yes;
}

static void connections(void **state) {
    (void)state;
    assert_true(may("one.example", "1.1.1.1"));
    assert_false(may("one.example", "127.0.0.1"));
    assert_false(may("one.example", "::ffff:127.0.0.1"));
    assert_true(may("one.example+private", "127.0.0.1"));
    assert_true(may("one.example+private", "1.1.1.1"));
    assert_false(may("one.example+private", "169.254.169.254"));
    assert_false(may("one.example+private", "fe80::1"));
    /* an address is that address, whatever it is, and no other */
    assert_true(may("169.254.169.254", "169.254.169.254"));
    assert_true(may("[fe80::1]", "fe80::1"));
    assert_false(may("127.0.0.1", "127.0.0.2"));
    assert_false(may("127.0.0.1", "::ffff:127.0.0.1"));
    assert_false(may("1.1.1.1+private", "127.0.0.1"));
}

/* --- requests --- */

struct receiver {
    int fd;
    unsigned port;
    int accepted;
};

static void *serve(void *arg) {
    static const char answer[] = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n"
                                 "Content-Length: 0\r\nConnection: close\r\n\r\n";
    struct receiver *receiver = arg;
    char request[1024];
    int fd;
    while ((fd = accept(receiver->fd, NULL, NULL)) >= 0) {
        receiver->accepted++;
        if (read(fd, request, sizeof request) > 0 && write(fd, answer, sizeof answer - 1) > 0)
            shutdown(fd, SHUT_WR);
        close(fd);
    }
    return NULL;
}

static void receive(struct receiver *receiver) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    receiver->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(receiver->fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(receiver->fd, 8), 0);
    assert_int_equal(getsockname(receiver->fd, (struct sockaddr *)&address, &len), 0);
    receiver->port = ntohs(address.sin_port);
}

/* Asks for http://HOST:PORT/, where the name leads to these addresses; the status, or 0. */
static long get_at(const char *addresses, const char *mark, unsigned port, char why[64],
                   bool *refused) {
    char hosts[80], url[80], resolve[80];
    struct blasd_outgoing *outgoing;
    struct blasd_outgoing_transfer transfer;
    struct blasd_err err;
    struct curl_slist *names;
    CURL *curl = curl_easy_init();
    CURLcode code;
    long status = 0;
    snprintf(hosts, sizeof hosts, "http://hooks.example:%u%s", port, mark);
    snprintf(url, sizeof url, "http://hooks.example:%u/", port);
    snprintf(resolve, sizeof resolve, "hooks.example:%u:%s", port, addresses);
    names = curl_slist_append(NULL, resolve);
    outgoing = list_of(hosts);
    assert_int_equal(blasd_outgoing_transfer(outgoing, url, "url", curl, &transfer, &err), 0);
    curl_easy_setopt(curl, CURLOPT_RESOLVE, names);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 10L);
    code = curl_easy_perform(curl);
    if (code == CURLE_OK) curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    snprintf(why, 64, "%s", blasd_outgoing_why(&transfer, code));
    *refused = transfer.refused;
    curl_easy_cleanup(curl);
    curl_slist_free_all(names);
    blasd_outgoing_free(outgoing);
    return status;
}

static long get(const char *mark, unsigned port, char why[64]) {
    bool refused;
    return get_at("127.0.0.1", mark, port, why, &refused);
}

/* Of a name with several addresses one may be gone to, where nobody is for now: that passes. */
static void several_addresses(void **state) {
    static const char *const both[] = {"169.254.1.1,127.0.0.1", "127.0.0.1,169.254.1.1"};
    struct receiver nobody;
    char why[64];
    bool refused;
    (void)state;
    receive(&nobody);
    close(nobody.fd);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(get_at(both[i], "+private", nobody.port, why, &refused), 0);
        assert_false(refused);
        assert_string_equal(why, curl_easy_strerror(CURLE_COULDNT_CONNECT));
    }
    assert_int_equal(get_at(both[0], "", nobody.port, why, &refused), 0);
    assert_true(refused);
}

/* A name that was fine when it was checked leads to this machine when it is asked for. */
static void transfers(void **state) {
    struct receiver receiver = {0};
    struct blasd_outgoing *outgoing = list_of("one.example");
    struct blasd_outgoing_transfer transfer;
    struct blasd_err err;
    CURL *curl = curl_easy_init();
    pthread_t thread;
    char why[64];
    (void)state;
    receive(&receiver);
    assert_int_equal(pthread_create(&thread, NULL, serve, &receiver), 0);
    /* a proxy would be asked in place of the host, and go anywhere */
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    assert_int_equal(get("", receiver.port, why), 0);
    assert_string_equal(why, "its address is not one that the service may go to");
    assert_int_equal(get("+private", receiver.port, why), 302); /* and no further */
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
    shutdown(receiver.fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(receiver.fd);
    assert_int_equal(receiver.accepted, 1);
    assert_int_equal(
        blasd_outgoing_transfer(outgoing, "https://two.example", "u", curl, &transfer, &err),
        -(int)BLASD_E_url_not_allowed);
    assert_int_equal(
        blasd_outgoing_transfer(NULL, "https://one.example", "u", curl, &transfer, &err),
        -(int)BLASD_E_url_not_allowed);
    curl_easy_cleanup(curl);
    blasd_outgoing_free(outgoing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),     cmocka_unit_test(urls),
        cmocka_unit_test(numbers),   cmocka_unit_test(plain_urls),
        cmocka_unit_test(reaches),   cmocka_unit_test(connections),
        cmocka_unit_test(transfers), cmocka_unit_test(several_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
