/* Heads of requests: a first line, a line for each header, and query parameters as "?name=value".
 * Reading them is safe; what is refused is refused by a code of the table, in words that can be
 * printed; what was taken is within its range. */
#include "http/head.h"
#include "http/origin_check.h"
#include "http/request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_error(int rc, const struct blasd_err *err) {
    if (rc == 0) return;
    require(rc == -(int)err->code && err->code > BLASD_OK && err->code < BLASD_E_COUNT);
    require(err->code != BLASD_E_internal_error);
    for (const char *at = err->detail; *at != '\0'; at++) require(*at >= ' ' && *at <= '~');
    for (const char *at = err->field; *at != '\0'; at++) require(*at >= ' ' && *at <= '~');
}

struct reading {
    struct http_request request;
    struct http_head head;
    struct blasd_limits limits;
};

static void take_param(struct reading *reading, char *name, size_t len) {
    struct blasd_err err = {0};
    char *equals = memchr(name, '=', len), *value = equals == NULL ? NULL : equals + 1;
    if (equals != NULL) *equals = '\0';
    check_error(http_request_param(&reading->request, ~0u, &reading->limits, name, value,
                                   value == NULL ? 0 : (size_t)(name + len - value), &err),
                &err);
}

static void take_header(struct reading *reading, char *name, size_t len) {
    struct blasd_err err = {0};
    char *colon = memchr(name, ':', len), *value, *end = name + len;
    int rc;
    if (colon == NULL) return;
    *colon = '\0';
    for (value = colon + 1; *value == ' ' || *value == '\t';) *value++ = '\0';
    rc = http_head_header(&reading->head, name, strlen(name), value, (size_t)(end - value), &err);
    check_error(rc, &err);
    if (rc == 0)
        check_error(
            http_request_header(&reading->request, name, value, (size_t)(end - value), &err), &err);
}

static void check_request(const struct reading *reading) {
    static const char *const hosts[] = {"allowed.example", NULL};
    const struct http_request *request = &reading->request;
    struct http_origins allowed;
    struct blasd_err err = {0};
    enum blasd_format format;
    bool foreign = false;
    require(!(request->query.wait_s < 0) && request->query.wait_s <= 1e9);
    require(request->query.limit >= 0);
    require(strnlen(request->key, sizeof request->key) < sizeof request->key);
    blasd_accept_choose(&request->accepts, true, &format);
    http_origins_init(&allowed, hosts, hosts);
    check_error(http_origin_check(&allowed, request, &foreign, &err), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    struct reading reading = {.head.bare_lines = len % 2 == 0};
    struct blasd_err err = {0};
    /* each line ends with two zero bytes, as in the library's memory */
    char *text = calloc(1, 2 * len + 3), *line = text;
    if (text == NULL || len > 65536) {
        free(text);
        return 0;
    }
    blasd_limits_init(&reading.limits);
    for (size_t i = 0, to = 0, number = 0; i <= len; i++) {
        if (i < len && bytes[i] != '\n') {
            text[to++] = (char)bytes[i];
            continue;
        }
        if (number++ == 0)
            check_error(http_head_start(&reading.head, line, &err), &err);
        else if (line[0] == '?')
            take_param(&reading, line + 1, (size_t)(text + to - line - 1));
        else
            take_header(&reading, line, (size_t)(text + to - line));
        to += 2;
        line = text + to;
    }
    check_error(http_head_finish(&reading.head, len % 3 == 0 ? NULL : line, &err), &err);
    check_request(&reading);
    free(text);
    return 0;
}
