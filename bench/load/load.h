/* The load generator's parts: what it is told, what it counts, and the engine that drives
 * connections.
 *
 * One thread, one epoll set, HTTP/1.1 with keep-alive, one request a connection at a time. It
 * shares the machine with what it measures, so a request costs it one send and one receive and
 * little else. It knows nothing of blasd: what to send, what to expect and how to poll stand in the
 * specification (load_spec.c).
 *
 * Read next: load_main.c, load_engine.c. */
#ifndef BLASD_BENCH_LOAD_H
#define BLASD_BENCH_LOAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOAD_MOST_REQUESTS 64
#define LOAD_MOST_CONNECTIONS 65536
#define LOAD_ORDER 1024           /* the mix of requests repeats after so many */
#define LOAD_TEXT_MOST (4u << 20) /* the largest answer whose text can be searched */
#define LOAD_SAMPLE 400
#define LOAD_SECONDS_MOST 3600

/* --- latencies
 * --------------------------------------------------------------------------------------- */

#define LOAD_SUB_BITS 7 /* 128 steps an octave: an error below 0.8 % */
#define LOAD_BUCKETS ((64 - LOAD_SUB_BITS + 1) << LOAD_SUB_BITS)

struct load_histogram {
    uint32_t buckets[LOAD_BUCKETS];
    uint64_t count;
    double sum_ns;
    int64_t most_ns;
};

void load_histogram_add(struct load_histogram *histogram, int64_t ns);
void load_histogram_merge(struct load_histogram *into, const struct load_histogram *from);
/* New reference: count, mean, p50, p90, p99, p999, max in milliseconds. */
json_t *load_histogram_json(const struct load_histogram *histogram);

/* --- what it is told
 * ---------------------------------------------------------------------------------- */

struct load_request {
    const char *name; /* borrowed from the specification */
    char *head;       /* owned: request line and headers; where the body is small, the body, too */
    size_t head_len;  /* of all that `head` holds */
    const char *body; /* owned mapping, sent after the head; NULL where there is none of its own */
    size_t body_len;  /* of `body` */
    int status;       /* the status that is right */
    const char *contains; /* borrowed; the text that a right answer has, or NULL */
    size_t contains_len;
    const char *tail; /* owned mapping: what a right answer ends with, or NULL */
    size_t tail_len;
    int tail_float;   /* 0: bytes; 4 or 8: floats of that size, compared within `tolerance` */
    double tolerance; /* |got - expected| <= tolerance * max(1, |expected|) */
    struct load_histogram *latency; /* owned; of right answers */
    uint64_t right, wrong;
};

struct load_poll {
    bool on;
    int64_t interval_ns, most_interval_ns, timeout_ns;
    uint64_t window;    /* most jobs that are submitted and not yet seen to have ended */
    const char *suffix; /* borrowed; after the location, for instance "?wait=1" */
    const char *ended;  /* borrowed; text that shows a job has ended well */
    const char *failed; /* borrowed; text that shows it has ended badly, or NULL */
};

struct load_spec {
    json_t *json; /* owned; strings are borrowed from it */
    const char *host;
    bool tls;
    int port;
    int connections;
    int64_t duration_ns, warmup_ns, timeout_ns;
    uint64_t count; /* requests to send, 0: as many as fit the duration */
    double rate;    /* open loop: arrivals a second; 0: closed loop */
    bool poisson, gather;
    uint64_t seed;
    struct load_poll poll;
    struct load_request requests[LOAD_MOST_REQUESTS];
    int request_count;
    unsigned char order[LOAD_ORDER];
};

/* Reads the file and everything it names. 0, or -1 after a line on standard error. */
int load_spec_read(struct load_spec *spec, const char *path);
void load_spec_release(struct load_spec *spec);

/* --- an answer
 * ------------------------------------------------------------------------------------------ */

enum load_step { LOAD_MORE, LOAD_DONE, LOAD_BROKEN };

struct load_reply {
    char *text; /* owned; what had to be kept because it did not come in one piece */
    size_t text_len, text_cap;
    const char *body; /* borrowed until the next feed: the whole body, where it was kept, or NULL */
    size_t body_len;  /* as Content-Length says */
    size_t seen;      /* bytes of the body so far */
    int status;
    bool in_body, begun, tail_differs, closes, retry_after;
    char location[128];
};

/* Makes it ready for the next answer; keeps its memory. */
void load_reply_reset(struct load_reply *reply);
/* Takes `n` bytes; `request` says what to compare with. */
enum load_step load_reply_feed(struct load_reply *reply, const struct load_request *request,
                               const char *bytes, size_t n);
/* Whether a finished answer is what the request expects. */
bool load_reply_right(const struct load_reply *reply, const struct load_request *request);
void load_reply_release(struct load_reply *reply);

/* --- a run
 * ------------------------------------------------------------------------------------------------
 */

struct load_result {
    uint64_t statuses[600];
    uint64_t sent, answered,
        in_window; /* in_window: right answers (or ended jobs) inside the measured time */
    uint64_t wrong, errors, timeouts, reopened, unsent, retry_after, late;
    uint64_t submitted, ended, failed, polls, lost;
    uint64_t bytes_out, bytes_in;
    uint64_t by_second[LOAD_SECONDS_MOST];
    struct load_histogram other; /* answers with another status than the expected one */
    struct load_histogram jobs;  /* polling: from submission until the end was seen */
    int64_t measured_ns;
    double submit_seconds;
    bool aborted;
    char sample[LOAD_SAMPLE]; /* the first answer that was not right, or the first error */
};

/* Runs the load. 0, or -1 after a line on standard error where it could not start. */
int load_run(struct load_spec *spec, struct load_result *result);

int64_t load_now(void);

#endif
