/* How fast numbers of JSON are read and written, against jansson: both in one run, in turns.
 *
 *     bench_json_numbers [ROUNDS, 9 by default]
 *
 * In: a body of one matrix, through the whole intake; jansson: json_loadb. Out: the matrix as text;
 * jansson: json_dumpb of a tree that is there. Each line is one kind of numbers and one size: MB of
 * text a second of processor time (medians), and how many times jansson's time for the same numbers
 * ours goes into, round by round: the median, and the least to the most. A round is as many
 * repetitions as take jansson some milliseconds. */
#include "wire/json_elements.h"
#include "wire/number.h"

#include <jansson.h>
#include <malloc.h>
#include <stdio.h>
#include <time.h>

#include "tests/unit/wire/intake_support.h"

enum { ROUNDS_MOST = 99, NUMBER_ROOM = 40 };

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

static void *must(void *made) {
    if (made == NULL) exit(1);
    return made;
}

static void check(int rc, const struct blasd_err *err) {
    if (rc == 0) return;
    fprintf(stderr, "failed: %s\n", err->detail);
    exit(1);
}

/* One kind of numbers in one size: the matrix, the body it comes in, and jansson's tree of it. */
struct matrix {
    struct blasd_tensor tensor;
    unsigned char *data;
    char *body;
    size_t len;
    json_t *tree;
    struct ready ready;
    char *text; /* room for all of it */
    size_t text_size;
};

static size_t read_ours(struct matrix *m) {
    struct blasd_limits limits;
    struct blasd_intake_options options = {.content_type = "application/json", .limits = &limits};
    struct blasd_intake *intake;
    struct blasd_err err;
    struct blasd_job job;
    blasd_limits_init(&limits);
    m->ready.used = 0;
    check(blasd_intake_new(&options, &m->ready.sink, &intake, &err), &err);
    check(blasd_intake_feed(intake, m->body, m->len, &err), &err);
    check(blasd_intake_finish(intake, &job, &err), &err);
    blasd_intake_free(intake);
    return m->len;
}

static size_t read_jansson(struct matrix *m) {
    json_error_t problem;
    json_decref(must(json_loadb(m->body, m->len, JSON_REJECT_DUPLICATES, &problem)));
    return m->len;
}

static size_t write_ours(struct matrix *m) {
    static char room[65536]; /* as the answers' pieces are */
    struct json_elements writer;
    size_t all = 0, n;
    json_elements_init(&writer, &m->tensor, m->data);
    while ((n = json_elements_read(&writer, room, sizeof room)) > 0) all += n;
    return all;
}

static size_t write_jansson(struct matrix *m) {
    return json_dumpb(m->tree, m->text, m->text_size, JSON_COMPACT);
}

static double random_double(uint64_t *state) {
    return (double)(int64_t)piece_random(state) * 0x1p-62;
}
static double random_small(uint64_t *state) {
    return (double)(piece_random(state) >> 40) * 0x1p-24 * 2000 - 1000;
}
static double small_integer(uint64_t *state) {
    return trunc(random_small(state));
}
static double two_decimals(uint64_t *state) {
    return trunc(random_small(state) * 10) / 100;
}

static const struct kind {
    const char *name;
    enum blasd_dtype dtype;
    double (*next)(uint64_t *state);
} kinds[] = {
    {"doubles", BLASD_float64, random_double},
    {"integers", BLASD_float64, small_integer},
    {"decimals", BLASD_float64, two_decimals},
    {"float32", BLASD_float32, random_double},
};

static void make_matrix(struct matrix *m, const struct kind *kind, int64_t n) {
    const int64_t shape[] = {n, n};
    size_t count = (size_t)(n * n), size = blasd_dtype_size(kind->dtype);
    uint64_t state = 12345;
    struct json_elements writer;
    *m = (struct matrix){.tensor = blasd_tensor_make(kind->dtype, 2, shape),
                         .text_size = count * NUMBER_ROOM + 256};
    m->data = must(malloc(count * size));
    m->text = must(malloc(m->text_size));
    m->body = must(malloc(m->text_size));
    m->tree = must(json_array());
    for (size_t i = 0; i < count; i++) {
        double value = kind->next(&state);
        float single = (float)value;
        if (size == sizeof single) value = (double)single;
        memcpy(m->data + i * size, size == 4 ? (void *)&single : (void *)&value, size);
        if (i % (size_t)n == 0) json_array_append_new(m->tree, json_array());
        json_array_append_new(json_array_get(m->tree, i / (size_t)n), json_real(value));
    }
    m->len =
        (size_t)sprintf(m->body, "{\"op\":\"mix\",\"inputs\":{\"a\":{\"dtype\":\"%s\",\"data\":",
                        blasd_dtype_name(kind->dtype));
    json_elements_init(&writer, &m->tensor, m->data);
    m->len += json_elements_read(&writer, m->body + m->len, m->text_size - m->len);
    m->len += (size_t)sprintf(m->body + m->len, "}}}");
    m->ready = (struct ready){.sink = {.reserve = ready_reserve, .write = ready_write},
                              .size = count * 8 + 64};
    m->ready.bytes = must(malloc(m->ready.size));
    memset(m->ready.bytes, 1, m->ready.size);
    memset(m->text, 1, m->text_size);
}

static void free_matrix(struct matrix *m) {
    free(m->data);
    free(m->text);
    free(m->body);
    free(m->ready.bytes);
    json_decref(m->tree);
}

static double now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* Nanoseconds of one call, and its bytes of text. */
static double time_calls(size_t (*call)(struct matrix *), struct matrix *m, int calls,
                         size_t *bytes) {
    double begin;
    free(must(malloc(1 << 20))); /* else who comes next sweeps up the small pieces freed before */
    begin = now_ns();
    for (int i = 0; i < calls; i++) *bytes = call(m);
    return (now_ns() - begin) / calls;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static void compare(const char *way, const char *kind, struct matrix *m, int rounds,
                    size_t (*ours)(struct matrix *), size_t (*theirs)(struct matrix *)) {
    double mine[ROUNDS_MOST], other[ROUNDS_MOST], ratio[ROUNDS_MOST], middle;
    int64_t count = blasd_tensor_elements(&m->tensor);
    int calls = (int)(65536 / count) + 1;
    size_t bytes = 0, other_bytes = 0;
    ours(m); /* once before: memory and caches */
    theirs(m);
    for (int round = 0; round < rounds; round++) {
        mine[round] = time_calls(ours, m, calls, &bytes);
        other[round] = time_calls(theirs, m, calls, &other_bytes);
        ratio[round] = other[round] / mine[round];
    }
    middle = median(ratio, rounds);
    printf("%-3s %-8s %4lld x %-4lld  blasd %6.1f MB/s %6.1f ns a number, jansson %5.1f MB/s "
           "%5.1f ns, ratio %.2f (%.2f to %.2f)\n",
           way, kind, (long long)m->tensor.shape[0], (long long)m->tensor.shape[1],
           (double)bytes * 1e3 / median(mine, rounds), median(mine, rounds) / (double)count,
           (double)other_bytes * 1e3 / median(other, rounds), median(other, rounds) / (double)count,
           middle, ratio[0], ratio[rounds - 1]);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const int64_t sizes[] = {4, 64, 1024};
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    if (rounds < 1 || rounds > ROUNDS_MOST) {
        fprintf(stderr, "usage: bench_json_numbers [ROUNDS, 1 to %d]\n", ROUNDS_MOST);
        return 2;
    }
    /* as `blasd api` does, and more: neither side asks the kernel for memory in every turn */
    if (mallopt(M_MMAP_THRESHOLD, 32 << 20) != 1 || mallopt(M_TRIM_THRESHOLD, 1 << 30) != 1)
        return 1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            struct matrix m;
            make_matrix(&m, &kinds[i], sizes[j]);
            compare("in", kinds[i].name, &m, rounds, read_ours, read_jansson);
            compare("out", kinds[i].name, &m, rounds, write_ours, write_jansson);
            free_matrix(&m);
        }
    }
    return 0;
}
