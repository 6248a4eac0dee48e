/* The devices of a service and its queue as lines, for `blasd devices --url` and `blasd top`. */
#include "clients/cli/cli.h"

#include <string.h>

#define LINE 512

static double number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

static const json_t *same_worker(const json_t *device, const json_t *document) {
    const char *name = json_string_value(json_object_get(device, "worker"));
    size_t i;
    json_t *other;
    json_array_foreach(json_object_get(document, "devices"), i, other) {
        const char *theirs = json_string_value(json_object_get(other, "worker"));
        if (name != NULL && theirs != NULL && strcmp(name, theirs) == 0) return other;
    }
    return NULL;
}

/* What it did since `before`, or in its whole life where that knows nothing of it; how busy it is
 * the worker says itself, of its last seconds. */
static void put_device(const json_t *device, const json_t *before, double seconds, cli_line_fn put,
                       void *arg) {
    const json_t *then = same_worker(device, before);
    double life = number_of(device, "uptime_s"), jobs = number_of(device, "jobs");
    double batches = number_of(device, "batches"), busy = number_of(device, "busy_share");
    char line[LINE], id[32], worker[64], name[128], memory[16];
    if (then != NULL && seconds > 0 && number_of(then, "jobs") <= jobs) {
        life -= number_of(then, "uptime_s");
        jobs -= number_of(then, "jobs");
        batches -= number_of(then, "batches");
    }
    if (!(life > 0)) life = seconds > 0 ? seconds : 1;
    cli_format_bytes(number_of(device, "memory_free_bytes"), memory);
    snprintf(
        line, sizeof line, "%-8s %9.0f %9.1f %9.2f %5.0f%% %9s  %-24s %s",
        cli_plain(json_string_value(json_object_get(device, "device")), id, sizeof id),
        number_of(device, "jobs"), jobs / life, batches > 0 ? jobs / batches : 0, 100 * busy,
        memory,
        cli_plain(json_string_value(json_object_get(device, "worker")), worker, sizeof worker),
        cli_plain(json_string_value(json_object_get(device, "device_name")), name, sizeof name));
    put(arg, line);
}

/* One line for each class and priority in which there is something. */
static void put_queue(const json_t *queue, cli_line_fn put, void *arg) {
    static const char *const classes[] = {"any", "cpu", "cuda"};
    static const char *const priorities[] = {"high", "normal", "low"};
    char line[LINE], bytes[16];
    cli_format_bytes(number_of(queue, "bytes"), bytes);
    snprintf(line, sizeof line, "queue: %.0f jobs, %s bytes, %.0f of them running",
             number_of(queue, "jobs"), bytes, number_of(queue, "running"));
    put(arg, line);
    for (int c = 0; c < 3; c++)
        for (int p = 0; p < 3; p++) {
            const json_t *row = json_object_get(json_object_get(queue, classes[c]), priorities[p]);
            double queued = number_of(row, "queued"), claimed = number_of(row, "claimed");
            if (queued + claimed <= 0) continue;
            snprintf(line, sizeof line, "  %-5s %-7s %8.0f queued, %8.0f with a worker", classes[c],
                     priorities[p], queued, claimed);
            put(arg, line);
        }
}

void cli_put_devices(const json_t *document, const json_t *before, double seconds, cli_line_fn put,
                     void *arg) {
    size_t i;
    json_t *device;
    char line[LINE], id[32], reason[256];
    put_queue(json_object_get(document, "queue"), put, arg);
    put(arg, "");
    put(arg,
        "DEVICE        JOBS    JOBS/S JOBS/CALL   BUSY  MEM FREE  WORKER                   NAME");
    json_array_foreach(json_object_get(document, "devices"), i, device)
        put_device(device, before, seconds, put, arg);
    json_array_foreach(json_object_get(document, "unusable"), i, device) {
        snprintf(
            line, sizeof line, "%-8s cannot be used: %s",
            cli_plain(json_string_value(json_object_get(device, "device")), id, sizeof id),
            cli_plain(json_string_value(json_object_get(device, "reason")), reason, sizeof reason));
        put(arg, line);
    }
}
