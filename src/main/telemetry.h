/* The options about spans and logs that `up`, `api` and `worker` share. Read next: options.h. */
#ifndef BLASD_MAIN_TELEMETRY_H
#define BLASD_MAIN_TELEMETRY_H

#include "base/err.h"
#include "trace/otlp.h"

struct telemetry_options {
    const char *otlp;         /* --otlp, BLASD_OTLP; NULL: no spans. Borrowed, as the next */
    const char *otlp_headers; /* --otlp-headers, BLASD_OTLP_HEADERS_FILE */
    double otlp_sample;       /* --otlp-sample, BLASD_OTLP_SAMPLE; 0.01 */
    bool log_json;            /* --log, BLASD_LOG */
};

enum { OPTION_OTLP = 300, OPTION_OTLP_HEADERS, OPTION_OTLP_SAMPLE, OPTION_LOG_FORM };
/* clang-format off */
#define TELEMETRY_OPTIONS                                                                          \
    {"otlp", required_argument, NULL, OPTION_OTLP},                                                \
    {"otlp-headers", required_argument, NULL, OPTION_OTLP_HEADERS},                                \
    {"otlp-sample", required_argument, NULL, OPTION_OTLP_SAMPLE},                                  \
    {"log", required_argument, NULL, OPTION_LOG_FORM}
/* clang-format on */
extern const char telemetry_usage[];

/* From the environment; 0, or -1 after a message. */
int telemetry_init(struct telemetry_options *options);
/* 0; 1: the option is none of these; -1 after a message. */
int telemetry_take(struct telemetry_options *options, int option, const char *value);
/* That they fit together, and that the file of headers can be read; 0, or -1 after a message. */
int telemetry_check(const struct telemetry_options *options);
int telemetry_export(const struct telemetry_options *options);
/* What sends spans, where there is an address for them; else *ret is NULL. To be started once this
 * process has given up its rights: it reads files here. The texts are borrowed until
 * blasd_otlp_stop. */
int telemetry_open(const struct telemetry_options *options, uint64_t spans_most, const char *part,
                   const char *instance, struct blasd_otlp **ret, struct blasd_err *err);

#endif
