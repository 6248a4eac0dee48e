/* What the worker says of itself: the JSON object that GET /devices shows. */
#include "base/buf.h"
#include "base/clock.h"
#include "wire/cost_text.h"
#include "worker/heartbeat_state.h"

#include <inttypes.h>
#include <unistd.h>

#define INFO_MOST (4096 + BLASD_COST_TEXT_MOST)
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

/* `"key":"text",` with what JSON does not allow in a string replaced. */
static int put_text(struct blasd_buf *out, const char *key, const char *text) {
    char safe[160];
    size_t len = 0;
    for (; *text != '\0' && len < sizeof safe - 1; text++)
        safe[len++] = (unsigned char)*text < ' ' || *text == '"' || *text == '\\' ? ' ' : *text;
    safe[len] = '\0';
    return blasd_buf_printf(out, "\"%s\":\"%s\",", key, safe);
}

static int put_device(struct blasd_buf *out, const struct blasd_device_info *device) {
    int failed = put_text(out, "device", device->id);
    failed |= put_text(out, "device_name", device->name);
    failed |= put_text(out, "class", blasd_device_class_names[device->device_class]);
    failed |= blasd_buf_printf(
        out, "\"units\":%d,\"memory_bytes\":%" PRIu64 ",\"memory_free_bytes\":%" PRIu64 ",",
        device->units, device->memory_bytes, device->memory_free_bytes);
    if (device->blas_library[0] != '\0') {
        failed |= blasd_buf_puts(out, "\"blas\":{");
        failed |= put_text(out, "library", device->blas_library);
        failed |= put_text(out, "core", device->blas_core);
        failed |= put_text(out, "chosen_by", device->blas_chosen_by);
        out->len--; /* its comma */
        failed |= blasd_buf_puts(out, "},");
    }
    if (device->gflops_float64 > 0) /* measured, or left out */
        failed |= blasd_buf_printf(
            out, "\"gflops_float64\":%.6g,\"gflops_float32\":%.6g,\"copy_gbytes_s\":%.6g,",
            device->gflops_float64, device->gflops_float32, device->copy_gbytes_s);
    /* each only where the card counts it */
    if (device->power_watts > 0)
        failed |= blasd_buf_printf(out, "\"power_watts\":%.6g,", device->power_watts);
    if (device->energy_joules > 0)
        failed |= blasd_buf_printf(out, "\"energy_joules\":%.9g,", device->energy_joules);
    if (device->device_class == BLASD_DEVICE_CUDA && device->busy_percent >= 0)
        failed |= blasd_buf_printf(out, "\"busy_percent\":%d,", device->busy_percent);
    return failed;
}

/* What jobs cost on the device and how large they may be; under the lock. */
static int put_cost(struct blasd_buf *out, struct blasd_heartbeat *heartbeat) {
    const struct blasd_backend *backend = heartbeat->options->backend;
    const char *comma = "";
    struct blasd_cost cost;
    int failed = blasd_buf_printf(out, "\"host_memory_bytes\":%" PRIu64 ",\"ops\":[",
                                  heartbeat->host_memory);
    for (int i = 0; backend->kernels[i] != NULL; i++, comma = ",")
        failed |= blasd_buf_printf(out, "%s\"%s\"", comma, backend->kernels[i]->op);
    failed |= blasd_buf_puts(out, "],");
    blasd_estimate_get(&heartbeat->estimate, &cost);
    if (!blasd_cost_known(&cost)) return failed;
    failed |= blasd_buf_puts(out, "\"cost\":");
    failed |= blasd_cost_write(&cost, out);
    return failed | blasd_buf_puts(out, ",");
}

char *blasd_heartbeat_info(struct blasd_heartbeat *heartbeat) {
    int64_t now = blasd_clock_ns();
    char host[65] = "";
    struct blasd_buf out;
    int failed;
    blasd_buf_init(&out, INFO_MOST);
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    pthread_mutex_lock(&heartbeat->lock);
    measure(heartbeat, now);
    failed = blasd_buf_puts(&out, "{");
    failed |= put_text(&out, "worker", heartbeat->options->name);
    failed |= put_text(&out, "id", heartbeat->device.id);
    failed |= put_text(&out, "host", host);
    failed |= put_device(&out, &heartbeat->device);
    failed |= put_cost(&out, heartbeat);
    failed |=
        blasd_buf_printf(&out,
                         "\"pid\":%d,\"uptime_s\":%.3f,\"jobs\":%" PRIu64 ",\"failed\":%" PRIu64
                         ",\"batches\":%" PRIu64
                         ",\"running\":%d,\"busy_s\":%.3f,\"busy_share\":%.4f,\"jobs_per_s\":%.6g}",
                         (int)getpid(), (double)(now - heartbeat->started_ns) / 1e9,
                         heartbeat->tally.jobs, heartbeat->tally.failed, heartbeat->tally.batches,
                         blasd_active_jobs(heartbeat), (double)heartbeat->tally.busy_ns / 1e9,
                         heartbeat->tally.busy_share, heartbeat->tally.jobs_per_s);
    pthread_mutex_unlock(&heartbeat->lock);
    if (failed == 0) failed = blasd_buf_add(&out, "", 1); /* its zero */
    if (failed == 0) return out.data;
    blasd_buf_release(&out);
    return NULL;
}
