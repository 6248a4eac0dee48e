/* How fast JSON tensors are read: the way in against jansson, in one run.
 *
 *     make build/lib/wire.a build/lib/core.a build/lib/base.a
 *     gcc -std=c17 -O2 -D_GNU_SOURCE -Isrc -I. bench/wire/bench_json_numbers.c build/lib/wire.a \
 *         build/lib/core.a build/lib/base.a -ljansson -lstdc++ -lm -o build/bench_json_numbers
 *
 * Prints the best and the median of several runs, in MB of JSON text a second of processor time. */
#include "wire/number.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "tests/unit/wire/intake_support.h"

enum { RUNS = 9 };

/* A sink whose memory is there already, as a recycled blob's is. */
struct ready {
    struct blasd_sink sink;
    unsigned char *bytes;
    uint64_t size, used;
};

static int ready_reserve(struct blasd_sink *sink, uint64_t bytes, uint64_t *offset,
                         struct blasd_err *err) {
    struct ready *ready = (struct ready *)sink;
    *offset = ready->used;
    if (bytes > ready->size - ready->used)
        return blasd_fail(err, BLASD_E_no_space, "", "too large");
    ready->used += (bytes + 63) / 64 * 64;
    return 0;
}

static int ready_write(struct blasd_sink *sink, uint64_t offset, const void *bytes, size_t len,
                       struct blasd_err *err) {
    (void)err;
    memcpy(((struct ready *)sink)->bytes + offset, bytes, len);
    return 0;
}

static void check(int rc, const struct blasd_err *err) {
    if (rc == 0) return;
    fprintf(stderr, "failed: %s\n", err->detail);
    exit(1);
}

static void read_ours(const char *body, size_t len, struct ready *ready) {
    struct blasd_limits limits;
    struct blasd_intake_options options = {.content_type = "application/json", .limits = &limits};
    struct blasd_intake *intake;
    struct blasd_err err;
    struct blasd_job job;
    blasd_limits_init(&limits);
    ready->used = 0;
    check(blasd_intake_new(&options, &ready->sink, &intake, &err), &err);
    check(blasd_intake_feed(intake, body, len, &err), &err);
    check(blasd_intake_finish(intake, &job, &err), &err);
    blasd_intake_free(intake);
}

static void read_jansson(const char *body, size_t len) {
    json_error_t problem;
    json_t *root = json_loadb(body, len, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) exit(1);
    json_decref(root);
}

static double now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times `repeats` readings RUNS times: MB/s, best and median. */
static void measure(const char *name, const char *body, size_t len, int repeats,
                    struct ready *ready) {
    double rate[RUNS];
    for (int run = 0; run < RUNS; run++) {
        double begin = now_ns();
        for (int i = 0; i < repeats; i++) {
            if (ready != NULL)
                read_ours(body, len, ready);
            else
                read_jansson(body, len);
        }
        rate[run] = (double)len * repeats * 1e3 / (now_ns() - begin);
    }
    qsort(rate, RUNS, sizeof *rate, by_value);
    printf("  %-8s best %7.1f  median %7.1f MB/s  %9.2f us a body\n", name, rate[RUNS - 1],
           rate[RUNS / 2], (double)len / rate[RUNS / 2]);
}

/* A body of one n x n matrix; `digits` after the point, or 0 for doubles in full. */
static char *make_body(int n, int digits, size_t *len) {
    char *body = malloc((size_t)n * (size_t)n * 28 + 256), *at = body;
    uint64_t state = 12345;
    if (body == NULL) exit(1);
    at += sprintf(at, "{\"op\":\"mix\",\"inputs\":{\"a\":[");
    for (int i = 0; i < n; i++) {
        at += sprintf(at, "%s[", i == 0 ? "" : ",");
        for (int j = 0; j < n; j++) {
            double value = (double)(piece_random(&state) >> 11) * 0x1p-53 * 2 - 1;
            if (j > 0) *at++ = ',';
            if (digits > 0)
                at += sprintf(at, "%.*f", digits, value);
            else
                at = blasd_number_write(at, value);
        }
        *at++ = ']';
    }
    at += sprintf(at, "]},\"params\":{}}");
    *len = (size_t)(at - body);
    return body;
}

int main(void) {
    static const struct {
        int n, digits, repeats;
    } cases[] = {{4, 0, 20000}, {64, 0, 200}, {1024, 0, 1}, {1024, 3, 1}};
    struct ready ready = {.sink = {.reserve = ready_reserve, .write = ready_write},
                          .size = 64 << 20};
    ready.bytes = malloc(ready.size);
    if (ready.bytes == NULL) return 1;
    memset(ready.bytes, 1, ready.size);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len;
        char *body = make_body(cases[i].n, cases[i].digits, &len);
        printf("%d x %d, %s digits, %zu bytes\n", cases[i].n, cases[i].n,
               cases[i].digits > 0 ? "3" : "all", len);
        measure("blasd", body, len, cases[i].repeats, &ready);
        measure("jansson", body, len, cases[i].repeats, NULL);
        free(body);
    }
    free(ready.bytes);
    return 0;
}
