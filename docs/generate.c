/* Writes the files that come from tables in the code, so that no list stands twice:
 *   generate errors.json | errors.md | limits.md | metrics.md | operations.md | operations.json |
 * warnings.md (to standard output) `make generated` runs it; `make lint` fails where a committed
 * file is not what it writes.
 */
#include "base/err.h"
#include "base/limits.h"
#include "base/metric_table.h"
#include "base/warning.h"
#include "core/op.h"
#include "wire/answer.h"

#include <stdio.h>
#include <string.h>

static void json_string(const char *text) {
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

static void errors_json(void) {
    puts("{");
    for (int code = 1; code < BLASD_E_COUNT; code++) {
        const struct blasd_err_info *info = blasd_err_info((enum blasd_code)code);
        printf("  \"%s\": {\"status\": %d, \"retry\": %s, \"title\": ", info->name,
               info->http_status, info->retry ? "true" : "false");
        json_string(info->title);
        printf(", \"advice\": ");
        json_string(info->advice);
        puts(code + 1 < BLASD_E_COUNT ? "}," : "}");
    }
    puts("}");
}

static void errors_md(void) {
    puts("# Errors\n"
         "\n"
         "Every error is a problem document (RFC 9457). `code` is stable. `retry` says whether the "
         "same\n"
         "request can succeed later. `field` names the member, `detail` has the value and the "
         "allowed ones.\n"
         "`least` is the smallest value with which the job can run, if the job reports it "
         "(`max_pairs` of\n"
         "`distance`). Requests that are not valid HTTP get a short page from libmicrohttpd.\n"
         "\n"
         "Generated from the table in `src/base/err.h`; as JSON in `api/errors.json`.\n"
         "\n"
         "| code | status | retry | meaning | advice |\n"
         "|---|---|---|---|---|");
    for (int code = 1; code < BLASD_E_COUNT; code++) {
        const struct blasd_err_info *info = blasd_err_info((enum blasd_code)code);
        printf("| `%s` | %d | %s | %s | %s |\n", info->name, info->http_status,
               info->retry ? "yes" : "no", info->title, info->advice);
    }
}

static void amount(uint64_t value, const char *unit) {
    static const char letters[] = "\0KMGT";
    int power = 0;
    for (; strcmp(unit, "bytes") == 0 && value != 0 && value % 1024 == 0; power++) value /= 1024;
    printf("%llu", (unsigned long long)value);
    if (power > 0) putchar(letters[power]);
}

static void limits_md(void) {
    puts("# Limits\n"
         "\n"
         "Every resource has a limit. Set it with `--limit NAME=VALUE`, or with the environment "
         "variable\n"
         "`BLASD_NAME` in capitals. Values may end in K, M, G or T (powers of 1024).\n"
         "\n"
         "Generated from the table in `src/base/limits.h`.\n"
         "\n"
         "| name | default | range | unit | meaning |\n"
         "|---|---|---|---|---|");
    for (int i = 0; blasd_limits_info(i) != NULL; i++) {
        const struct blasd_limit_info *info = blasd_limits_info(i);
        printf("| `%s` | ", info->name);
        amount(info->preset, info->unit);
        printf(" | ");
        amount(info->least, info->unit);
        printf(" to ");
        amount(info->most, info->unit);
        printf(" | %s | %s |\n", info->unit, info->meaning);
    }
}

static void metrics_of(const char *scope, const char *about) {
    printf("\n## %s\n\n| name | type | labels | meaning |\n|---|---|---|---|\n", about);
    for (int i = 0; i < BLASD_METRIC_COUNT; i++) {
        const struct blasd_metric_info *info = blasd_metric_info((enum blasd_metric)i);
        if (strcmp(info->scope, scope) != 0) continue;
        printf("| `%s` | %s | ", info->name, info->type);
        for (const char *label = info->labels; *label != '\0';) {
            size_t len = strcspn(label, " ");
            printf("`%.*s`%s", (int)len, label, label[len] == ' ' ? ", " : "");
            label += len + (label[len] == ' ');
        }
        printf(" | %s |\n", info->meaning);
    }
}

static void metrics_md(void) {
    puts("# Metrics\n"
         "\n"
         "Metrics of `GET /metrics`, in Prometheus' text format. A row appears with its first "
         "value. Scraping\n"
         "and queries: [observability](observability.md).\n"
         "\n"
         "Generated from the table in `src/base/metric_table.h`.");
    metrics_of("process", "Per front end: sum");
    metrics_of("deployment", "Per deployment, equal at each front end: take one");
}

static void dtypes(unsigned mask) {
    const char *between = "";
    for (int dtype = 0; dtype < BLASD_DTYPE_COUNT; dtype++) {
        if ((mask & BLASD_DTYPE_BIT(dtype)) == 0) continue;
        printf("%s%s", between, blasd_dtype_name((enum blasd_dtype)dtype));
        between = " ";
    }
}

/* What follows "Must be finite". */
static const char *range(const struct blasd_port *port) {
    if ((port->values & BLASD_VALUES_POSITIVE) != 0) return " and greater than 0";
    if ((port->values & BLASD_VALUES_NOT_NEGATIVE) == 0) return "";
    return (port->values & BLASD_VALUES_NOT_ALL_ZERO) != 0 ? ", at least 0, and not all 0"
                                                           : " and at least 0";
}

static void ports_md(const char *title, const struct blasd_port *port, const char *optional) {
    printf("| %s | shape | dtypes | |\n|---|---|---|---|\n", title);
    for (; port->name != NULL; port++) {
        printf("| `%s`%s | %s | ", port->name, port->optional ? optional : "", port->shape);
        dtypes(port->dtypes);
        printf(" | %s%s%s%s |\n", port->doc, port->finite ? " Must be finite" : "", range(port),
               port->finite ? "." : "");
    }
    puts("");
}

static void param_md(const struct blasd_param *param) {
    printf("| `%s` | ", param->name);
    switch (param->kind) {
    case BLASD_PARAM_BOOL: printf("bool | %s", param->preset.b ? "true" : "false"); break;
    case BLASD_PARAM_INT: printf("int | %lld", (long long)param->preset.i); break;
    case BLASD_PARAM_FLOAT: printf("float | %g", param->preset.f); break;
    case BLASD_PARAM_CHOICE:
        for (int i = 0; param->choices[i] != NULL; i++)
            printf("%s%s", i == 0 ? "" : ", ", param->choices[i]);
        printf(" | %s", param->choices[param->preset.choice]);
        break;
    }
    printf(" | ");
    if (param->has_range)
        printf("%c%.12g, %.12g]", param->exclusive_least ? '(' : '[', param->least, param->most);
    printf(" | %s |\n", param->doc);
}

static void operations_md(void) {
    puts("# Operations\n"
         "\n"
         "`GET /ops` returns the same as JSON. The mathematics is in `kernels/NAME/README.md`.\n"
         "\n"
         "Generated from the descriptors in `kernels/*/op_*.c`.\n"
         "");
    for (int i = 0; blasd_ops[i] != NULL; i++) {
        const struct blasd_op *op = blasd_ops[i];
        if (op->composed) continue;
        printf("## %s\n\n%s\n\n%s\n\n", op->name, op->summary, op->doc);
        ports_md("input", op->inputs, " (optional)");
        if (op->params[0].name != NULL) {
            puts("| parameter | type | default | range | |\n|---|---|---|---|---|");
            for (const struct blasd_param *param = op->params; param->name != NULL; param++)
                param_md(param);
            puts("");
        }
        ports_md("output", op->outputs, " (not always)");
    }
}

/* What GET /ops answers. */
static void warnings_md(void) {
    const struct blasd_warning_info *info;
    puts("# Warnings\n"
         "\n"
         "A job that succeeds reports doubts in `execution.warnings` (text with numbers) and\n"
         "`execution.warning_codes` (codes in the same order). A document has at most four; the "
         "last one is\n"
         "then `others_left_out`. Codes and numbers are stable.\n"
         "\n"
         "Generated from the table in `src/base/warning.h`.\n"
         "\n"
         "| code | number | meaning | advice |\n"
         "|---|---|---|---|");
    for (int i = 0; (info = blasd_warning_row(i)) != NULL; i++)
        printf("| `%s` | %d | %s | %s |\n", info->name, (int)info->code, info->title, info->advice);
}

static void operations_json(void) {
    struct blasd_buf text;
    blasd_buf_init(&text, 16 * BLASD_MIB);
    if (blasd_ops_document(NULL, &text) == 0) printf("%.*s\n", (int)text.len, text.data);
    blasd_buf_release(&text);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*write)(void);
    } files[] = {{"errors.json", errors_json},     {"errors.md", errors_md},
                 {"limits.md", limits_md},         {"metrics.md", metrics_md},
                 {"operations.md", operations_md}, {"operations.json", operations_json},
                 {"warnings.md", warnings_md}};
    for (size_t i = 0; argc == 2 && i < sizeof files / sizeof *files; i++)
        if (strcmp(argv[1], files[i].name) == 0) {
            files[i].write();
            return 0;
        }
    fprintf(stderr, "usage: generate errors.json|errors.md|limits.md|metrics.md|operations.md|"
                    "operations.json|warnings.md\n");
    return 2;
}
