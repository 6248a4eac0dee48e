/* Reading, checking and handing on the options about spans and logs. */
#include "main/telemetry.h"

#include "base/log.h"
#include "main/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char telemetry_usage[] =
    "  --log text|json        write log lines as text (default) or JSON [BLASD_LOG]\n"
    "  --otlp URL             send spans to this collector, OTLP over HTTP; see\n"
    "                         docs/observability.md [BLASD_OTLP]\n"
    "  --otlp-sample SHARE    sample jobs without traceparent (0.01) [BLASD_OTLP_SAMPLE]\n"
    "  --otlp-headers FILE    send these lines NAME: VALUE with spans\n"
    "                         [BLASD_OTLP_HEADERS_FILE, or NAME=VALUE,… in BLASD_OTLP_HEADERS]\n";

static const char *from_environment(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int set_form(struct telemetry_options *options, const char *text) {
    options->log_json = strcmp(text, "json") == 0;
    if (options->log_json || strcmp(text, "text") == 0) return 0;
    fprintf(stderr, "blasd: --log '%s' is neither text nor json\n", text);
    return -1;
}

static int set_sample(struct telemetry_options *options, const char *text) {
    char *end;
    options->otlp_sample = strtod(text, &end);
    if (end != text && *end == '\0' && options->otlp_sample >= 0 && options->otlp_sample <= 1)
        return 0;
    fprintf(stderr, "blasd: --otlp-sample '%s' is not a number from 0 to 1\n", text);
    return -1;
}

int telemetry_init(struct telemetry_options *options) {
    const char *form = from_environment("BLASD_LOG"),
               *sample = from_environment("BLASD_OTLP_SAMPLE");
    *options =
        (struct telemetry_options){.otlp = from_environment("BLASD_OTLP"),
                                   .otlp_headers = from_environment("BLASD_OTLP_HEADERS_FILE"),
                                   .otlp_sample = 0.01};
    if (form != NULL && set_form(options, form) != 0) return -1;
    return sample == NULL ? 0 : set_sample(options, sample);
}

int telemetry_take(struct telemetry_options *options, int option, const char *value) {
    switch (option) {
    case OPTION_OTLP: options->otlp = value; return 0;
    case OPTION_OTLP_HEADERS: options->otlp_headers = value; return 0;
    case OPTION_OTLP_SAMPLE: return set_sample(options, value);
    case OPTION_LOG_FORM: return set_form(options, value);
    default: return 1;
    }
}

static struct blasd_otlp_options otlp_options(const struct telemetry_options *options) {
    return (struct blasd_otlp_options){.url = options->otlp,
                                       .headers_file = options->otlp_headers,
                                       .headers = from_environment("BLASD_OTLP_HEADERS"),
                                       .sample = options->otlp_sample,
                                       .version = BLASD_VERSION};
}

int telemetry_check(const struct telemetry_options *options) {
    const struct blasd_otlp_options otlp = otlp_options(options);
    struct blasd_err err = {0};
    if (options->otlp == NULL || blasd_otlp_check(&otlp, &err) == 0) return 0;
    fprintf(stderr, "blasd: %s\n", err.detail);
    return -1;
}

int telemetry_export(const struct telemetry_options *options) {
    char sample[32];
    int failed = setenv("BLASD_LOG", options->log_json ? "json" : "text", 1);
    if (options->otlp == NULL) return failed;
    snprintf(sample, sizeof sample, "%.17g", options->otlp_sample);
    failed |= setenv("BLASD_OTLP", options->otlp, 1) | setenv("BLASD_OTLP_SAMPLE", sample, 1);
    if (options->otlp_headers != NULL)
        failed |= setenv("BLASD_OTLP_HEADERS_FILE", options->otlp_headers, 1);
    return failed;
}

int telemetry_open(const struct telemetry_options *options, uint64_t spans_most, const char *part,
                   const char *instance, struct blasd_otlp **ret, struct blasd_err *err) {
    struct blasd_otlp_options otlp = otlp_options(options);
    *ret = NULL;
    if (options->otlp == NULL) return 0;
    otlp.spans_most = spans_most;
    otlp.part = part;
    otlp.instance = instance;
    return blasd_otlp_new(&otlp, ret, err);
}
