/* What the worker says of itself: the JSON object that GET /devices shows. */
#include "base/buf.h"
#include "base/clock.h"
#include "wire/cost_text.h"
#include "worker/heartbeat_state.h"

#include <jansson.h>
#include <unistd.h>

#define SHARE_NS (10000 * BLASD_MS) /* the window of busy_share and jobs_per_s */
#define SHARE_LEAST_NS (500 * BLASD_MS)

/* Rates over the last window, the batch that is running included. Under the lock. */
static void measure(struct blasd_heartbeat *heartbeat, int64_t now) {
    int64_t busy = heartbeat->tally.busy_ns, span = now - heartbeat->tally.window_ns;
    for (int i = 0; i < BLASD_PLACES; i++)
        if (heartbeat->active[i].count > 0) busy += now - heartbeat->active[i].began_ns;
    if (span < SHARE_LEAST_NS) return;
    heartbeat->tally.busy_share = (double)(busy - heartbeat->tally.window_busy_ns) / (double)span;
    if (heartbeat->tally.busy_share > 1) heartbeat->tally.busy_share = 1;
    if (heartbeat->tally.busy_share < 0) heartbeat->tally.busy_share = 0;
    heartbeat->tally.jobs_per_s =
        (double)(heartbeat->tally.jobs - heartbeat->tally.window_jobs) * 1e9 / (double)span;
    if (span < SHARE_NS) return;
    heartbeat->tally.window_ns = now;
    heartbeat->tally.window_busy_ns = busy;
    heartbeat->tally.window_jobs = heartbeat->tally.jobs;
}

static json_t *text_of(const char *text) {
    json_t *value = json_string(text);
    return value != NULL ? value : json_string("?"); /* not UTF-8 */
}

static json_t *cost_of(const struct blasd_cost *cost) {
    struct blasd_buf text;
    json_t *value = NULL;
    blasd_buf_init(&text, BLASD_COST_TEXT_MOST);
    if (blasd_cost_known(cost) && blasd_cost_write(cost, &text) == 0)
        value = json_loadb(text.data, text.len, 0, NULL);
    blasd_buf_release(&text);
    return value;
}

/* Where it is known. */
static int put_figure(json_t *object, const char *name, double value) {
    return value > 0 ? json_object_set_new(object, name, json_real(value)) : 0;
}

json_t *blasd_device_json(const struct blasd_device_info *info, const struct blasd_cost *cost) {
    json_t *object = json_object(), *costs = cost_of(cost), *blas;
    int failed = json_object_set_new(object, "device", text_of(info->id));
    failed |= json_object_set_new(object, "device_name", text_of(info->name));
    failed |= json_object_set_new(object, "class",
                                  json_string(blasd_device_class_names[info->device_class]));
    failed |= json_object_set_new(object, "units", json_integer(info->units));
    failed |=
        json_object_set_new(object, "memory_bytes", json_integer((json_int_t)info->memory_bytes));
    failed |= json_object_set_new(object, "memory_free_bytes",
                                  json_integer((json_int_t)info->memory_free_bytes));
    if (info->blas_library[0] != '\0') {
        blas = json_pack("{s:o, s:o, s:o}", "library", text_of(info->blas_library), "core",
                         text_of(info->blas_core), "chosen_by", text_of(info->blas_chosen_by));
        failed |= json_object_set_new(object, "blas", blas);
    }
    failed |= put_figure(object, "gflops_float64", info->gflops_float64);
    failed |= put_figure(object, "gflops_float32", info->gflops_float32);
    failed |= put_figure(object, "copy_gbytes_s", info->copy_gbytes_s);
    /* each only where the card counts it */
    failed |= put_figure(object, "power_watts", info->power_watts);
    failed |= put_figure(object, "energy_joules", info->energy_joules);
    if (info->device_class == BLASD_DEVICE_CUDA && info->busy_percent >= 0)
        failed |= json_object_set_new(object, "busy_percent", json_integer(info->busy_percent));
    if (costs != NULL) failed |= json_object_set_new(object, "cost", costs);
    if (failed == 0) return object;
    json_decref(object);
    return NULL;
}

/* With the lock. */
static json_t *tally_json(const struct blasd_heartbeat *heartbeat, int64_t now) {
    const struct tally *tally = &heartbeat->tally;
    return json_pack("{s:i, s:f, s:I, s:I, s:I, s:i, s:f, s:f, s:f, s:I}", "pid", (int)getpid(),
                     "uptime_s", (double)(now - heartbeat->started_ns) / 1e9, "jobs",
                     (json_int_t)tally->jobs, "failed", (json_int_t)tally->failed, "batches",
                     (json_int_t)tally->batches, "running", blasd_active_jobs(heartbeat), "busy_s",
                     (double)tally->busy_ns / 1e9, "busy_share", tally->busy_share, "jobs_per_s",
                     tally->jobs_per_s, "host_memory_bytes", (json_int_t)heartbeat->host_memory);
}

char *blasd_heartbeat_info(struct blasd_heartbeat *heartbeat) {
    const struct blasd_backend *backend = heartbeat->options->backend;
    int64_t now = blasd_clock_ns();
    char host[65] = "", *text = NULL;
    struct blasd_cost cost;
    json_t *object, *tally, *ops = json_array();
    int failed = 0;
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    blasd_estimate_get(&heartbeat->estimate, &cost);
    pthread_mutex_lock(&heartbeat->lock);
    measure(heartbeat, now);
    tally = tally_json(heartbeat, now);
    object = blasd_device_json(&heartbeat->device, &cost);
    failed |= json_object_set_new(object, "id", text_of(heartbeat->device.id));
    pthread_mutex_unlock(&heartbeat->lock);
    for (int i = 0; backend->kernels[i] != NULL; i++)
        failed |= json_array_append_new(ops, json_string(backend->kernels[i]->op));
    failed |= json_object_set_new(object, "ops", ops);
    failed |= json_object_set_new(object, "worker", text_of(heartbeat->options->name));
    failed |= json_object_set_new(object, "host", text_of(host));
    failed |= json_object_update(object, tally);
    if (failed == 0) text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(tally);
    json_decref(object);
    return text;
}
