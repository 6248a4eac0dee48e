/* One row for each form of request. Whether the lease that a function is called under is the
 * worker's, and the jobs it ends its own, the functions themselves see to: LIMITS, which they take
 * from the caller, says that this one is held to it. */
#include "queue/worker_rules.h"

#include "wire/stats_load.h"

#include <stdio.h>
#include <string.h>

/* Words with spaces between. In a word %n is the worker's name, %t the queue's tag, %l LIMITS, %s
 * what is recorded of the store, %c the code of the functions; a word %j is an object of JSON,
 * which front ends read; ? is any character, * any that are left; after the last word `...` any
 * words. */
#define CALL(name) "FCALL " BLASD_QUEUE_FN(name) " 1 %t %l "

#define TOLD_MOST BLASD_MIB /* bytes of what a worker says of itself */

static const char *const rows[] = {
    CALL("turn") "%n ...",
    "BLMPOP * 1 %t:wake:%n LEFT COUNT *",
    "HSET %t:claims:%n @? *",
    CALL("begin") "%n * ? *",
    CALL("progress") "%n ...",
    CALL("holds") "%n ...",
    CALL("register") "%n ? %j %s",
    CALL("renew") "%n * %j",
    CALL("release") "%n *",
    "SET %t:figures:%n %j PX *",
    CALL("tensor_copies") "* %n ...",
    CALL("refs") "...",
    CALL("blob_write") "%n ...",
    CALL("blob_free") "...",
    "GET %t:blob:*",
    "HSCAN %t:blobs * COUNT 256",
    "SET %t:sweeping %n PX * NX",
    "SET %t:sweeping:at_work %n PX * NX",
    "PEXPIRE %t:sweeping *",
    "PEXPIRE %t:sweeping:at_work *",
    "EXISTS %t",
    /* of a new connection */
    "TIME",
    "INFO",
    "CLIENT REPLY ON",
    "CLIENT REPLY SKIP",
    CALL("open") "%s 0",
    "FUNCTION LIST LIBRARYNAME " BLASD_QUEUE_LIBRARY " WITHCODE",
    "FUNCTION LOAD REPLACE %c",
};

void blasd_worker_rules_init(struct blasd_worker_rules *rules, const char *worker,
                             const struct blasd_queue_options *options) {
    rules->worker = worker;
    snprintf(rules->tag, sizeof rules->tag, "{%.*s}", BLASD_LINK_NAME_MAX - 1, options->name);
    blasd_link_limits(options, &rules->limits);
    blasd_queue_recorded(options, rules->store);
}

static const char *meaning(const struct blasd_worker_rules *rules, char letter) {
    switch (letter) {
    case 'n': return rules->worker;
    case 't': return rules->tag;
    case 'l': return rules->limits.text;
    case 's': return rules->store;
    default: return blasd_queue_library.code;
    }
}

/* A word of a row, up to `end`, and one of a request. */
static bool is_word(const struct blasd_worker_rules *rules, const char *row, const char *end,
                    const char *word, size_t len) {
    for (; row < end; row++) {
        const char *text = row;
        size_t some = 1;
        if (*row == '*') return true;
        if (strncmp(row, "%j", 2) == 0) return blasd_stats_is_told(word, len, TOLD_MOST);
        if (*row == '%') {
            text = meaning(rules, *++row);
            some = strlen(text);
        }
        if (len < some || (*row != '?' && memcmp(word, text, some) != 0)) return false;
        word += some;
        len -= some;
    }
    return len == 0;
}

static bool is_row(const struct blasd_worker_rules *rules, const char *row, const char *data,
                   const struct blasd_redis_request *request) {
    for (size_t i = 0;; i++) {
        const char *end = row + strcspn(row, " ");
        if (strcmp(row, "...") == 0) return true;
        if (i == request->count) return false;
        if (!is_word(rules, row, end, data + request->words[i].at, request->words[i].len))
            return false;
        if (*end == '\0') return i + 1 == request->count;
        row = end + 1;
    }
}

bool blasd_worker_may(const struct blasd_worker_rules *rules, const char *data,
                      const struct blasd_redis_request *request) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_row(rules, rows[i], data, request)) return true;
    return false;
}
