/* `blasd run OP a=a.npy b=b.npy [param=value …]`, and `blasd submit`, which does not wait. */
#include "clients/cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_FILES 16

#define ORDER_OPTIONS                                                                              \
    "  -d, --device DEVICE        use auto (default), cpu or cuda\n"                               \
    "  -p, --priority PRIORITY    set high, normal (default) or low\n"                             \
    "      --deadline-ms MS       let the job expire if it has not ended by then\n"                \
    "      --digest               print the SHA-256 of each output\n"                              \
    "      --idempotency-key KEY  queue the job once per key\n"                                    \
    "      --label NAME=VALUE     add a label for `blasd jobs --label`; may be repeated\n"         \
    "      --notify URL           post a webhook at its end; see docs/webhooks.md\n"               \
    "  -s, --share                use shared memory for 1 MiB and more, on the machine\n"          \
    "                             of a service started with --share\n"                             \
    "  -k, --keep OUTPUT          store this output as a tensor; may be repeated\n"

static const char run_usage[] =
    "usage: blasd run OP name=INPUT … [param=value …] [-o [output=]out.npy] …\n"
    "\n"
    "Sends a job, waits, and prints its outputs or saves them as .npy files.\n"
    "  -o, --output [NAME=]FILE   save an output (default: the first); may be repeated\n"
    "  -t, --timeout SECONDS      cancel the job after SECONDS (3600)\n"
    "  -n, --dry-run              predict shapes, memory, device, time and cost only\n"
    "      --split N              run distance, matmul or solve as N jobs, by rows or\n"
    "                             right-hand sides, into the one file of -o\n"
    "  -q, --quiet                print no progress and no timing\n" ORDER_OPTIONS "%\n"
    "\n" CLI_INPUTS "\n"
    "Example: blasd run solve a=a.npy b=b.npy -o x.npy\n"
    "Ctrl-C cancels the job.\n";
static const char submit_usage[] = "usage: blasd submit OP name=INPUT … [param=value …]\n"
                                   "\n"
                                   "Sends a job and prints its id for `blasd get`, `blasd result` "
                                   "and `blasd cancel`.\n" ORDER_OPTIONS "%\n"
                                   "\n" CLI_INPUTS "\n"
                                   "Example: blasd submit solve a=a.npy b=b.npy\n";

struct order {
    struct cli cli;
    struct blasd_request request;
    struct blasd_file files[MOST_FILES];
    struct cli_saves saves;
    json_t *params, *references, *keep; /* owned */
    char *texts[3];                     /* owned: the same as JSON */
    char labels[512];
    double timeout;
    int blocks; /* of --split, or 0 */
    bool quiet, share, dry;
};

static bool ends_with(const char *text, const char *end) {
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static bool take_reference(struct order *order, const char *name, const char *value) {
    json_t *reference = cli_reference(value);
    if (json_object_set_new(order->references, name, reference) == 0) return true;
    cli_say(&order->cli, "%s=%s is not an input; `blasd help %s` shows the syntax", name, value,
            order->cli.name);
    return false;
}

/* name=file.npy and name=tensor:… are inputs, name=anything a parameter: a JSON value, or a plain
 * word. */
static bool take_assignment(struct order *order, char *argument) {
    const struct cli *cli = &order->cli;
    char *value = strchr(argument, '=');
    json_t *parsed;
    if (value == NULL || value == argument) {
        cli_say(cli, "'%s' is not name=file.npy, name=tensor:ID or param=value", argument);
        return false;
    }
    *value++ = '\0';
    if (ends_with(value, ".npy") && !cli_is_url(value)) {
        if (order->request.file_count == MOST_FILES) {
            cli_say(cli, "more than %d inputs", MOST_FILES);
            return false;
        }
        if (!cli_is_readable(cli, value)) return false;
        order->files[order->request.file_count++] =
            (struct blasd_file){.name = argument, .path = value};
        return true;
    }
    if (cli_is_reference(value)) return take_reference(order, argument, value);
    parsed = json_loads(value, JSON_DECODE_ANY, NULL);
    if (parsed == NULL) parsed = json_string(value);
    if (parsed != NULL && json_object_set_new(order->params, argument, parsed) == 0) return true;
    cli_say(cli, "'%s' is not valid text", value);
    return false;
}

/* The service looks at what they are. */
static bool take_label(struct order *order, const char *label) {
    size_t len = strlen(order->labels), room = sizeof order->labels - len;
    int more = snprintf(order->labels + len, room, "%s%s", len == 0 ? "" : ",", label);
    order->request.labels = order->labels;
    if (more >= 0 && (size_t)more < room) return true;
    cli_say(&order->cli, "the labels are too long");
    return false;
}

/* -1: go on; else the exit status. */
static int take_option(struct order *order, int option) {
    struct cli *cli = &order->cli;
    double number = 0;
    switch (option) {
    case 'o': return cli_take_save(cli, &order->saves, optarg) ? -1 : CLI_USAGE;
    case 'd': order->request.device = optarg; return -1;
    case 'p': order->request.priority = optarg; return -1;
    case 't': return cli_number(cli, optarg, "seconds", &order->timeout) ? -1 : CLI_USAGE;
    case CLI_OWN:
        if (!cli_whole(cli, optarg, "milliseconds", &number)) return CLI_USAGE;
        order->request.deadline_ms = (int64_t)number;
        return -1;
    case CLI_OWN + 1: order->request.idempotency_key = optarg; return -1;
    case CLI_OWN + 2: return take_label(order, optarg) ? -1 : CLI_USAGE;
    case CLI_OWN + 3: order->request.notify = optarg; return -1;
    case CLI_OWN + 4:
        cli_say(cli, "--put was removed: save outputs with -o, or with `blasd result` later");
        return CLI_USAGE;
    case CLI_OWN + 5:
        if (!cli_whole(cli, optarg, "jobs", &number)) return CLI_USAGE;
        order->blocks = (int)number;
        return -1;
    case CLI_OWN + 6: order->request.digest = true; return -1;
    case 's': order->share = true; return -1;
    case 'q': order->quiet = true; return -1;
    case 'n': order->dry = true; return -1;
    case 'k':
        if (json_array_append_new(order->keep, json_string(optarg)) == 0) return -1;
        cli_say(cli, "'%s' is not valid text", optarg);
        return CLI_USAGE;
    default: return cli_take(cli, option);
    }
}

/* -1: go on; else the exit status. */
static int parse(struct order *order, const char *letters, int argc, char **argv) {
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'},
        {"device", required_argument, NULL, 'd'},
        {"priority", required_argument, NULL, 'p'},
        {"timeout", required_argument, NULL, 't'},
        {"share", no_argument, NULL, 's'},
        {"quiet", no_argument, NULL, 'q'},
        {"keep", required_argument, NULL, 'k'},
        {"dry-run", no_argument, NULL, 'n'},
        {"deadline-ms", required_argument, NULL, CLI_OWN},
        {"idempotency-key", required_argument, NULL, CLI_OWN + 1},
        {"label", required_argument, NULL, CLI_OWN + 2},
        {"notify", required_argument, NULL, CLI_OWN + 3},
        {"put", required_argument, NULL, CLI_OWN + 4}, /* of earlier versions */
        {"split", required_argument, NULL, CLI_OWN + 5},
        {"digest", no_argument, NULL, CLI_OWN + 6},
        CLI_OPTIONS};
    int option, status;
    while ((option = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        if (option < CLI_CA && option != '?' && strchr(letters, option) == NULL) {
            cli_say(&order->cli, "-%c is an option of `blasd run`", option);
            return CLI_USAGE;
        }
        if ((status = take_option(order, option)) >= 0) return status;
    }
    if (optind >= argc) {
        cli_print_usage(&order->cli, stderr);
        return CLI_USAGE;
    }
    order->request.op = argv[optind++];
    for (; optind < argc; optind++)
        if (!take_assignment(order, argv[optind])) return CLI_USAGE;
    if (order->request.file_count == 0 && json_object_size(order->references) == 0) {
        cli_say(&order->cli, "no input was given, as name=file.npy or name=tensor:ID");
        return CLI_USAGE;
    }
    order->request.files = order->files;
    order->request.params = order->texts[0] = json_dumps(order->params, JSON_COMPACT);
    if (json_object_size(order->references) > 0)
        order->request.references = order->texts[1] = json_dumps(order->references, JSON_COMPACT);
    if (json_array_size(order->keep) > 0)
        order->request.keep = order->texts[2] = json_dumps(order->keep, JSON_COMPACT);
    return -1;
}

/* `arg`: whether a bar is wanted. */
static bool show_progress(void *arg, const char *state, const struct blasd_reply *job) {
    char bar[31], left[CLI_LEFT], text[32];
    double progress = job == NULL ? 0 : blasd_reply_progress(job);
    int full = (int)(progress * 30);
    if (cli_interrupted != 0) return false;
    if (!*(bool *)arg) return true;
    for (int i = 0; i < 30; i++) bar[i] = i < full ? '#' : '.';
    bar[30] = '\0';
    cli_format_left(job == NULL ? -1 : blasd_reply_remaining(job), left);
    fprintf(stderr, "\r%-9s [%s] %3.0f %% %-16s", cli_plain(state, text, sizeof text), bar,
            progress * 100, left);
    return true;
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
    char names[512] = "", one[64];
    size_t i, len = 0;
    json_t *entry;
    json_array_foreach(outputs, i, entry) {
        const char *text = json_string_value(json_object_get(entry, "name"));
        len += (size_t)snprintf(names + len, sizeof names - len, "%s %s", i == 0 ? "" : ",",
                                cli_plain(text, one, sizeof one));
        if (len >= sizeof names) break;
    }
    cli_say(&order->cli, "%s has no output '%s'; it has%s", order->request.op, name, names);
}

/* Whether the operation has the outputs that are to be saved: said before the job runs. What the
 * service says of the operation or its own state is left to the job. */
static bool has_outputs(const struct order *order, struct blasd_client *client) {
    struct blasd_reply *reply = NULL;
    struct blasd_problem problem;
    json_t *document = NULL;
    const json_t *outputs = NULL;
    bool has = true;
    for (int i = 0; has && i < order->saves.count; i++) {
        const char *name = order->saves.list[i].output;
        if (name[0] == '\0') continue;
        if (reply == NULL) {
            if (blasd_client_ops(client, &reply, &problem) != 0) return true;
            document = cli_document(reply);
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

/* Returns the exit status. */
static int complain(const struct order *order, const struct blasd_problem *problem) {
    int status = cli_complain(&order->cli, problem);
    if (order->share && strcmp(problem->code, "sharing_off") == 0)
        cli_say(&order->cli, "without --share the arrays are sent");
    return status;
}

static int dry_run(const struct order *order, struct blasd_client *client) {
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    json_t *document;
    if (blasd_client_dry_run(client, &order->request, &reply, &problem) != 0)
        return complain(order, &problem);
    document = cli_document(reply);
    if (order->cli.json)
        puts(blasd_reply_document(reply));
    else
        cli_print_dry_run(document);
    json_decref(document);
    blasd_reply_free(reply);
    return CLI_OK;
}

static int run_split(const struct order *order, struct blasd_client *client, bool bar) {
    struct cli_split what = {.cli = &order->cli,
                             .request = order->request,
                             .params = order->params,
                             .references = order->references,
                             .blocks = order->blocks,
                             .output = order->saves.list[0].output,
                             .path = order->saves.list[0].path,
                             .timeout = order->timeout,
                             .bar = bar};
    if (order->saves.count == 1 && order->request.keep == NULL && !order->dry &&
        order->request.idempotency_key == NULL)
        return cli_split(client, &what);
    cli_say(&order->cli, "--split goes with one -o FILE, and without --keep, --dry-run and "
                         "--idempotency-key");
    return CLI_USAGE;
}

/* Returns the exit status. */
static int run(const struct order *order, struct blasd_client *client) {
    bool bar = isatty(STDERR_FILENO) && !order->quiet;
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    int status = CLI_OK;
    char id[96];
    if (order->blocks > 0) return run_split(order, client, bar);
    if (!has_outputs(order, client)) return CLI_USAGE;
    if (order->dry) return dry_run(order, client);
    cli_catch_signals();
    if (blasd_client_run_watched(client, &order->request, order->timeout, show_progress, &bar,
                                 &reply, &problem) != 0 ||
        cli_save_outputs(&order->saves, reply, &problem) != 0)
        status = CLI_FAILED;
    if (bar) fputs("\r\033[K", stderr);
    if (status == CLI_OK)
        cli_report(&order->cli, &order->saves, order->quiet, reply);
    else
        status = complain(order, &problem);
    if (status != CLI_OK && reply != NULL)
        cli_say(&order->cli, "the results are kept for a while: blasd result %s",
                cli_plain(blasd_reply_id(reply), id, sizeof id));
    blasd_reply_free(reply);
    return cli_interrupted != 0 && status != CLI_OK ? 128 + cli_interrupted : status;
}

static int submit(const struct order *order, struct blasd_client *client) {
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    char id[96];
    if (order->blocks > 0) {
        cli_say(&order->cli, "--split is an option of `blasd run`");
        return CLI_USAGE;
    }
    if (blasd_client_submit(client, &order->request, 0, &reply, &problem) != 0)
        return complain(order, &problem);
    puts(order->cli.json ? blasd_reply_document(reply)
                         : cli_plain(blasd_reply_id(reply), id, sizeof id));
    blasd_reply_free(reply);
    return CLI_OK;
}

static int begin(struct order *order, const char *letters, int argc, char **argv,
                 int (*act)(const struct order *order, struct blasd_client *client)) {
    struct blasd_client *client = NULL;
    struct blasd_problem problem;
    int status;
    order->params = json_object();
    order->references = json_object();
    order->keep = json_array();
    status = parse(order, letters, argc, argv);
    if (status >= 0) goto done;
    client = cli_connect(&order->cli);
    if (client == NULL)
        status = CLI_USAGE;
    else if (order->share && blasd_client_share(client, &problem) != 0)
        status = complain(order, &problem);
    else
        status = act(order, client);
done:
    blasd_client_free(client);
    json_decref(order->params);
    json_decref(order->references);
    json_decref(order->keep);
    for (int i = 0; i < 3; i++) free(order->texts[i]);
    return cli_end(&order->cli, status);
}

int blasd_cli_run(int argc, char **argv) {
    struct order order = {.cli = {.name = "run", .usage = run_usage}, .timeout = 3600};
    return begin(&order, "o:d:p:t:sqk:n" CLI_SHORT, argc, argv, run);
}

int blasd_cli_submit(int argc, char **argv) {
    struct order order = {.cli = {.name = "submit", .usage = submit_usage}};
    return begin(&order, "d:p:sk:" CLI_SHORT, argc, argv, submit);
}
