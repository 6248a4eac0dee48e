/* Counting what ended jobs took. */
#include "worker/phases.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const names[BLASD_PHASES] = {"receive", "queue",    "batch_wait", "upload",
                                                "compute", "download", "total"};

void blasd_phases_init(struct blasd_phases *phases) {
    *phases = (struct blasd_phases){.jobs = 0};
    pthread_mutex_init(&phases->lock, NULL);
}

/* Finds the tenant's row, the one of all others where the named ones are taken. With the lock. */
static struct blasd_phases_tenant *tenant_of(struct blasd_phases *phases, const char *name) {
    struct blasd_phases_tenant *row = phases->tenants;
    while (row < phases->tenants + phases->tenant_count && strcmp(row->name, name) != 0) row++;
    if (row < phases->tenants + phases->tenant_count) return row;
    if (phases->tenant_count > BLASD_PHASES_TENANTS) return row - 1;
    snprintf(row->name, sizeof row->name, "%s",
             phases->tenant_count++ < BLASD_PHASES_TENANTS ? name : "other");
    return row;
}

void blasd_phases_tenant(struct blasd_phases *phases, const char *tenant,
                         const struct blasd_usage *used) {
    struct blasd_phases_tenant *row;
    pthread_mutex_lock(&phases->lock);
    row = tenant_of(phases, tenant[0] == '\0' ? "anonymous" : tenant);
    row->jobs++;
    row->used.device_s += used->device_s;
    row->used.energy_joules += used->energy_joules;
    pthread_mutex_unlock(&phases->lock);
}

static int put_tenants(struct blasd_phases *phases, struct blasd_buf *out) {
    int failed = blasd_buf_puts(out, ",\"tenants\":{");
    pthread_mutex_lock(&phases->lock);
    for (int i = 0; i < phases->tenant_count; i++) {
        const struct blasd_phases_tenant *row = &phases->tenants[i];
        failed |=
            blasd_buf_printf(out, "%s\"%s\":[%" PRIu64 ",%.0f,%.0f]", i == 0 ? "" : ",", row->name,
                             row->jobs, row->used.device_s * 1e6, row->used.energy_joules * 1e3);
    }
    pthread_mutex_unlock(&phases->lock);
    return failed | blasd_buf_puts(out, "}");
}

void blasd_phases_job(struct blasd_phases *phases, const struct blasd_record *record) {
    const struct blasd_op *op = blasd_op_find(record->op); /* a graph is none */
    const struct blasd_timing *t = &record->timing;
    const int64_t us[BLASD_PHASES] = {t->receive_us, t->queue_us,    t->batch_wait_us, t->upload_us,
                                      t->compute_us, t->download_us, t->total_us};
    if (op == NULL) return;
    for (int i = 0; i < BLASD_PHASES; i++)
        blasd_histogram_add(&phases->ops[blasd_op_position(op)].times[i], blasd_bounds_us, us[i]);
    atomic_fetch_add_explicit(&phases->jobs, 1, memory_order_relaxed);
}

void blasd_phases_batch(struct blasd_phases *phases, const struct blasd_op *op, int jobs) {
    int position = op == NULL ? -1 : blasd_op_position(op);
    if (position >= 0) blasd_histogram_add(&phases->ops[position].batch, blasd_bounds_jobs, jobs);
}

uint64_t blasd_phases_jobs(const struct blasd_phases *phases) {
    return atomic_load_explicit(&phases->jobs, memory_order_relaxed);
}

static int put_histogram(struct blasd_buf *out, const char *name,
                         const struct blasd_histogram *histogram) {
    struct blasd_histogram_sum sum = {0};
    int failed = blasd_buf_printf(out, "\"%s\":[", name);
    blasd_histogram_sum(histogram, &sum);
    for (int i = 0; i <= BLASD_BUCKETS; i++)
        failed |= blasd_buf_printf(out, "%" PRIu64 ",", sum.buckets[i]);
    return failed | blasd_buf_printf(out, "%" PRIu64 "]", sum.sum);
}

static bool is_empty(const struct blasd_histogram *histogram) {
    struct blasd_histogram_sum sum = {0};
    uint64_t count = 0;
    blasd_histogram_sum(histogram, &sum);
    for (int i = 0; i <= BLASD_BUCKETS; i++) count += sum.buckets[i];
    return count == 0;
}

static int put_spans(struct blasd_buf *out, const struct blasd_otlp *otlp) {
    struct blasd_otlp_counts counts;
    if (otlp == NULL) return 0;
    counts = blasd_otlp_counts(otlp);
    return blasd_buf_printf(
        out, ",\"spans\":{\"sent\":%" PRIu64 ",\"dropped\":%" PRIu64 ",\"refused\":%" PRIu64 "}",
        counts.sent, counts.dropped, counts.refused);
}

int blasd_phases_text(struct blasd_phases *phases, const struct blasd_otlp *otlp,
                      struct blasd_buf *out) {
    const char *between = "";
    int failed = blasd_buf_puts(out, "{\"ops\":{");
    for (int op = 0; blasd_ops[op] != NULL; op++) {
        if (is_empty(&phases->ops[op].times[0])) continue;
        failed |= blasd_buf_printf(out, "%s\"%s\":{", between, blasd_ops[op]->name);
        for (int i = 0; i < BLASD_PHASES; i++) {
            failed |= put_histogram(out, names[i], &phases->ops[op].times[i]);
            failed |= blasd_buf_puts(out, ",");
        }
        failed |= put_histogram(out, "batch", &phases->ops[op].batch);
        failed |= blasd_buf_puts(out, "}");
        between = ",";
    }
    failed |= blasd_buf_puts(out, "}") | put_tenants(phases, out) | put_spans(out, otlp);
    failed |= blasd_buf_puts(out, "}");
    return failed | blasd_buf_add(out, "", 1);
}
