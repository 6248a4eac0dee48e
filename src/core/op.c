/* Finding operations, ports and parameters by name. */
#include "core/op.h"

#include <stdio.h>
#include <string.h>

/* Most names differ in the first letter, and every job compares dozens. */
static bool same(const char *a, const char *b) {
    return *a == *b && strcmp(a, b) == 0;
}

const struct blasd_op *blasd_op_find(const char *name) {
    for (int i = 0; blasd_ops[i] != NULL; i++)
        if (same(blasd_ops[i]->name, name)) return blasd_ops[i];
    return NULL;
}

void blasd_op_names(bool composed, char *text, size_t size) {
    size_t len = 0;
    text[0] = '\0';
    for (int i = 0; blasd_ops[i] != NULL && len < size; i++)
        if (composed || !blasd_ops[i]->composed)
            len += (size_t)snprintf(text + len, size - len, "%s%s", len == 0 ? "" : ", ",
                                    blasd_ops[i]->name);
}

int blasd_op_position(const struct blasd_op *op) {
    for (int i = 0; blasd_ops[i] != NULL; i++)
        if (blasd_ops[i] == op) return i;
    return -1;
}

static int port_find(const struct blasd_port *ports, const char *name) {
    for (int i = 0; ports[i].name != NULL; i++)
        if (same(ports[i].name, name)) return i;
    return -1;
}

int blasd_op_input(const struct blasd_op *op, const char *name) {
    return port_find(op->inputs, name);
}

int blasd_op_output(const struct blasd_op *op, const char *name) {
    return port_find(op->outputs, name);
}

int blasd_op_param(const struct blasd_op *op, const char *name) {
    for (int i = 0; op->params[i].name != NULL; i++)
        if (same(op->params[i].name, name)) return i;
    return -1;
}

unsigned blasd_ops_values(const char *name) {
    unsigned values = 0;
    for (int i = 0; blasd_ops[i] != NULL; i++)
        for (const struct blasd_port *port = blasd_ops[i]->inputs; port->name != NULL; port++)
            if (port->values != 0 && same(port->name, name)) values |= port->values;
    return values;
}

int blasd_op_input_count(const struct blasd_op *op) {
    int n = 0;
    while (op->inputs[n].name != NULL) n++;
    return n;
}

int blasd_op_output_count(const struct blasd_op *op) {
    int n = 0;
    while (op->outputs[n].name != NULL) n++;
    return n;
}

int blasd_op_param_count(const struct blasd_op *op) {
    int n = 0;
    while (op->params[n].name != NULL) n++;
    return n;
}
