/* What the protocol tells of the server and of its models: metadata, configuration, statistics.
 * All of it is read from the operations' descriptors. */
#include "oip/oip.h"

#include "wire/document.h"

#include <string.h>

/* by enum blasd_dtype; the protocol has no complex numbers */
static const char *const datatypes[BLASD_DTYPE_COUNT] = {
    [BLASD_float64] = "FP64",  [BLASD_float32] = "FP32",  [BLASD_float16] = "FP16",
    [BLASD_bfloat16] = "BF16", [BLASD_int64] = "INT64",   [BLASD_int32] = "INT32",
    [BLASD_int16] = "INT16",   [BLASD_int8] = "INT8",     [BLASD_uint64] = "UINT64",
    [BLASD_uint32] = "UINT32", [BLASD_uint16] = "UINT16", [BLASD_uint8] = "UINT8",
    [BLASD_bool] = "BOOL"};

const char *blasd_oip_datatype(enum blasd_dtype dtype) {
    return datatypes[dtype];
}

bool blasd_oip_datatype_find(const char *name, enum blasd_dtype *ret) {
    for (int i = 0; i < BLASD_DTYPE_COUNT; i++)
        if (datatypes[i] != NULL && strcmp(datatypes[i], name) == 0) {
            *ret = (enum blasd_dtype)i;
            return true;
        }
    return false;
}

/* The dtype that a port is said to have, where it has several: the first, float64 where it takes
 * that. */
static enum blasd_dtype dtype_of(const struct blasd_port *port) {
    for (int i = 0; i < BLASD_DTYPE_COUNT; i++)
        if ((port->dtypes & BLASD_DTYPE_BIT(i)) != 0) return (enum blasd_dtype)i;
    return BLASD_float64;
}

/* Dimensions of a port without leading ones: what "(..., m, k)" names. */
static int rank_of(const struct blasd_port *port) {
    const char *p = strchr(port->shape, '(');
    int rank = 0, depth = 0;
    bool named = false;
    for (; p != NULL && *p != '\0'; p++) {
        if (*p == '(' || *p == '[') depth++;
        if (*p == ')' || *p == ']') depth--;
        if ((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9')) named = named || depth == 1;
        if (depth > 1 || (depth == 1 && *p != ',')) continue;
        rank += named;
        named = false;
        if (depth == 0) break;
    }
    if (rank < port->min_rank) return port->min_rank;
    return rank > port->max_rank ? port->max_rank : rank;
}

/* How a document says what a port takes; %r: what kind of number. */
struct port_words {
    const char *kind, *dims;
};
static const struct port_words model_words = {"\"datatype\":\"%r\"", "shape"};
static const struct port_words config_words = {"\"data_type\":\"TYPE_%r\"", "dims"};

/* Those that are always there, or those that are not: a client that sends every input it is told
 * of, and asks for every output, must be right. */
static void write_ports(struct json_out *out, const struct blasd_op *op, const char *name,
                        const struct blasd_port *ports, bool optional,
                        const struct port_words *words) {
    const char *between = "";
    json_out_put(out, ",%s:[", name);
    for (; ports->name != NULL; ports++) {
        bool required =
            !ports->optional || (op->replaced != NULL && strcmp(op->replaced, ports->name) == 0);
        if (required == optional) continue;
        json_out_put(out, "%r{\"name\":%s,", between, ports->name);
        json_out_put(out, words->kind, datatypes[dtype_of(ports)]);
        json_out_put(out, ",%s:[", words->dims);
        for (int i = rank_of(ports); i > 0; i--) json_out_put(out, i > 1 ? "-1," : "-1");
        json_out_put(out, "]}");
        between = ",";
    }
    json_out_put(out, "]");
}

int blasd_oip_model(const struct blasd_op *op, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    json_out_put(&out,
                 "{\"name\":%s,\"versions\":[\"" BLASD_OIP_VERSION "\"],\"platform\":\"blasd\"",
                 op->name);
    write_ports(&out, op, "inputs", op->inputs, false, &model_words);
    write_ports(&out, op, "outputs", op->outputs, false, &model_words);
    write_ports(&out, op, "optional_inputs", op->inputs, true, &model_words);
    write_ports(&out, op, "optional_outputs", op->outputs, true, &model_words);
    json_out_put(&out, "}");
    return document_end(&out, before);
}

int blasd_oip_model_ready(const struct blasd_op *op, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    json_out_put(&out, "{\"status\":\"ready\",\"name\":%s,\"ready\":true}", op->name);
    return document_end(&out, before);
}

int blasd_oip_config(const struct blasd_op *op, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    /* a stack of problems is a tensor with more dimensions, so no dimension is the batch's: jobs
     * are batched whatever their shapes */
    json_out_put(&out,
                 "{\"name\":%s,\"platform\":\"blasd\",\"backend\":\"blasd\",\"version_policy\":"
                 "{\"latest\":{\"num_versions\":1}},\"max_batch_size\":0",
                 op->name);
    write_ports(&out, op, "input", op->inputs, false, &config_words);
    write_ports(&out, op, "output", op->outputs, false, &config_words);
    json_out_put(&out, "}");
    return document_end(&out, before);
}

int blasd_oip_server(const char *version, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    json_out_put(&out,
                 "{\"name\":\"blasd\",\"version\":%s,\"extensions\":[\"binary_tensor_data\","
                 "\"model_configuration\",\"model_repository\",\"parameters\",\"statistics\"]}",
                 version);
    return document_end(&out, before);
}

int blasd_oip_repository(bool ready, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    bool first = true;
    json_out_put(&out, "[");
    for (int i = 0; blasd_ops[i] != NULL; i++) {
        if (blasd_ops[i]->composed) continue;
        json_out_put(&out,
                     "%r{\"name\":%s,\"version\":\"" BLASD_OIP_VERSION "\",\"state\":%s,"
                     "\"reason\":%s}",
                     first ? "" : ",", blasd_ops[i]->name, ready ? "READY" : "UNAVAILABLE",
                     ready ? "" : "the service takes no jobs at present");
        first = false;
    }
    json_out_put(&out, "]");
    return document_end(&out, before);
}

static void write_duration(struct json_out *out, const char *name, uint64_t count, uint64_t ns) {
    json_out_put(out, "%s:{\"count\":%u,\"ns\":%u}", name, count, ns);
}

static void write_stats(struct json_out *out, const struct blasd_op *op,
                        const struct blasd_oip_stats *stats) {
    const struct {
        const char *name;
        uint64_t count, ns;
    } rows[] = {{"success", stats->inferences, stats->success_ns},
                {"fail", stats->failures, stats->failure_ns},
                {"queue", stats->inferences, stats->queue_ns},
                {"compute_input", stats->inferences, stats->input_ns},
                {"compute_infer", stats->inferences, stats->compute_ns},
                {"compute_output", stats->inferences, stats->output_ns},
                {"cache_hit", 0, 0},
                {"cache_miss", 0, 0}};
    json_out_put(out,
                 "{\"name\":%s,\"version\":\"" BLASD_OIP_VERSION "\",\"last_inference\":%u,"
                 "\"inference_count\":%u,\"execution_count\":%u,\"inference_stats\":{",
                 op->name, stats->last_ms, stats->inferences, (uint64_t)(stats->executions + 0.5));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (i > 0) json_out_put(out, ",");
        write_duration(out, rows[i].name, rows[i].count, rows[i].ns);
    }
    json_out_put(out, "},\"batch_stats\":[]}");
}

int blasd_oip_statistics(const struct blasd_op *only, const struct blasd_oip_stats *stats,
                         struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    bool first = true;
    json_out_put(&out, "{\"model_stats\":[");
    for (int i = 0; blasd_ops[i] != NULL; i++) {
        if (only != NULL ? only != blasd_ops[i] : blasd_ops[i]->composed) continue;
        if (!first) json_out_put(&out, ",");
        write_stats(&out, blasd_ops[i], &stats[i]);
        first = false;
    }
    json_out_put(&out, "]}");
    return document_end(&out, before);
}
