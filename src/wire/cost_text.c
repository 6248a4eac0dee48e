/* Writing and reading costs. Both are rare: once a worker renews what it says of itself, once a
 * look at the workers. */
#include "wire/cost_text.h"

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* To six digits: more were not measured. */
static json_t *figure(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    return json_real(strtod(text, NULL));
}

static json_t *points_json(const struct blasd_cost_curve *curve) {
    json_t *points = json_array();
    for (int i = 0; i < curve->count; i++) {
        const struct blasd_cost_point *point = &curve->points[i];
        json_array_append_new(points,
                              json_pack("[o,o,o]", figure(point->flops),
                                        figure(point->alone_s * 1e6), figure(point->each_s * 1e6)));
    }
    return points;
}

json_t *blasd_cost_json(const struct blasd_cost *cost) {
    json_t *curves = json_object(), *early = json_object();
    for (int op = 0; op < BLASD_OPS_MOST && blasd_ops[op] != NULL; op++) {
        json_t *of_op = json_object();
        for (int p = 0; p < BLASD_COST_PRECISIONS; p++)
            if (cost->curves[op][p].count > 0)
                json_object_set_new(of_op, blasd_cost_precision_names[p],
                                    points_json(&cost->curves[op][p]));
        if (json_object_size(of_op) > 0) json_object_set(curves, blasd_ops[op]->name, of_op);
        json_decref(of_op);
        if (cost->early[op] > 0)
            json_object_set_new(early, blasd_ops[op]->name, figure(cost->early[op]));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "launch_us",
                     figure(cost->launch_s * 1e6), "gflops_float64",
                     figure(cost->flops_s[BLASD_COST_FLOAT64] / 1e9), "gflops_float32",
                     figure(cost->flops_s[BLASD_COST_FLOAT32] / 1e9), "copy_gbytes_s",
                     figure(cost->copy_bytes_s / 1e9), "upload_gbytes_s",
                     figure(cost->upload_bytes_s / 1e9), "download_gbytes_s",
                     figure(cost->download_bytes_s / 1e9), "curves", curves, "ends_early", early);
}

char *blasd_cost_write(const struct blasd_cost *cost) {
    json_t *object = blasd_cost_json(cost);
    char *text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    return text;
}

static bool read_point(const json_t *point, struct blasd_cost_curve *curve) {
    if (json_array_size(point) != 3) return false;
    for (size_t i = 0; i < 3; i++)
        if (!json_is_number(json_array_get(point, i))) return false;
    return blasd_cost_add(curve, json_number_value(json_array_get(point, 0)),
                          json_number_value(json_array_get(point, 1)) * 1e-6,
                          json_number_value(json_array_get(point, 2)) * 1e-6);
}

static bool read_curves(const json_t *curves, struct blasd_cost *ret) {
    for (int op = 0; op < BLASD_OPS_MOST && blasd_ops[op] != NULL; op++) {
        const json_t *of_op = json_object_get(curves, blasd_ops[op]->name);
        for (int p = 0; p < BLASD_COST_PRECISIONS; p++) {
            const json_t *points = json_object_get(of_op, blasd_cost_precision_names[p]);
            for (size_t i = 0; i < json_array_size(points); i++)
                if (!read_point(json_array_get(points, i), &ret->curves[op][p])) return false;
        }
    }
    return true;
}

static bool read_early(const json_t *early, struct blasd_cost *ret) {
    for (int op = 0; op < BLASD_OPS_MOST && blasd_ops[op] != NULL; op++) {
        const json_t *part = json_object_get(early, blasd_ops[op]->name);
        double value = json_number_value(part);
        if (part == NULL) continue;
        if (!(value > 0 && value <= 1)) return false;
        ret->early[op] = value;
    }
    return true;
}

/* A number that is not negative and below `most`, times `unit`. False where it is none; *ret stays
 * where it is not there. */
static bool read_figure(const json_t *root, const char *name, double unit, double most,
                        double *ret) {
    const json_t *member = json_object_get(root, name);
    double value = json_number_value(member) * unit;
    if (member == NULL) return true;
    if (!json_is_number(member) || !(value >= 0 && value < most)) return false;
    *ret = value;
    return true;
}

static bool read_rates(const json_t *root, struct blasd_cost *ret) {
    return read_figure(root, "launch_us", 1e-6, 1, &ret->launch_s) &&
           read_figure(root, "gflops_float64", 1e9, 1e18, &ret->flops_s[BLASD_COST_FLOAT64]) &&
           read_figure(root, "gflops_float32", 1e9, 1e18, &ret->flops_s[BLASD_COST_FLOAT32]) &&
           read_figure(root, "copy_gbytes_s", 1e9, 1e15, &ret->copy_bytes_s) &&
           read_figure(root, "upload_gbytes_s", 1e9, 1e15, &ret->upload_bytes_s) &&
           read_figure(root, "download_gbytes_s", 1e9, 1e15, &ret->download_bytes_s);
}

bool blasd_cost_read_object(const json_t *root, struct blasd_cost *ret) {
    const json_t *curves = json_object_get(root, "curves");
    blasd_cost_usual(BLASD_DEVICE_CPU, 1, ret);
    ret->copy_bytes_s = 0;
    if (json_is_object(curves) && read_rates(root, ret) && blasd_cost_known(ret) &&
        read_curves(curves, ret) && read_early(json_object_get(root, "ends_early"), ret))
        return true;
    *ret = (struct blasd_cost){0};
    return false;
}

int blasd_cost_read(const char *text, size_t len, struct blasd_cost *ret, struct blasd_err *err) {
    json_t *root = len <= BLASD_COST_TEXT_MOST ? json_loadb(text, len, 0, NULL) : NULL;
    bool good = blasd_cost_read_object(root, ret);
    json_decref(root);
    if (good) return 0;
    return blasd_fail(err, BLASD_E_malformed_json, "", "the text is not an object of costs");
}
