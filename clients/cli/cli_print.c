/* What came back, as people read it and as programs do. */
#include "clients/cli/cli.h"
#include "core/tensor.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INLINE_ELEMENTS 100 /* an output of more is described, not printed */

/* --- texts */

/* Control characters, those from U+0080 to U+009F too. */
static bool is_control(const char *at) {
    const unsigned char *byte = (const unsigned char *)at;
    return iscntrl(byte[0]) || (byte[0] == 0xc2 && byte[1] >= 0x80 && byte[1] < 0xa0);
}

const char *cli_plain(const char *text, char *out, size_t room) {
    size_t len = 0;
    for (; text != NULL && *text != '\0' && len + 1 < room; text++) {
        bool control = is_control(text);
        if (control && (unsigned char)*text == 0xc2) text++;
        out[len++] = control ? '?' : *text;
    }
    while (len > 0 && text != NULL && ((unsigned char)*text & 0xc0) == 0x80) {
        bool first = ((unsigned char)out[--len] & 0xc0) != 0x80; /* cut within a character */
        if (first) break;
    }
    out[len] = '\0';
    return out;
}

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text == NULL ? "" : text;
}

json_t *cli_string(const char *text) {
    json_t *string = json_string(text);
    char ascii[1024];
    size_t len = 0;
    if (string != NULL) return string;
    for (; *text != '\0' && len + 1 < sizeof ascii; text++)
        ascii[len++] = (unsigned char)*text < 0x80 ? *text : '?';
    ascii[len] = '\0';
    return json_string(ascii);
}

void cli_print_json(const json_t *document) {
    json_dumpf(document, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
    putchar('\n');
}

json_t *cli_document(const struct blasd_reply *reply) {
    json_t *document = json_loads(blasd_reply_document(reply), 0, NULL);
    return document != NULL ? document : json_object();
}

json_t *cli_problem(const struct blasd_problem *problem) {
    return json_pack("{s:o, s:i, s:o, s:o, s:o, s:b, s:f, s:I}", "code", cli_string(problem->code),
                     "status", problem->status, "field", cli_string(problem->field), "message",
                     cli_string(problem->message), "advice", cli_string(problem->advice), "retry",
                     problem->retry, "retry_after", problem->retry_after, "least",
                     (json_int_t)problem->least);
}

/* Of a service that is away, or at its limits, another time may be a better one; of a job that
 * failed or was refused not. The library's own refusals come before anything is sent. */
static int status_of(const struct blasd_problem *problem) {
    static const char *const away[] = {"connection_failed", "bad_answer", "timeout"};
    static const char *const unsent[] = {"invalid_url", "invalid_request", "invalid_tensor",
                                         "file_not_readable"};
    for (size_t i = 0; i < sizeof away / sizeof *away; i++)
        if (strcmp(problem->code, away[i]) == 0) return CLI_AWAY;
    for (size_t i = 0; problem->status == 0 && i < sizeof unsent / sizeof *unsent; i++)
        if (strcmp(problem->code, unsent[i]) == 0) return CLI_USAGE;
    /* a job that needed more memory than there was failed */
    if (strcmp(problem->code, "out_of_memory") == 0) return CLI_FAILED;
    return problem->status == 429 || problem->status == 503 ? CLI_AWAY : CLI_FAILED;
}

int cli_complain(const struct cli *cli, const struct blasd_problem *problem) {
    bool has_field = problem->field[0] != '\0';
    char message[sizeof problem->message], field[sizeof problem->field];
    cli_say(cli, "%s%s%s%s", cli_plain(problem->message, message, sizeof message),
            has_field ? " (" : "", cli_plain(problem->field, field, sizeof field),
            has_field ? ")" : "");
    if (cli->json) {
        json_t *document = json_pack("{s:o}", "error", cli_problem(problem));
        cli_print_json(document);
        json_decref(document);
    }
    return status_of(problem);
}

/* --- arrays */

/* The sign of a NaN says nothing. */
static void print_real(double value, int digits) {
    printf("%.*g", digits, isnan(value) ? (double)NAN : value);
}

/* Digits that tell all values of a dtype apart. */
static int digits_of(enum blasd_dtype dtype) {
    return dtype == BLASD_float64   ? 17
           : dtype == BLASD_float32 ? 9
           : dtype == BLASD_float16 ? 5
                                    : 4;
}

static void print_element(const void *data, enum blasd_dtype dtype, int64_t i) {
    size_t size = blasd_dtype_size(dtype);
    unsigned char *at = (unsigned char *)(uintptr_t)data + (size_t)i * size;
    double real = 0;
    struct blasd_tensor from = {.dtype = dtype, .data = at}, to = {.data = &real};
    uint64_t bits = 0;
    if (blasd_dtype_parts(dtype) == 1) memcpy(&bits, at, size);
    switch (blasd_dtype_kind(dtype)) {
    case 'f':
        blasd_tensor_convert(&from, &to);
        print_real(real, digits_of(dtype));
        break;
    case 'i': /* the sign goes up to the top and comes down again */
        printf("%lld", (long long)(int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size));
        break;
    case 'u': printf("%llu", (unsigned long long)bits); break;
    case 'c': /* 1+2j, as Python writes it */
        print_element(at, blasd_dtype_part(dtype), 0);
        to = (struct blasd_tensor){.data = &real};
        from = (struct blasd_tensor){.dtype = blasd_dtype_part(dtype), .data = at + size / 2};
        blasd_tensor_convert(&from, &to);
        if (isnan(real) || !signbit(real)) putchar('+');
        print_element(at, blasd_dtype_part(dtype), 1);
        putchar('j');
        break;
    default: fputs(bits != 0 ? "true" : "false", stdout);
    }
}

void cli_print_array(const struct blasd_array *array) {
    int64_t elements = 1, row = array->rank > 0 ? array->shape[array->rank - 1] : 1;
    enum blasd_dtype dtype;
    char name[96];
    printf("%s: %s (", cli_plain(array->name, name, sizeof name), array->dtype);
    for (int i = 0; i < array->rank; i++) {
        printf("%s%lld", i == 0 ? "" : ", ", (long long)array->shape[i]);
        elements *= array->shape[i];
    }
    printf(")\n");
    if (elements > INLINE_ELEMENTS) return;
    if (!blasd_dtype_find(array->dtype, strlen(array->dtype), &dtype)) return;
    for (int64_t i = 0; i < elements; i++) {
        fputs(i % row == 0 ? "  " : " ", stdout);
        print_element(array->data, dtype, i);
        if (i % row == row - 1) putchar('\n');
    }
}

/* --- jobs */

static void write_timing(FILE *out, const json_t *job) {
    static const char *const parts[] = {"receive", "queue",    "batch_wait", "upload",
                                        "compute", "download", "total"};
    const json_t *timing = json_object_get(job, "timing");
    const json_t *execution = json_object_get(job, "execution");
    char device[64], method[96];
    fprintf(out, "%s, %s;", cli_plain(text_of(execution, "device"), device, sizeof device),
            cli_plain(text_of(execution, "method"), method, sizeof method));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_ms", parts[i]);
        fprintf(out, " %s %.3f", parts[i], json_number_value(json_object_get(timing, name)));
    }
    fprintf(out, " ms\n");
}

static void write_warnings(FILE *out, const json_t *job) {
    size_t i;
    json_t *warning;
    char text[512];
    json_array_foreach(json_object_get(json_object_get(job, "execution"), "warnings"), i, warning)
        fprintf(out, "warning: %s\n", cli_plain(json_string_value(warning), text, sizeof text));
}

void cli_print_timing(const struct blasd_reply *reply) {
    json_t *job = cli_document(reply);
    write_timing(stderr, job);
    write_warnings(stderr, job);
    json_decref(job);
}

static void print_outputs(const json_t *outputs) {
    const char *name;
    json_t *output, *length;
    size_t i;
    char text[96];
    json_object_foreach((json_t *)(uintptr_t)outputs, name, output) {
        printf("  %s: ", cli_plain(name, text, sizeof text));
        printf("%s (", cli_plain(text_of(output, "dtype"), text, sizeof text));
        json_array_foreach(json_object_get(output, "shape"), i, length)
            printf("%s%lld", i == 0 ? "" : ", ", (long long)json_integer_value(length));
        printf(")");
        if (json_is_object(json_object_get(output, "tensor")))
            printf(", kept as tensor:%s",
                   cli_plain(text_of(json_object_get(output, "tensor"), "id"), text, sizeof text));
        putchar('\n');
    }
}

void cli_print_kept(const json_t *job) {
    const char *name;
    json_t *output, *kept = json_object();
    json_object_foreach(json_object_get(job, "outputs"), name,
                        output) if (json_is_object(json_object_get(output, "tensor")))
        json_object_set(kept, name, output);
    print_outputs(kept);
    json_decref(kept);
}

void cli_print_digests(const json_t *job) {
    const char *name;
    json_t *digest;
    char text[96];
    json_object_foreach(json_object_get(json_object_get(job, "execution"), "digest"), name,
                        digest) {
        printf("  sha256 %s ", cli_plain(name, text, sizeof text));
        printf("%s\n", cli_plain(json_string_value(digest), text, sizeof text));
    }
}

static void print_labels(const json_t *labels) {
    const char *name;
    json_t *value;
    char text[96];
    json_object_foreach((json_t *)(uintptr_t)labels, name, value) {
        printf("  label %s", cli_plain(name, text, sizeof text));
        printf("=%s\n", cli_plain(json_string_value(value), text, sizeof text));
    }
}

/* Seconds to its end, -1: not known. */
static double left_of(const json_t *job) {
    const json_t *ms = json_object_get(job, "remaining_ms");
    return json_is_number(ms) ? json_number_value(ms) / 1000 : -1;
}

void cli_format_left(double seconds, char out[CLI_LEFT]) {
    long minutes = (long)(fmin(fmax(seconds, 0), 1e8) / 60 + 0.5);
    if (!(seconds >= 0))
        out[0] = '\0';
    else if (seconds < 99.5)
        snprintf(out, CLI_LEFT, "%.0f s left", fmax(ceil(seconds), 1));
    else if (minutes < 100)
        snprintf(out, CLI_LEFT, "%ld min left", minutes);
    else
        snprintf(out, CLI_LEFT, "%ld h left", (minutes + 30) / 60);
}

void cli_print_job(const json_t *job) {
    const json_t *error = json_object_get(job, "error");
    char id[96], op[64], state[32], created[40], title[256], detail[512], left[CLI_LEFT];
    printf("%s  %s  %s", cli_plain(text_of(job, "id"), id, sizeof id),
           cli_plain(text_of(job, "op"), op, sizeof op),
           cli_plain(text_of(job, "state"), state, sizeof state));
    if (strcmp(state, "running") == 0) {
        cli_format_left(left_of(job), left);
        printf(" %.0f %%%s%s", 100 * json_number_value(json_object_get(job, "progress")),
               *left == '\0' ? "" : ", ", left);
    }
    printf("  made %s\n", cli_plain(text_of(job, "created_at"), created, sizeof created));
    if (error != NULL)
        printf("  %s: %s\n", cli_plain(text_of(error, "title"), title, sizeof title),
               cli_plain(text_of(error, "detail"), detail, sizeof detail));
    print_labels(json_object_get(job, "labels"));
    print_outputs(json_object_get(job, "outputs"));
    cli_print_digests(job);
    if (json_is_string(json_object_get(json_object_get(job, "execution"), "device"))) {
        fputs("  ", stdout);
        write_timing(stdout, job);
    }
    write_warnings(stdout, job);
}

static double number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

/* "12.5 ms", or "not known". */
static const char *milliseconds(const json_t *value, char text[32]) {
    if (!json_is_number(value)) return "not known";
    snprintf(text, 32, "%.3f ms", json_number_value(value));
    return text;
}

void cli_print_dry_run(const json_t *document) {
    const json_t *predicted = json_object_get(document, "predicted");
    const json_t *cost = json_object_get(document, "cost");
    char device[32], why[256], bytes[16], peak[16], queue[32], compute[32], currency[16];
    cli_format_bytes(number_of(document, "bytes"), bytes);
    cli_format_bytes(number_of(document, "peak_bytes"), peak);
    printf("on %s: %s\n", cli_plain(text_of(document, "device"), device, sizeof device),
           cli_plain(text_of(document, "why"), why, sizeof why));
    print_outputs(json_object_get(document, "outputs"));
    printf("  %.4g operations, %s bytes in and out, %s of memory\n", number_of(document, "flops"),
           bytes, peak);
    printf("  predicted: %s in the queue, %s of computing\n",
           milliseconds(json_object_get(predicted, "queue_ms"), queue),
           milliseconds(json_object_get(predicted, "compute_ms"), compute));
    if (json_is_number(json_object_get(cost, "amount")))
        printf("  cost: %.6g %s\n", number_of(cost, "amount"),
               cli_plain(text_of(cost, "currency"), currency, sizeof currency));
}

json_t *cli_tensor(const struct blasd_tensor_info *tensor) {
    json_t *shape = json_array();
    for (int i = 0; i < tensor->rank; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    return json_pack("{s:o,s:o,s:o,s:I,s:I,s:o,s:o,s:o*}", "id", cli_string(tensor->id), "dtype",
                     cli_string(tensor->dtype), "shape", shape, "bytes", (json_int_t)tensor->bytes,
                     "life_s", (json_int_t)tensor->life_s, "expires_at",
                     cli_string(tensor->expires_at), "location", cli_string(tensor->location),
                     "sha256", tensor->sha256[0] == '\0' ? NULL : cli_string(tensor->sha256));
}

const char cli_job_heads[] =
    "ID                                        OP           STATE      PRIORITY DEVICE    DONE"
    "    TOTAL ms  MADE";

void cli_format_job(const json_t *job, char *out, size_t room) {
    const json_t *timing = json_object_get(job, "timing");
    char id[96], op[32], state[24], priority[16], device[24], created[40], total[CLI_LEFT];
    const char *on = text_of(json_object_get(job, "execution"), "device");
    if (*on == '\0') on = text_of(job, "device");
    cli_format_left(left_of(job), total); /* of what runs there is no total yet */
    if (total[0] == '\0')
        snprintf(total, sizeof total, "%.3f",
                 json_number_value(json_object_get(timing, "total_ms")));
    snprintf(out, room, "%-*s %-12.12s %-10s %-8s %-8.8s %4.0f%% %11s  %s", CLI_JOB_ID,
             cli_plain(text_of(job, "id"), id, sizeof id),
             cli_plain(text_of(job, "op"), op, sizeof op),
             cli_plain(text_of(job, "state"), state, sizeof state),
             cli_plain(text_of(job, "priority"), priority, sizeof priority),
             cli_plain(on, device, sizeof device),
             100 * json_number_value(json_object_get(job, "progress")), total,
             cli_plain(text_of(job, "created_at"), created, sizeof created));
}

void cli_format_bytes(double bytes, char out[16]) {
    static const char units[] = " KMGTP";
    int unit = 0;
    while (bytes >= 1000 && unit < 5) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 16, unit == 0 ? "%.0f%.1s" : "%.1f%.1s", bytes, unit == 0 ? "" : &units[unit]);
}
