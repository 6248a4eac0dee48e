/* Finding operations, ports and parameters by name. */
#include "core/op.h"

#include <stdatomic.h>
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

static uint32_t add_text(uint32_t form, const char *text) {
    for (; *text != '\0'; text++) form = (form ^ (unsigned char)*text) * 16777619u;
    return (form ^ 0xff) * 16777619u;
}

static uint32_t add_ports(uint32_t form, const struct blasd_port *ports) {
    for (; ports->name != NULL; ports++) form = add_text(form, ports->name);
    return add_text(form, "");
}

uint32_t blasd_op_form(const struct blasd_op *op) {
    static _Atomic uint32_t known[BLASD_OPS_MOST]; /* 0: not yet */
    int at = blasd_op_position(op);
    uint32_t form = at < 0 ? 0 : atomic_load_explicit(&known[at], memory_order_relaxed);
    if (form != 0) return form;
    form = add_ports(add_ports(2166136261u, op->inputs), op->outputs);
    for (const struct blasd_param *param = op->params; param->name != NULL; param++) {
        form = (add_text(form, param->name) ^ (uint32_t)param->kind) * 16777619u;
        for (int i = 0; param->kind == BLASD_PARAM_CHOICE && param->choices[i] != NULL; i++)
            form = add_text(form, param->choices[i]);
    }
    if (at >= 0) atomic_store_explicit(&known[at], form, memory_order_relaxed);
    return form;
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
