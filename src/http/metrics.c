/* Counting, and GET /metrics in Prometheus' text format. */
#include "http/metrics.h"

#include "http/jobs.h"
#include "http/metric_rows.h"
#include "http/reply.h"
#include "http/stats_metrics.h"
#include "oip/oip.h"
#include "trace/otlp.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* the last place stands for every other status */
static const unsigned statuses[HTTP_MAX_STATUSES] = {200, 201, 202, 204, 206, 400, 401, 403,
                                                     404, 405, 406, 408, 409, 410, 413, 415,
                                                     416, 422, 429, 431, 500, 502, 503, 504};
void http_metrics_request(struct http_metrics *metrics, int route, unsigned status,
                          enum blasd_code problem) {
    int slot = 0;
    if (route < 0 || route >= HTTP_MAX_ROUTES) route = HTTP_MAX_ROUTES;
    while (slot < HTTP_MAX_STATUSES - 1 && statuses[slot] != status) slot++;
    http_count(&metrics->requests[route][slot], 1);
    if (problem != BLASD_OK) http_count(&metrics->problems[problem], 1);
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

static const char *method_label(unsigned methods) {
    return (methods & HTTP_POST) != 0     ? "POST"
           : (methods & HTTP_DELETE) != 0 ? "DELETE"
           : (methods & HTTP_PATCH) != 0  ? "PATCH"
                                          : "GET";
}

static void put_requests(const struct http_server *server, struct http_metric_rows *rows) {
    const struct http_metrics *first = &server->metrics[0];
    int routes = 0;
    while (server->routes[routes].path != NULL) routes++;
    for (int route = 0; route <= HTTP_MAX_ROUTES; route++) {
        bool known = route < routes;
        for (int slot = 0; slot < HTTP_MAX_STATUSES; slot++) {
            uint64_t count = sum(server, &first->requests[route][slot]);
            char status[16] = "other";
            const char *values[] = {known ? server->routes[route].path : "none",
                                    known ? method_label(server->routes[route].methods) : "any",
                                    status};
            if (count == 0) continue;
            if (statuses[slot] != 0) snprintf(status, sizeof status, "%u", statuses[slot]);
            http_metric_row(rows, METRIC(blasd_http_requests_total), values, (double)count);
        }
    }
}

/* What the loops count without labels, or with one. Of problems all, also those that have not been:
 * an alert sees the first one, then. */
static void put_counted(const struct http_server *server, struct http_metric_rows *rows) {
    static const char *const classes[] = {"auto", "cpu", "cuda"};
    const struct http_metrics *first = &server->metrics[0];
    const struct {
        enum blasd_metric metric;
        const _Atomic uint64_t *of_first;
    } counters[] = {{METRIC(blasd_http_connections), &first->connections},
                    {METRIC(blasd_http_requests_in_flight), &first->in_flight},
                    {METRIC(blasd_http_requests_waiting), &first->waiting},
                    {METRIC(blasd_http_received_bytes_total), &first->received_bytes},
                    {METRIC(blasd_http_sent_bytes_total), &first->sent_bytes}};
    struct blasd_histogram_sum redis = {0};
    for (int code = 1; code < BLASD_E_COUNT; code++)
        http_metric_row(rows, METRIC(blasd_http_problems_total),
                        &blasd_err_info((enum blasd_code)code)->name,
                        (double)sum(server, &first->problems[code]));
    for (int class = BLASD_DEVICE_ANY; class < BLASD_DEVICE_CLASS_COUNT; class ++)
        http_metric_row(rows, METRIC(blasd_jobs_sent_total), &classes[class],
                        (double)sum(server, &first->sent[class]));
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        http_metric_row(rows, counters[i].metric, NULL, (double)sum(server, counters[i].of_first));
    for (int i = 0; i < server->options->loops; i++)
        blasd_histogram_sum(&server->metrics[i].redis, &redis);
    http_metric_histogram(rows, METRIC(blasd_redis_call_seconds), NULL, &redis, blasd_bounds_us,
                          1e6);
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

static double seconds_of(const struct timeval *time) {
    return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

/* What is as it is now, without labels: the queue's view, memory and the process. */
static void put_present(const struct http_loop *loop, struct http_metric_rows *rows) {
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    const struct http_server *server = loop->server;
    struct rusage usage = {0};
    struct rlimit files = {0};
    (void)getrusage(RUSAGE_SELF, &usage);
    (void)getrlimit(RLIMIT_NOFILE, &files);
    const struct {
        enum blasd_metric metric;
        double value;
    } figures[] = {
        {METRIC(blasd_queue_available), view->available ? 1 : 0},
        {METRIC(blasd_queue_jobs), (double)view->jobs},
        {METRIC(blasd_queue_jobs_limit), (double)view->jobs_limit},
        {METRIC(blasd_queue_bytes), (double)view->bytes},
        {METRIC(blasd_queue_bytes_limit), (double)view->bytes_limit},
        {METRIC(blasd_intake_bytes), (double)blasd_account_used(&server->intake.all)},
        {METRIC(blasd_intake_bytes_limit), (double)blasd_account_limit(&server->intake.all)},
        {METRIC(blasd_http_memory_bytes), (double)blasd_account_used(&server->memory.all)},
        {METRIC(blasd_http_memory_bytes_limit), (double)blasd_account_limit(&server->memory.all)},
        {METRIC(process_cpu_seconds_total),
         seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime)},
        {METRIC(process_resident_memory_bytes), resident_bytes()},
        {METRIC(process_start_time_seconds), (double)server->started_us / 1e6},
        {METRIC(process_open_fds), count_files()},
        {METRIC(process_max_fds), (double)files.rlim_cur}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        http_metric_row(rows, figures[i].metric, NULL, figures[i].value);
    for (int class = BLASD_DEVICE_CPU; class < BLASD_DEVICE_CLASS_COUNT; class ++)
        http_metric_row(rows, METRIC(blasd_workers), &blasd_device_class_names[class],
                        view->workers_of[class]);
}

/* How the service was started, and its spans. */
static void put_options(const struct http_server *server, struct http_metric_rows *rows) {
    const char *version = server->options->version == NULL ? "" : server->options->version;
    http_metric_row(rows, METRIC(blasd_build_info), &version, 1);
    for (int i = 0; blasd_limits_info(i) != NULL; i++) {
        const char *values[] = {blasd_limits_info(i)->name, blasd_limits_info(i)->unit};
        http_metric_row(rows, METRIC(blasd_limit), values,
                        (double)blasd_limits_get(server->limits, i));
    }
    if (server->options->otlp == NULL) return;
    struct blasd_otlp_counts counts = blasd_otlp_counts(server->options->otlp);
    const struct {
        const char *outcome;
        uint64_t count;
    } spans[] = {{"sent", counts.sent}, {"dropped", counts.dropped}, {"refused", counts.refused}};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        http_metric_row(rows, METRIC(blasd_otlp_spans_total), &spans[i].outcome,
                        (double)spans[i].count);
}

static void show(struct http_exchange *exchange, const char *stats, size_t len) {
    struct http_server *server = exchange->home->server;
    struct blasd_buf out;
    struct http_metric_rows rows = {.out = &out};
    blasd_buf_init(&out, 64 * BLASD_MIB);
    put_requests(server, &rows);
    put_counted(server, &rows);
    put_present(exchange->home, &rows);
    http_stats_metrics(stats, len, &rows);
    put_options(server, &rows);
    if (rows.failed == 0)
        http_reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, http_buf(&out));
    else
        http_reply_no_memory(exchange);
    blasd_buf_release(&out);
}

/* Without Redis the rows of stats_metrics.c are missing, and no others. */
static void on_stats(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    struct http_exchange *exchange = arg;
    if (http_exchange_open(exchange))
        show(exchange, err == NULL ? text : "", err == NULL ? len : 0);
    http_exchange_release(exchange);
}

void http_metrics_show(struct http_exchange *exchange) {
    struct blasd_figures_query query = {0};
    if (!blasd_front_queue_view(http_queue(exchange))->available) {
        show(exchange, "", 0);
        return;
    }
    query.of = exchange->home->server->options->metrics_tenants ? BLASD_FIGURES_TENANTS
                                                                : BLASD_FIGURES_METRICS;
    http_exchange_hold(exchange);
    blasd_front_queue_figures(http_queue(exchange), &query, on_stats, exchange);
}
