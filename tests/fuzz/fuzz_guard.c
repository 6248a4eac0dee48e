/* What a worker sends its guard, in pieces as the first byte says: it is cut into the same requests
 * as all at once, and what may go on is one of the few things that a worker says. */
#include "queue/worker_rules.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static struct blasd_worker_rules rules;

static void require(bool holds) {
    if (!holds) abort();
}

static void make_rules(void) {
    static struct blasd_limits limits;
    struct blasd_queue_options options = {.name = "q", .limits = &limits, .guard = 3};
    blasd_limits_init(&limits);
    require(blasd_store_open("redis", &options.store, NULL) == 0);
    blasd_worker_rules_init(&rules, "me", &options);
    blasd_store_free(options.store);
    strcpy(rules.limits.text, "1 1"); /* short, to be found */
}

static bool is(const char *data, const struct blasd_redis_word *word, const char *text) {
    return word->len == strlen(text) && memcmp(data + word->at, text, word->len) == 0;
}

/* Whatever the table says: no key of another queue or worker, and of all functions a worker's. */
static void check(const char *data, const struct blasd_redis_request *request) {
    static const char *const first[] = {"FCALL",   "BLMPOP", "HSET", "SET",  "GET",    "HSCAN",
                                        "PEXPIRE", "EXISTS", "TIME", "INFO", "CLIENT", "FUNCTION"};
    bool known = false;
    if (!blasd_worker_may(&rules, data, request)) return;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        known |= is(data, &request->words[0], first[i]);
    require(known);
    if (is(data, &request->words[0], "FCALL"))
        require(request->count > 4 && is(data, &request->words[2], "1") &&
                is(data, &request->words[3], "{q}") && is(data, &request->words[4], "1 1"));
    if (is(data, &request->words[0], "HSET"))
        require(request->count == 4 && is(data, &request->words[1], "{q}:claims:me") &&
                request->words[2].len == 2 && data[request->words[2].at] == '@');
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    struct blasd_redis_request whole = {0}, pieces = {0};
    const char *data = (const char *)bytes + 1;
    size_t step = len > 0 ? 1 + bytes[0] : 1;
    if (rules.worker == NULL) make_rules();
    if (len < 2) return 0;
    for (len--; len > 0;) {
        int rc = blasd_redis_request_read(&whole, data, len), piece = 0;
        for (size_t have = 0; piece == 0 && have < len;) {
            have = have + step < len ? have + step : len;
            piece = blasd_redis_request_read(&pieces, data, have);
        }
        require(rc == piece);
        if (rc <= 0) break;
        require(whole.bytes == pieces.bytes && whole.count == pieces.count && whole.bytes <= len);
        for (size_t i = 0; i < whole.count; i++)
            require(whole.words[i].at == pieces.words[i].at &&
                    whole.words[i].len == pieces.words[i].len &&
                    whole.words[i].at + whole.words[i].len + 2 <= whole.bytes);
        check(data, &whole);
        data += whole.bytes;
        len -= whole.bytes;
        blasd_redis_request_reset(&whole);
        blasd_redis_request_reset(&pieces);
    }
    blasd_redis_request_release(&whole);
    blasd_redis_request_release(&pieces);
    return 0;
}
