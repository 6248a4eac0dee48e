/* `blasd run OP a=a.npy b=b.npy [param=value …]`: one job from files, through a running service.
 *
 * Knows the service only by its HTTP interface, through the client library. Read next:
 * ../../clients/c/blasd.h. */
#include "clients/c/blasd.h"
#include "core/tensor.h"
#include "main/commands.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILES 16
#define INLINE_ELEMENTS 100 /* an output of more is described, not printed */

static const char usage[] =
    "usage: blasd run OP name=file.npy … [param=value …] [-o [output=]out.npy] …\n"
    "\n"
    "Sends one job to a running service and prints its outputs, or saves them as .npy files.\n"
    "  -o, --output [NAME=]FILE   save an output (without a name: the first); may be repeated\n"
    "  -u, --url URL              the service (default: $BLASD_URL, else http://127.0.0.1:8080)\n"
    "  -d, --device DEVICE        auto, cpu or cuda\n"
    "  -p, --priority PRIORITY    high, normal or low\n"
    "  -t, --timeout SECONDS      give up, and cancel the job, after so long (default 3600)\n"
    "      --deadline-ms MS       a job that has not ended by then expires\n"
    "      --idempotency-key KEY  asked twice under one key, the job is queued once\n"
    "  -s, --share                the service is on this machine, started with --share: inputs "
    "and\n"
    "                             results of a MiB and more go through shared memory\n"
    "  -q, --quiet                no progress and no timing\n"
    "      --json                 print the job document in place of the outputs\n"
    "\n"
    "Example: blasd run solve a=a.npy b=b.npy -o x.npy\n"
    "Ctrl-C cancels the job.\n";

/* An output that is to become a file. */
struct save {
    char output[64]; /* its name; "": the first */
    const char *path;
};

struct order {
    struct blasd_request request;
    struct blasd_file files[MOST_FILES];
    struct save saves[MOST_FILES];
    int save_count;
    json_t *params;    /* owned */
    char *params_text; /* owned */
    const char *url;
    double timeout;
    bool quiet, json, share, help;
};

static volatile sig_atomic_t interrupted; /* the signal that came, or 0 */

static void on_signal(int signum) {
    interrupted = signum;
}

/* The first Ctrl-C cancels the job; a second one ends this process at once. */
static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static bool ends_with(const char *text, const char *end) {
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Whether there is such a file, and it can be read; else says why not. */
static bool is_readable(const char *path) {
    struct stat info;
    int reason = stat(path, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : 0;
    if (reason == 0 && access(path, R_OK) != 0) reason = errno;
    if (reason == 0) return true;
    fprintf(stderr, "blasd run: the file %s cannot be read: %s\n", path, strerror(reason));
    return false;
}

/* Whether a file can be written, as far as that shows before the job has run. */
static bool is_writable(const char *path) {
    struct stat info;
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    int reason = 0;
    if (stat(path, &info) == 0)
        reason = S_ISDIR(info.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
    else if (errno != ENOENT || (folder != NULL && access(folder, W_OK | X_OK) != 0))
        reason = errno;
    free(folder);
    if (reason == 0) return true;
    fprintf(stderr, "blasd run: the file %s cannot be written: %s\n", path, strerror(reason));
    return false;
}

/* [output=]file */
static int take_save(struct order *order, const char *argument) {
    struct save *save = &order->saves[order->save_count];
    const char *equals = strchr(argument, '=');
    size_t len = equals == NULL ? 0 : (size_t)(equals - argument);
    if (order->save_count == MOST_FILES) {
        fprintf(stderr, "blasd run: more than %d outputs\n", MOST_FILES);
        return -1;
    }
    save->path = equals == NULL ? argument : equals + 1;
    if (*save->path == '\0' || len >= sizeof save->output || equals == argument) {
        fprintf(stderr, "blasd run: '%s' is not [output=]file\n", argument);
        return -1;
    }
    memcpy(save->output, argument, len);
    order->save_count++;
    return is_writable(save->path) ? 0 : -1;
}

/* name=file.npy is an input, name=anything a parameter: a JSON value, or a plain word. */
static int take_assignment(struct order *order, char *argument) {
    char *value = strchr(argument, '=');
    if (value == NULL || value == argument) {
        fprintf(stderr, "blasd run: '%s' is not name=file.npy or param=value\n", argument);
        return -1;
    }
    *value++ = '\0';
    if (ends_with(value, ".npy")) {
        if (order->request.file_count == MOST_FILES) {
            fprintf(stderr, "blasd run: more than %d inputs\n", MOST_FILES);
            return -1;
        }
        if (!is_readable(value)) return -1;
        order->files[order->request.file_count++] = (struct blasd_file){argument, value};
        return 0;
    }
    {
        json_t *parsed = json_loads(value, JSON_DECODE_ANY, NULL);
        if (parsed == NULL) parsed = json_string(value);
        if (parsed == NULL || json_object_set_new(order->params, argument, parsed) != 0) {
            fprintf(stderr, "blasd run: '%s' is not valid text\n", value);
            return -1;
        }
    }
    return 0;
}

static int parse_deadline(struct order *order, const char *text) {
    char *end = NULL;
    order->request.deadline_ms = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && order->request.deadline_ms > 0) return 0;
    fprintf(stderr, "blasd run: '%s' is not a number of milliseconds\n", text);
    return -1;
}

static int parse_timeout(struct order *order, const char *text) {
    char *end = NULL;
    order->timeout = strtod(text, &end);
    if (end != text && *end == '\0' && order->timeout > 0) return 0;
    fprintf(stderr, "blasd run: '%s' is not a number of seconds\n", text);
    return -1;
}

static int parse(struct order *order, int argc, char **argv) {
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"url", required_argument, NULL, 'u'},
                                            {"device", required_argument, NULL, 'd'},
                                            {"priority", required_argument, NULL, 'p'},
                                            {"timeout", required_argument, NULL, 't'},
                                            {"deadline-ms", required_argument, NULL, 'D'},
                                            {"idempotency-key", required_argument, NULL, 'k'},
                                            {"share", no_argument, NULL, 's'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "o:u:d:p:t:sqh", options, NULL)) != -1)
        switch (option) {
        case 'o':
            if (take_save(order, optarg) != 0) return -1;
            break;
        case 'u': order->url = optarg; break;
        case 'd': order->request.device = optarg; break;
        case 'p': order->request.priority = optarg; break;
        case 't':
            if (parse_timeout(order, optarg) != 0) return -1;
            break;
        case 'D':
            if (parse_deadline(order, optarg) != 0) return -1;
            break;
        case 'k': order->request.idempotency_key = optarg; break;
        case 's': order->share = true; break;
        case 'q': order->quiet = true; break;
        case 'j': order->json = true; break;
        case 'h': order->help = true; return -1;
        default: fprintf(stderr, "blasd run: `blasd help run` lists the options\n"); return -1;
        }
    if (optind >= argc) {
        fputs(usage, stderr);
        return -1;
    }
    order->request.op = argv[optind++];
    for (; optind < argc; optind++)
        if (take_assignment(order, argv[optind]) != 0) return -1;
    if (order->request.file_count == 0) {
        fprintf(stderr, "blasd run: no input was given as name=file.npy\n");
        return -1;
    }
    order->request.files = order->files;
    order->params_text = json_dumps(order->params, JSON_COMPACT);
    order->request.params = order->params_text;
    return 0;
}

/* `arg`: whether a bar is wanted. */
static bool show_progress(void *arg, const char *state, double progress) {
    char bar[31];
    int full = (int)(progress * 30);
    if (interrupted != 0) return false;
    if (!*(bool *)arg) return true;
    for (int i = 0; i < 30; i++) bar[i] = i < full ? '#' : '.';
    bar[30] = '\0';
    fprintf(stderr, "\r%-9s [%s] %3.0f %%", state, bar, progress * 100);
    return true;
}

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
    unsigned char *at = (unsigned char *)data + (size_t)i * size;
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

static void print_array(const struct blasd_array *array) {
    int64_t elements = 1, row = array->rank > 0 ? array->shape[array->rank - 1] : 1;
    enum blasd_dtype dtype;
    printf("%s: %s (", array->name, array->dtype);
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

static void print_timing(const struct blasd_reply *reply) {
    static const char *const parts[] = {"receive", "queue",    "batch_wait", "upload",
                                        "compute", "download", "total"};
    json_t *document = json_loads(blasd_reply_document(reply), 0, NULL);
    const json_t *timing = json_object_get(document, "timing");
    const json_t *execution = json_object_get(document, "execution");
    const char *device = json_string_value(json_object_get(execution, "device"));
    const char *method = json_string_value(json_object_get(execution, "method"));
    size_t i;
    json_t *warning;
    fprintf(stderr, "%s, %s;", device == NULL ? "" : device, method == NULL ? "" : method);
    for (i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_ms", parts[i]);
        fprintf(stderr, " %s %.3f", parts[i], json_number_value(json_object_get(timing, name)));
    }
    fprintf(stderr, " ms\n");
    json_array_foreach(json_object_get(execution, "warnings"), i, warning)
        fprintf(stderr, "warning: %s\n", json_string_value(warning));
    json_decref(document);
}

static int save_outputs(const struct order *order, const struct blasd_reply *reply,
                        struct blasd_problem *problem) {
    for (int i = 0; i < order->save_count; i++) {
        const struct blasd_array *first = blasd_reply_array_at(reply, 0);
        const struct save *save = &order->saves[i];
        const char *name = save->output[0] != '\0' || first == NULL ? save->output : first->name;
        if (blasd_reply_save(reply, name, save->path, problem) != 0) return -1;
    }
    return 0;
}

/* One named object of a list of them, or NULL. */
static const json_t *entry_of(const json_t *list, const char *name) {
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry) {
        const char *text = json_string_value(json_object_get(entry, "name"));
        if (text != NULL && strcmp(text, name) == 0) return entry;
    }
    return NULL;
}

static void say_no_output(const struct order *order, const json_t *outputs, const char *name) {
    size_t i;
    json_t *entry;
    fprintf(stderr, "blasd run: %s has no output '%s'; it has", order->request.op, name);
    json_array_foreach(outputs, i, entry) fprintf(
        stderr, "%s %s", i == 0 ? "" : ",", json_string_value(json_object_get(entry, "name")));
    fputc('\n', stderr);
}

/* Whether the operation has the outputs that are to be saved: said before the job runs. What the
 * service says of the operation or its own state is left to the job. */
static bool has_outputs(const struct order *order, struct blasd_client *client) {
    struct blasd_reply *reply = NULL;
    struct blasd_problem problem;
    json_t *document = NULL;
    const json_t *outputs = NULL;
    bool has = true;
    for (int i = 0; has && i < order->save_count; i++) {
        const char *name = order->saves[i].output;
        if (name[0] == '\0') continue;
        if (reply == NULL) {
            if (blasd_client_ops(client, &reply, &problem) != 0) return true;
            document = json_loads(blasd_reply_document(reply), 0, NULL);
            outputs = json_object_get(entry_of(json_object_get(document, "ops"), order->request.op),
                                      "outputs");
        }
        has = outputs == NULL || entry_of(outputs, name) != NULL;
        if (!has) say_no_output(order, outputs, name);
    }
    json_decref(document);
    blasd_reply_free(reply);
    return has;
}

static void report(const struct order *order, const struct blasd_reply *reply) {
    if (order->json)
        puts(blasd_reply_document(reply));
    else if (order->save_count == 0)
        for (int i = 0; i < blasd_reply_array_count(reply); i++)
            print_array(blasd_reply_array_at(reply, i));
    if (!order->quiet) print_timing(reply);
}

static void complain(const struct order *order, const struct blasd_problem *problem) {
    bool has_field = problem->field[0] != '\0';
    fprintf(stderr, "blasd run: %s%s%s%s\n", problem->message, has_field ? " (" : "",
            problem->field, has_field ? ")" : "");
    if (order->share && strcmp(problem->code, "sharing_off") == 0)
        fprintf(stderr, "blasd run: without --share the arrays are sent\n");
}

/* Returns the exit status. */
static int run(const struct order *order, struct blasd_client *client) {
    bool bar = isatty(STDERR_FILENO) && !order->quiet;
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    int status = BLASD_EXIT_FAILED;
    if (order->share && blasd_client_share(client, &problem) != 0) {
        complain(order, &problem);
        return status;
    }
    if (!has_outputs(order, client)) return BLASD_EXIT_USAGE;
    catch_signals();
    if (blasd_client_run(client, &order->request, order->timeout, show_progress, &bar, &reply,
                         &problem) == 0 &&
        save_outputs(order, reply, &problem) == 0)
        status = BLASD_EXIT_OK;
    if (bar) fputs("\r\033[K", stderr);
    if (status == BLASD_EXIT_OK)
        report(order, reply);
    else
        complain(order, &problem);
    blasd_reply_free(reply);
    return interrupted != 0 && status != BLASD_EXIT_OK ? 128 + interrupted : status;
}

int blasd_cmd_run(int argc, char **argv) {
    struct order order = {.timeout = 3600, .params = json_object()};
    struct blasd_client *client = NULL;
    int status = BLASD_EXIT_USAGE;
    if (parse(&order, argc, argv) != 0) {
        if (!order.help) goto done;
        fputs(usage, stdout);
        status = BLASD_EXIT_OK;
        goto done;
    }
    status = BLASD_EXIT_FAILED;
    client = blasd_client_new(order.url);
    if (client == NULL)
        fprintf(stderr, "blasd run: out of memory\n");
    else
        status = run(&order, client);
done:
    blasd_client_free(client);
    json_decref(order.params);
    free(order.params_text);
    return status;
}
