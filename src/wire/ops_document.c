/* GET /ops: what can be asked, read from the operations' own descriptors. */
#include "wire/answer.h"
#include "wire/document.h"

#include <float.h>
#include <math.h>

#include <string.h>

static void write_dtypes(struct json_out *out, unsigned mask) {
    const char *format = "%s";
    for (int dtype = 0; dtype < BLASD_DTYPE_COUNT; dtype++) {
        if ((mask & BLASD_DTYPE_BIT(dtype)) == 0) continue;
        json_out_put(out, format, blasd_dtype_name((enum blasd_dtype)dtype));
        format = ",%s";
    }
}

static void write_port(struct json_out *out, const struct blasd_op *op,
                       const struct blasd_port *port, bool input) {
    bool positive = (port->values & BLASD_VALUES_POSITIVE) != 0;
    json_out_put(out, "{\"name\":%s,\"shape\":%s,\"doc\":%s,\"dtypes\":[", port->name, port->shape,
                 port->doc);
    write_dtypes(out, port->dtypes);
    json_out_put(out, "],\"min_rank\":%i,\"max_rank\":%i,\"optional\":%b", (int64_t)port->min_rank,
                 (int64_t)port->max_rank, port->optional);
    if (input) {
        json_out_put(out, ",\"finite\":%b", port->finite);
        if (op->replaced != NULL && strcmp(op->replaced, port->name) == 0)
            json_out_put(out, ",\"required_unless\":%s", op->substitute);
        /* the range of its elements, in the form of a parameter's */
        if (positive || (port->values & BLASD_VALUES_NOT_NEGATIVE) != 0)
            json_out_put(out, ",\"range\":{\"least\":0.0,\"most\":null,\"exclusive_least\":%b}",
                         positive);
        if ((port->values & BLASD_VALUES_NOT_ALL_ZERO) != 0)
            json_out_put(out, ",\"not_all_zero\":true");
    }
    json_out_put(out, "}");
}

static void write_ports(struct json_out *out, const struct blasd_op *op,
                        const struct blasd_port *ports, bool input) {
    for (int i = 0; ports[i].name != NULL; i++) {
        if (i > 0) json_out_put(out, ",");
        write_port(out, op, &ports[i], input);
    }
}

static void write_preset(struct json_out *out, const struct blasd_param *param) {
    switch (param->kind) {
    case BLASD_PARAM_BOOL: json_out_put(out, "%b", param->preset.b); break;
    case BLASD_PARAM_INT: json_out_put(out, "%i", param->preset.i); break;
    case BLASD_PARAM_FLOAT: json_out_put(out, "%f", param->preset.f); break;
    case BLASD_PARAM_CHOICE: json_out_put(out, "%s", param->choices[param->preset.choice]); break;
    }
}

/* One end of a range; an infinite one is open. */
static void write_bound(struct json_out *out, const char *name, double bound) {
    if (fabs(bound) <= DBL_MAX)
        json_out_put(out, "\"%r\":%f,", name, bound);
    else
        json_out_put(out, "\"%r\":null,", name);
}

static void write_param(struct json_out *out, const struct blasd_param *param) {
    static const char *const kinds[] = {"bool", "int", "float", "choice"};
    json_out_put(out, "{\"name\":%s,\"type\":%s,\"doc\":%s,\"default\":", param->name,
                 kinds[param->kind], param->doc);
    write_preset(out, param);
    if (param->has_range) {
        json_out_put(out, ",\"range\":{");
        write_bound(out, "least", param->least);
        write_bound(out, "most", param->most);
        json_out_put(out, "\"exclusive_least\":%b}", param->exclusive_least);
    }
    if (param->kind == BLASD_PARAM_CHOICE) {
        json_out_put(out, ",\"choices\":[");
        for (int i = 0; param->choices[i] != NULL; i++)
            json_out_put(out, i == 0 ? "%s" : ",%s", param->choices[i]);
        json_out_put(out, "]");
    }
    json_out_put(out, "}");
}

static void write_op(struct json_out *out, const struct blasd_op *op) {
    json_out_put(out, "{\"name\":%s,\"summary\":%s,\"doc\":%s,\"inputs\":[", op->name, op->summary,
                 op->doc);
    write_ports(out, op, op->inputs, true);
    json_out_put(out, "],\"outputs\":[");
    write_ports(out, op, op->outputs, false);
    json_out_put(out, "],\"params\":[");
    for (int i = 0; op->params[i].name != NULL; i++) {
        if (i > 0) json_out_put(out, ",");
        write_param(out, &op->params[i]);
    }
    json_out_put(out, "]}");
}

int blasd_ops_document(const struct blasd_op *only, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    if (only != NULL) {
        write_op(&out, only);
    } else {
        json_out_put(&out, "{\"ops\":[");
        bool first = true;
        for (int i = 0; blasd_ops[i] != NULL; i++) {
            if (blasd_ops[i]->composed) continue;
            if (!first) json_out_put(&out, ",");
            write_op(&out, blasd_ops[i]);
            first = false;
        }
        json_out_put(&out, "]}");
    }
    return document_end(&out, before);
}
