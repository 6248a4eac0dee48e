/* Rows of GET /metrics about devices, from what workers tell with their heartbeats: memory, and
 * what cards count themselves. Knows nothing of Redis. Read next: metrics.c. */
#include "http/device_metrics.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

static const struct family {
    const char *key, *name, *type, *help;
    double factor;
} families[] = {
    {"memory_bytes", "blasd_device_memory_bytes", "gauge", "Memory of the worker's device.", 1},
    {"memory_free_bytes", "blasd_device_memory_free_bytes", "gauge", "What of it is free.", 1},
    {"busy_share", "blasd_device_busy_ratio", "gauge",
     "Share of the time in which the worker had a batch in hand.", 1},
    {"busy_percent", "blasd_device_utilization_ratio", "gauge",
     "Share of the time in which anything ran on the card, as it tells itself.", 0.01},
    {"power_watts", "blasd_device_power_watts", "gauge", "What the card draws now.", 1},
    {"energy_joules", "blasd_device_energy_joules_total", "counter",
     "What the card has drawn since its driver was loaded.", 1},
};

/* A label's value: quotes, backslashes and line ends escaped. */
static int put_label(struct blasd_buf *out, const char *name, const char *value) {
    int failed = blasd_buf_printf(out, "%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '\n')
            failed |= blasd_buf_puts(out, "\\n");
        else if (*value == '"' || *value == '\\')
            failed |= blasd_buf_printf(out, "\\%c", *value);
        else
            failed |= blasd_buf_add(out, value, 1);
    }
    return failed | blasd_buf_puts(out, "\"");
}

static const char *text_of(const json_t *info, const char *key) {
    const char *text = json_string_value(json_object_get(info, key));
    return text == NULL ? "" : text;
}

static int put_family(const struct family *family, json_t *workers, struct blasd_buf *out) {
    const char *worker;
    json_t *info;
    bool headed = false;
    int failed = 0;
    json_object_foreach(workers, worker, info) {
        const json_t *figure = json_object_get(info, family->key);
        if (!json_is_number(figure)) continue;
        if (!headed)
            failed |= blasd_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name,
                                       family->help, family->name, family->type);
        headed = true;
        failed |= blasd_buf_printf(out, "%s{", family->name);
        failed |= put_label(out, "worker", worker);
        failed |= put_label(out, ",device", text_of(info, "device"));
        failed |= put_label(out, ",device_name", text_of(info, "device_name"));
        failed |= blasd_buf_printf(out, "} %.17g\n", json_number_value(figure) * family->factor);
    }
    return failed;
}

int http_device_metrics(const char *stats, size_t len, struct blasd_buf *out) {
    json_t *document = json_loadb(stats, len, 0, NULL);
    json_t *workers = json_object_get(document, "workers");
    int failed = 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        failed |= put_family(&families[i], workers, out);
    json_decref(document);
    return failed;
}
