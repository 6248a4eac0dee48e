/* GET /ops: what can be asked, read from the operations' own descriptors. */
#include "wire/answer.h"
#include "wire/json_out.h"

#include <string.h>

#define LITERAL JSON_OUT_LITERAL

static void write_dtypes(struct json_out *out, unsigned mask) {
    const char *comma = "";
    LITERAL(out, "[");
    for (int dtype = 0; dtype < BLASD_DTYPE_COUNT; dtype++) {
        if ((mask & BLASD_DTYPE_BIT(dtype)) == 0) continue;
        json_out_raw(out, comma, strlen(comma));
        json_out_string(out, blasd_dtype_name((enum blasd_dtype)dtype));
        comma = ",";
    }
    LITERAL(out, "]");
}

/* The range of an input's elements, in the form of a parameter's; none where there is no bound. */
static void write_values(struct json_out *out, unsigned values) {
    bool positive = (values & BLASD_VALUES_POSITIVE) != 0;
    if (positive || (values & BLASD_VALUES_NOT_NEGATIVE) != 0) {
        LITERAL(out, ",\"range\":{\"least\":0.0,\"most\":null,\"exclusive_least\":");
        json_out_bool(out, positive);
        LITERAL(out, "}");
    }
    if ((values & BLASD_VALUES_NOT_ALL_ZERO) != 0) LITERAL(out, ",\"not_all_zero\":true");
}

static void write_port(struct json_out *out, const struct blasd_port *port, bool input) {
    LITERAL(out, "{\"name\":");
    json_out_string(out, port->name);
    LITERAL(out, ",\"shape\":");
    json_out_string(out, port->shape);
    LITERAL(out, ",\"doc\":");
    json_out_string(out, port->doc);
    LITERAL(out, ",\"dtypes\":");
    write_dtypes(out, port->dtypes);
    LITERAL(out, ",\"min_rank\":");
    json_out_int(out, port->min_rank);
    LITERAL(out, ",\"max_rank\":");
    json_out_int(out, port->max_rank);
    LITERAL(out, ",\"optional\":");
    json_out_bool(out, port->optional);
    if (input) {
        LITERAL(out, ",\"finite\":");
        json_out_bool(out, port->finite);
        write_values(out, port->values);
    }
    LITERAL(out, "}");
}

static void write_ports(struct json_out *out, const struct blasd_port *ports, bool input) {
    LITERAL(out, "[");
    for (int i = 0; ports[i].name != NULL; i++) {
        if (i > 0) LITERAL(out, ",");
        write_port(out, &ports[i], input);
    }
    LITERAL(out, "]");
}

static void write_preset(struct json_out *out, const struct blasd_param *param) {
    switch (param->kind) {
    case BLASD_PARAM_BOOL: json_out_bool(out, param->preset.b); break;
    case BLASD_PARAM_INT: json_out_int(out, param->preset.i); break;
    case BLASD_PARAM_FLOAT: json_out_double(out, param->preset.f); break;
    case BLASD_PARAM_CHOICE: json_out_string(out, param->choices[param->preset.choice]); break;
    }
}

/* One end of a range; an infinite one is open: null. */
static void write_bound(struct json_out *out, double bound) {
    if (bound >= -0x1.fffffffffffffp1023 && bound <= 0x1.fffffffffffffp1023)
        json_out_double(out, bound);
    else
        LITERAL(out, "null");
}

static void write_range(struct json_out *out, const struct blasd_param *param) {
    LITERAL(out, ",\"range\":{\"least\":");
    write_bound(out, param->least);
    LITERAL(out, ",\"most\":");
    write_bound(out, param->most);
    LITERAL(out, ",\"exclusive_least\":");
    json_out_bool(out, param->exclusive_least);
    LITERAL(out, "}");
}

static void write_choices(struct json_out *out, const char *const *choices) {
    LITERAL(out, ",\"choices\":[");
    for (int i = 0; choices[i] != NULL; i++) {
        if (i > 0) LITERAL(out, ",");
        json_out_string(out, choices[i]);
    }
    LITERAL(out, "]");
}

static void write_param(struct json_out *out, const struct blasd_param *param) {
    static const char *const kinds[] = {"bool", "int", "float", "choice"};
    LITERAL(out, "{\"name\":");
    json_out_string(out, param->name);
    LITERAL(out, ",\"type\":");
    json_out_string(out, kinds[param->kind]);
    LITERAL(out, ",\"doc\":");
    json_out_string(out, param->doc);
    LITERAL(out, ",\"default\":");
    write_preset(out, param);
    if (param->has_range) write_range(out, param);
    if (param->kind == BLASD_PARAM_CHOICE) write_choices(out, param->choices);
    LITERAL(out, "}");
}

static void write_op(struct json_out *out, const struct blasd_op *op) {
    LITERAL(out, "{\"name\":");
    json_out_string(out, op->name);
    LITERAL(out, ",\"summary\":");
    json_out_string(out, op->summary);
    LITERAL(out, ",\"doc\":");
    json_out_string(out, op->doc);
    LITERAL(out, ",\"inputs\":");
    write_ports(out, op->inputs, true);
    LITERAL(out, ",\"outputs\":");
    write_ports(out, op->outputs, false);
    LITERAL(out, ",\"params\":[");
    for (int i = 0; op->params[i].name != NULL; i++) {
        if (i > 0) LITERAL(out, ",");
        write_param(out, &op->params[i]);
    }
    LITERAL(out, "]}");
}

int blasd_ops_document(const struct blasd_op *only, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    if (only != NULL) {
        write_op(&out, only);
    } else {
        LITERAL(&out, "{\"ops\":[");
        for (int i = 0; blasd_ops[i] != NULL; i++) {
            if (i > 0) LITERAL(&out, ",");
            write_op(&out, blasd_ops[i]);
        }
        LITERAL(&out, "]}");
    }
    if (!out.failed) return 0;
    buf->len = before;
    return -1;
}
