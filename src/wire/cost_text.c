/* Writing and reading measured costs. Both are rare: once a measurement, once a look at the
 * workers. */
#include "wire/cost_text.h"

#include "base/err.h"

#include <jansson.h>
#include <string.h>

static int write_curve(const struct blasd_cost_curve *curve, struct blasd_buf *out) {
    int failed = blasd_buf_puts(out, "[");
    for (int i = 0; i < curve->count; i++) {
        const struct blasd_cost_point *point = &curve->points[i];
        failed |= blasd_buf_printf(out, "%s[%.6g,%.4g,%.4g]", i == 0 ? "" : ",", point->flops,
                                   point->alone_s * 1e6, point->each_s * 1e6);
    }
    return failed | blasd_buf_puts(out, "]");
}

static int write_curves(const struct blasd_cost *cost, struct blasd_buf *out) {
    const char *comma = "";
    int failed = 0;
    for (int op = 0; op < BLASD_OPS_MOST && blasd_ops[op] != NULL; op++) {
        const char *inner = "";
        if (cost->curves[op][0].count + cost->curves[op][1].count == 0) continue;
        failed |= blasd_buf_printf(out, "%s\"%s\":{", comma, blasd_ops[op]->name);
        for (int p = 0; p < BLASD_COST_PRECISIONS; p++) {
            if (cost->curves[op][p].count == 0) continue;
            failed |= blasd_buf_printf(out, "%s\"%s\":", inner, blasd_cost_precision_names[p]);
            failed |= write_curve(&cost->curves[op][p], out);
            inner = ",";
        }
        failed |= blasd_buf_puts(out, "}");
        comma = ",";
    }
    return failed;
}

int blasd_cost_write(const struct blasd_cost *cost, struct blasd_buf *out) {
    size_t before = out->len;
    int failed = blasd_buf_printf(out, "{\"copy_gbytes_s\":%.4g,\"launch_us\":%.4g,\"curves\":{",
                                  cost->copy_bytes_s / 1e9, blasd_cost_launch_s(cost) * 1e6);
    failed |= write_curves(cost, out);
    failed |= blasd_buf_puts(out, "}}");
    if (failed == 0) return 0;
    out->len = before;
    return -1;
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

bool blasd_cost_read_object(const json_t *root, struct blasd_cost *ret) {
    double rate = json_number_value(json_object_get(root, "copy_gbytes_s")) * 1e9;
    const json_t *curves = json_object_get(root, "curves");
    *ret = (struct blasd_cost){.copy_bytes_s = rate};
    if (json_is_object(curves) && rate > 0 && rate < 1e15 && read_curves(curves, ret)) return true;
    *ret = (struct blasd_cost){0};
    return false;
}

int blasd_cost_read(const char *text, size_t len, struct blasd_cost *ret, struct blasd_err *err) {
    json_t *root = len <= BLASD_COST_TEXT_MOST ? json_loadb(text, len, 0, NULL) : NULL;
    bool good = blasd_cost_read_object(root, ret);
    json_decref(root);
    if (good) return 0;
    return blasd_fail(err, BLASD_E_malformed_json, "", "the text is no object of measured costs");
}
