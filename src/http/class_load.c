/* The queue tells how many jobs wait for or run on a class, and how long these are predicted to
 * take. */
#include "http/class_load.h"

#include "http/jobs.h"
#include "http/placement.h"
#include "http/reply.h"
#include "wire/stats_load.h"

#include <math.h>
#include <string.h>

static int count_workers(json_t *workers, const char *class) {
    const char *name;
    json_t *info;
    int count = 0;
    json_object_foreach(workers, name, info) {
        const char *of = json_string_value(json_object_get(info, "class"));
        if (of != NULL && strcmp(of, class) == 0) count++;
    }
    return count;
}

/* One worker for each `target_s` of work, no more than there are jobs, and one while there is any:
 * what runs for long must not be left alone by the last one. */
static double count_wanted(double jobs, double waiting_s, double target_s) {
    double wanted = ceil(waiting_s / target_s);
    if (!(wanted < jobs)) return jobs;
    return wanted < 1 ? 1 : wanted;
}

json_t *http_load_document(const char *stats, size_t len, double target_s) {
    json_t *document = blasd_stats_load(stats, len), *classes = json_object();
    json_t *workers = json_object_get(document, "workers");
    const json_t *queue = json_object_get(document, "queue");
    int alive[BLASD_DEVICE_CLASS_COUNT] = {0}, open = BLASD_DEVICE_CPU;
    for (int c = BLASD_DEVICE_CPU; c < BLASD_DEVICE_CLASS_COUNT; c++)
        alive[c] = count_workers(workers, blasd_device_class_names[c]);
    if (alive[BLASD_DEVICE_CPU] == 0 && alive[BLASD_DEVICE_CUDA] > 0) open = BLASD_DEVICE_CUDA;
    for (int c = BLASD_DEVICE_CPU; c < BLASD_DEVICE_CLASS_COUNT; c++) {
        double jobs = http_placement_jobs(queue, (enum blasd_device_class)c);
        double waiting_s = http_placement_waits_s(queue, (enum blasd_device_class)c);
        if (c == open) jobs += http_placement_jobs(queue, BLASD_DEVICE_ANY);
        if (c == open) waiting_s += http_placement_waits_s(queue, BLASD_DEVICE_ANY);
        json_object_set_new(classes, blasd_device_class_names[c],
                            json_pack("{s:f, s:i, s:I}", "waiting_s", waiting_s, "workers",
                                      alive[c], "wanted",
                                      (json_int_t)count_wanted(jobs, waiting_s, target_s)));
    }
    if (document == NULL) {
        json_decref(classes);
        return NULL;
    }
    json_decref(document);
    return json_pack("{s:o}", "classes", classes);
}

static void on_stats(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    struct http_exchange *exchange = arg;
    const struct http_query *query = &exchange->request.query;
    bool given = (query->given & HTTP_PARAM_TARGET) != 0;
    if (http_exchange_open(exchange)) {
        if (err != NULL)
            http_reply_problem(exchange, err);
        else
            http_reply_json(exchange, http_load_document(
                                          text, len, given ? query->target_s : HTTP_LOAD_TARGET_S));
    }
    http_exchange_release(exchange);
}

void http_load(struct http_exchange *exchange) {
    http_exchange_hold(exchange);
    blasd_front_queue_figures(http_queue(exchange),
                              &(struct blasd_figures_query){.of = BLASD_FIGURES_METRICS}, on_stats,
                              exchange);
}
