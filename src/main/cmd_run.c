/* `blasd run OP a=a.npy b=b.npy [param=value …]`: one job from files, through a running service.
 *
 * Knows the service only by its HTTP interface, through the client library. Read next:
 * ../../clients/c/blasd.h. */
#include "clients/c/blasd.h"
#include "main/commands.h"

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

struct order {
    struct blasd_request request;
    struct blasd_file files[MOST_FILES];
    const char *saves[MOST_FILES];
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
        if (access(value, R_OK) != 0) {
            fprintf(stderr, "blasd run: the file %s cannot be read\n", value);
            return -1;
        }
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
            if (order->save_count == MOST_FILES) return -1;
            order->saves[order->save_count++] = optarg;
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
        default: return -1;
        }
    if (optind >= argc) return -1;
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

static void print_element(const struct blasd_array *array, int64_t i) {
    const void *data = array->data;
    if (strcmp(array->dtype, "float64") == 0)
        print_real(((const double *)data)[i], 17);
    else if (strcmp(array->dtype, "float32") == 0)
        print_real((double)((const float *)data)[i], 9);
    else if (strcmp(array->dtype, "int64") == 0)
        printf("%lld", (long long)((const int64_t *)data)[i]);
    else
        printf("0x%02x", ((const unsigned char *)data)[i]);
}

static void print_array(const struct blasd_array *array) {
    int64_t elements = 1, row = array->rank > 0 ? array->shape[array->rank - 1] : 1;
    printf("%s: %s (", array->name, array->dtype);
    for (int i = 0; i < array->rank; i++) {
        printf("%s%lld", i == 0 ? "" : ", ", (long long)array->shape[i]);
        elements *= array->shape[i];
    }
    printf(")\n");
    if (elements > INLINE_ELEMENTS) return;
    for (int64_t i = 0; i < elements; i++) {
        fputs(i % row == 0 ? "  " : " ", stdout);
        print_element(array, i);
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
        const char *equals = strchr(order->saves[i], '=');
        char name[64];
        if (equals == NULL)
            snprintf(name, sizeof name, "%s", first == NULL ? "" : first->name);
        else
            snprintf(name, sizeof name, "%.*s", (int)(equals - order->saves[i]), order->saves[i]);
        if (blasd_reply_save(reply, name, equals == NULL ? order->saves[i] : equals + 1, problem) !=
            0)
            return -1;
    }
    return 0;
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
        fputs(usage, order.help ? stdout : stderr);
        if (order.help) status = BLASD_EXIT_OK;
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
