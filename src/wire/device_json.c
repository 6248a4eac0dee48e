/* The members that are not known are left out. */
#include "wire/device_json.h"

#include "core/graph.h"
#include "wire/cost_text.h"

#include <jansson.h>
#include <unistd.h>

static json_t *text_of(const char *text) {
    json_t *value = json_string(text);
    return value != NULL ? value : json_string("?"); /* not UTF-8 */
}

/* Where it is known. */
static int put_figure(json_t *object, const char *name, double value) {
    return value > 0 ? json_object_set_new(object, name, json_real(value)) : 0;
}

json_t *blasd_device_json(const struct blasd_device_info *info, const struct blasd_cost *cost) {
    json_t *object = json_object(), *blas;
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
    if (cost != NULL) failed |= json_object_set_new(object, "cost", blasd_cost_json(cost));
    if (failed == 0) return object;
    json_decref(object);
    return NULL;
}

char *blasd_worker_json(const struct blasd_worker_facts *facts) {
    json_t *object = blasd_device_json(facts->device, facts->cost), *ops = json_array();
    json_t *rest = json_pack(
        "{s:o, s:o, s:o, s:i, s:f, s:I, s:I, s:I, s:i, s:f, s:f, s:f, s:I}", "worker",
        text_of(facts->name), "id", text_of(facts->device->id), "host", text_of(facts->host), "pid",
        (int)getpid(), "uptime_s", facts->uptime_s, "jobs", (json_int_t)facts->jobs, "failed",
        (json_int_t)facts->failed, "batches", (json_int_t)facts->batches, "running", facts->running,
        "busy_s", facts->busy_s, "busy_share", facts->busy_share, "jobs_per_s", facts->jobs_per_s,
        "host_memory_bytes", (json_int_t)facts->host_memory);
    char *text = NULL;
    int failed = json_object_update(object, rest);
    for (int i = 0; facts->backend->kernels[i] != NULL; i++)
        failed |= json_array_append_new(ops, json_string(facts->backend->kernels[i]->op));
    failed |= json_array_append_new(ops, json_string(blasd_op_graph.name)); /* of these */
    failed |= json_object_set_new(object, "ops", ops);
    if (failed == 0) text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(rest);
    json_decref(object);
    return text;
}
