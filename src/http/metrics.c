/* Counting, and GET /metrics in Prometheus' text format. */
#include "http/metrics.h"

#include "base/clock.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "http/stats_metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* the last place stands for every other status */
static const unsigned statuses[HTTP_MAX_STATUSES] = {200, 202, 204, 206, 400, 401, 403, 404,
                                                     405, 406, 408, 409, 410, 413, 415, 416,
                                                     422, 429, 431, 500, 503, 504};
static const double bounds[HTTP_BUCKETS] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                            0.25,   0.5,   1,      2.5,   5,    10,    30,   60};

void http_metrics_request(struct http_metrics *metrics, int route, unsigned status) {
    int slot = 0;
    if (route < 0 || route >= HTTP_MAX_ROUTES) route = HTTP_MAX_ROUTES;
    while (slot < HTTP_MAX_STATUSES - 1 && statuses[slot] != status) slot++;
    http_count(&metrics->requests[route][slot], 1);
}

static void observe(struct http_histogram *histogram, int64_t us) {
    int bucket = 0;
    if (us < 0) us = 0;
    while (bucket < HTTP_BUCKETS && (double)us > bounds[bucket] * 1e6) bucket++;
    http_count(&histogram->buckets[bucket], 1);
    http_count(&histogram->sum_us, (uint64_t)us);
}

static void count_op(struct http_op_metrics *op, const struct blasd_record *record) {
    const struct blasd_timing *t = &record->timing;
    uint64_t batch = record->execution.batch_size > 0 ? (uint64_t)record->execution.batch_size : 1;
    uint64_t total = t->total_us > 0 ? (uint64_t)t->total_us : 0;
    if (record->state != BLASD_SUCCEEDED) {
        http_count(&op->failed, 1);
        http_count(&op->failed_us, total);
        return;
    }
    http_count(&op->succeeded, 1);
    http_count(&op->succeeded_us, total);
    http_count(&op->executions, ((UINT64_C(1) << 20) + batch / 2) / batch);
    http_count(&op->queue_us, (uint64_t)(t->queue_us + t->batch_wait_us));
    http_count(&op->upload_us, (uint64_t)t->upload_us);
    http_count(&op->compute_us, (uint64_t)t->compute_us);
    http_count(&op->download_us, (uint64_t)t->download_us);
    atomic_store_explicit(&op->last_ms, (uint64_t)record->finished_us / 1000, memory_order_relaxed);
}

void http_metrics_job(struct http_metrics *metrics, const struct blasd_record *record) {
    const struct blasd_op *op = blasd_op_find(record->op);
    if (op != NULL) count_op(&metrics->ops[blasd_op_position(op)], record);
    if (record->state != BLASD_SUCCEEDED) return;
    observe(&metrics->queue, record->timing.queue_us);
    observe(&metrics->compute, record->timing.compute_us);
    observe(&metrics->total, record->timing.total_us);
}

/* The sum of one counter, `at` bytes into each loop's metrics. */
static uint64_t sum(const struct http_server *server, const _Atomic uint64_t *of_first) {
    size_t at = (size_t)((const char *)of_first - (const char *)&server->metrics[0]);
    uint64_t total = 0;
    for (int i = 0; i < server->options->loops; i++)
        total += atomic_load_explicit(
            (const _Atomic uint64_t *)(const void *)((const char *)&server->metrics[i] + at),
            memory_order_relaxed);
    return total;
}

void http_metrics_op(const struct http_server *server, int i, struct blasd_oip_stats *ret) {
    const struct http_op_metrics *first = &server->metrics[0].ops[i];
    *ret = (struct blasd_oip_stats){.inferences = sum(server, &first->succeeded),
                                    .failures = sum(server, &first->failed),
                                    .executions = (double)sum(server, &first->executions) / 0x1p20,
                                    .success_ns = sum(server, &first->succeeded_us) * 1000,
                                    .failure_ns = sum(server, &first->failed_us) * 1000,
                                    .queue_ns = sum(server, &first->queue_us) * 1000,
                                    .input_ns = sum(server, &first->upload_us) * 1000,
                                    .compute_ns = sum(server, &first->compute_us) * 1000,
                                    .output_ns = sum(server, &first->download_us) * 1000};
    for (int loop = 0; loop < server->options->loops; loop++) {
        uint64_t last =
            atomic_load_explicit(&server->metrics[loop].ops[i].last_ms, memory_order_relaxed);
        if (last > ret->last_ms) ret->last_ms = last;
    }
}

/* Writing stops at the first failure, which the caller learns from *rc. */
#define PUT(...) (*rc = *rc != 0 ? *rc : blasd_buf_printf(out, __VA_ARGS__))

static void put_head(struct blasd_buf *out, int *rc, const char *name, const char *type,
                     const char *help) {
    PUT("# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(struct blasd_buf *out, int *rc, const char *name, const char *type,
                    const char *help, double value) {
    put_head(out, rc, name, type, help);
    PUT("%s %.17g\n", name, value);
}

static void put_histogram(const struct http_server *server, struct blasd_buf *out, int *rc,
                          const char *name, const char *help,
                          const struct http_histogram *of_first) {
    uint64_t count = 0;
    put_head(out, rc, name, "histogram", help);
    for (int i = 0; i < HTTP_BUCKETS; i++) {
        count += sum(server, &of_first->buckets[i]);
        PUT("%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], count);
    }
    count += sum(server, &of_first->buckets[HTTP_BUCKETS]);
    PUT("%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
    PUT("%s_sum %.6f\n", name, (double)sum(server, &of_first->sum_us) / 1e6);
    PUT("%s_count %" PRIu64 "\n", name, count);
}

static const char *method_label(unsigned methods) {
    return (methods & HTTP_POST) != 0     ? "POST"
           : (methods & HTTP_DELETE) != 0 ? "DELETE"
           : (methods & HTTP_PATCH) != 0  ? "PATCH"
                                          : "GET";
}

static void put_requests(const struct http_server *server, struct blasd_buf *out, int *rc) {
    const struct http_metrics *first = &server->metrics[0];
    int routes = 0;
    while (server->routes[routes].path != NULL) routes++;
    put_head(out, rc, "blasd_http_requests_total", "counter", "Requests answered.");
    for (int route = 0; route <= HTTP_MAX_ROUTES; route++) {
        bool known = route < routes;
        for (int slot = 0; slot < HTTP_MAX_STATUSES; slot++) {
            uint64_t count = sum(server, &first->requests[route][slot]);
            char status[16] = "other";
            if (count == 0) continue;
            if (statuses[slot] != 0) snprintf(status, sizeof status, "%u", statuses[slot]);
            PUT("blasd_http_requests_total{route=\"%s\",method=\"%s\",status=\"%s\"} %" PRIu64 "\n",
                known ? server->routes[route].path : "none",
                known ? method_label(server->routes[route].methods) : "any", status, count);
        }
    }
}

static void put_sent(const struct http_server *server, struct blasd_buf *out, int *rc) {
    static const char *const names[] = {"auto", "cpu", "cuda"};
    put_head(out, rc, "blasd_jobs_sent_total", "counter",
             "Jobs queued, by the class of devices they were sent to; auto: whichever is free.");
    for (int class = BLASD_DEVICE_ANY; class < BLASD_DEVICE_CLASS_COUNT; class ++)
        PUT("blasd_jobs_sent_total{device=\"%s\"} %" PRIu64 "\n", names[class],
            sum(server, &server->metrics[0].sent[class]));
}

static void put_queue(struct http_loop *loop, struct blasd_buf *out, int *rc) {
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    put_one(out, rc, "blasd_queue_available", "gauge", "1 while the queue takes jobs.",
            view->available ? 1 : 0);
    put_one(out, rc, "blasd_queue_jobs", "gauge", "Jobs queued or running.", (double)view->jobs);
    put_one(out, rc, "blasd_queue_jobs_limit", "gauge", "The limit queue_jobs.",
            (double)view->jobs_limit);
    put_one(out, rc, "blasd_queue_bytes", "gauge", "Inputs and outputs of those jobs.",
            (double)view->bytes);
    put_one(out, rc, "blasd_queue_bytes_limit", "gauge", "The limit queue_bytes.",
            (double)view->bytes_limit);
    put_head(out, rc, "blasd_workers", "gauge", "Live workers by device class.");
    for (int class = BLASD_DEVICE_CPU; class < BLASD_DEVICE_CLASS_COUNT; class ++)
        PUT("blasd_workers{class=\"%s\"} %d\n", blasd_device_class_names[class],
            view->workers_of[class]);
}

static void put_http(struct http_server *server, struct blasd_buf *out, int *rc) {
    const struct http_metrics *first = &server->metrics[0];
    put_one(out, rc, "blasd_http_connections", "gauge", "Open connections.",
            (double)sum(server, &first->connections));
    put_one(out, rc, "blasd_http_requests_in_flight", "gauge", "Requests not yet answered.",
            (double)sum(server, &first->in_flight));
    put_one(out, rc, "blasd_http_requests_waiting", "gauge", "Requests that wait for a job.",
            (double)sum(server, &first->waiting));
    put_one(out, rc, "blasd_http_received_bytes_total", "counter", "Bytes of request bodies.",
            (double)sum(server, &first->received_bytes));
    put_one(out, rc, "blasd_http_sent_bytes_total", "counter", "Bytes of answers' bodies.",
            (double)sum(server, &first->sent_bytes));
    put_one(out, rc, "blasd_intake_bytes", "gauge", "Bytes of request bodies being received.",
            (double)atomic_load(&server->intake_used));
    put_one(out, rc, "blasd_intake_bytes_limit", "gauge", "The limit intake_bytes.",
            (double)atomic_load(&server->intake_limit));
    put_histogram(server, out, rc, "blasd_job_queue_seconds",
                  "Submission to claim, of jobs that were waited for.", &first->queue);
    put_histogram(server, out, rc, "blasd_job_compute_seconds",
                  "The kernel, of jobs that were waited for.", &first->compute);
    put_histogram(server, out, rc, "blasd_job_total_seconds",
                  "Request to end, of jobs that were waited for.", &first->total);
}

static int count_files(void) {
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) return 0;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count - 3; /* ".", ".." and the one of this directory */
}

static double resident_bytes(void) {
    unsigned long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) return 0;
    if (fscanf(file, "%lu %lu", &all, &resident) != 2) resident = 0;
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void put_process(const struct http_server *server, struct blasd_buf *out, int *rc) {
    struct rusage usage;
    struct rlimit files;
    getrusage(RUSAGE_SELF, &usage);
    put_one(out, rc, "process_cpu_seconds_total", "counter", "User and system time.",
            (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    put_one(out, rc, "process_resident_memory_bytes", "gauge", "Resident memory.",
            resident_bytes());
    put_one(out, rc, "process_start_time_seconds", "gauge", "Start of the service, since 1970.",
            (double)server->started_us / 1e6);
    put_one(out, rc, "process_open_fds", "gauge", "Open descriptors.", count_files());
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        put_one(out, rc, "process_max_fds", "gauge", "Most open descriptors.",
                (double)files.rlim_cur);
}

static void show(struct http_exchange *exchange, const char *stats, size_t len) {
    struct http_loop *loop = exchange->home;
    struct http_server *server = loop->server;
    struct blasd_buf text, *out = &text;
    int status = 0, *rc = &status;
    blasd_buf_init(out, 4 * BLASD_MIB);
    put_head(out, rc, "blasd_build_info", "gauge", "The version that runs.");
    PUT("blasd_build_info{version=\"%s\"} 1\n",
        server->options->version == NULL ? "" : server->options->version);
    put_requests(server, out, rc);
    put_sent(server, out, rc);
    put_queue(loop, out, rc);
    if (http_stats_metrics(stats, len, out) != 0) status = -1;
    put_http(server, out, rc);
    put_process(server, out, rc);
    if (status == 0)
        http_reply_buf(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", out);
    else
        http_reply_fail(exchange, BLASD_E_no_space, "", "memory has run out");
    blasd_buf_release(out);
}

/* Without Redis the rows of stats_metrics.c are missing, and no others. */
static void on_stats(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    struct http_exchange *exchange = arg;
    if (http_exchange_open(exchange))
        show(exchange, err == NULL ? text : "", err == NULL ? len : 0);
    http_exchange_release(exchange);
}

void http_metrics_show(struct http_exchange *exchange) {
    if (!blasd_front_queue_view(exchange->home->queue)->available) {
        show(exchange, "", 0);
        return;
    }
    http_exchange_hold(exchange);
    blasd_front_queue_stats(exchange->home->queue, on_stats, exchange);
}
