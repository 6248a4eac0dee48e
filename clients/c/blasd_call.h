/* What the structs of blasd_operations.h are made into requests with: the parameters as JSON text,
 * the inputs as a list. Included by that header, which says how many of both an operation has. */
#ifndef BLASD_CALL_H
#define BLASD_CALL_H

#include "blasd.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a request refers to. Filled by the functions below. */
struct blasd_call {
    struct blasd_array inputs[BLASD_CALL_INPUTS];
    int input_count;
    size_t length; /* of the text; one too long for `params` is cut, and refused */
    char params[BLASD_CALL_TEXT];
};

static inline void blasd_call_begin(struct blasd_call *call) {
    memset(call, 0, sizeof *call);
}

static inline void blasd_call_input(struct blasd_call *call, const char *name,
                                    const struct blasd_array *array) {
    if (array == NULL) return;
    call->inputs[call->input_count] = *array;
    call->inputs[call->input_count++].name = name;
}

static inline void blasd_call_byte(struct blasd_call *call, char byte) {
    if (call->length + 1 < sizeof call->params) call->params[call->length] = byte;
    call->length++;
}

static inline void blasd_call_bytes(struct blasd_call *call, const char *text) {
    while (*text != '\0') blasd_call_byte(call, *text++);
}

static inline void blasd_call_name(struct blasd_call *call, const char *name) {
    blasd_call_bytes(call, call->length == 0 ? "{\"" : ",\"");
    blasd_call_bytes(call, name);
    blasd_call_bytes(call, "\":");
}

static inline void blasd_call_bool(struct blasd_call *call, const char *name, const bool *value) {
    if (value == NULL) return;
    blasd_call_name(call, name);
    blasd_call_bytes(call, *value ? "true" : "false");
}

static inline void blasd_call_int(struct blasd_call *call, const char *name, const int64_t *value) {
    char text[32];
    if (value == NULL) return;
    snprintf(text, sizeof text, "%lld", (long long)*value);
    blasd_call_name(call, name);
    blasd_call_bytes(call, text);
}

static inline void blasd_call_float(struct blasd_call *call, const char *name,
                                    const double *value) {
    char text[48];
    bool point = false;
    if (value == NULL) return;
    blasd_call_name(call, name);
    if (!(*value >= -DBL_MAX && *value <= DBL_MAX)) {
        blasd_call_bytes(call, *value > 0   ? "\"Infinity\""
                               : *value < 0 ? "\"-Infinity\""
                                            : "\"NaN\"");
        return;
    }
    snprintf(text, sizeof text, "%.17g", *value);
    for (const char *at = text; *at != '\0'; at++) {
        bool part = (*at >= '0' && *at <= '9') || *at == '-' || *at == '+' || *at == 'e';
        if (part || !point) blasd_call_byte(call, part ? *at : '.'); /* whatever the locale has */
        if (!part) point = true;
    }
}

static inline void blasd_call_choice(struct blasd_call *call, const char *name, const char *value) {
    if (value == NULL) return;
    blasd_call_name(call, name);
    blasd_call_byte(call, '"');
    for (; *value != '\0'; value++) {
        char text[8] = {*value, '\0'};
        if (*value == '"' || *value == '\\' || (unsigned char)*value < ' ')
            snprintf(text, sizeof text, "\\u%04x", (unsigned)(unsigned char)*value);
        blasd_call_bytes(call, text);
    }
    blasd_call_byte(call, '"');
}

static inline struct blasd_request blasd_call_end(struct blasd_call *call, const char *op) {
    struct blasd_request request;
    memset(&request, 0, sizeof request);
    if (call->length > 0) blasd_call_byte(call, '}');
    request.op = op;
    request.inputs = call->inputs;
    request.input_count = call->input_count;
    request.params = call->length > 0 ? call->params : NULL;
    return request;
}

#ifdef __cplusplus
}
#endif

#endif
