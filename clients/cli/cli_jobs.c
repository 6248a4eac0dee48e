/* `blasd get`, `result`, `cancel`, `jobs` and `devices --url`: what becomes of jobs, and where. */
#include "clients/cli/cli.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char get_usage[] = "usage: blasd get ID [--wait SECONDS]\n"
                                "\n"
                                "Prints a job: state, shapes of outputs, timing.\n"
                                "  -w, --wait SECONDS         wait up to SECONDS for its end\n"
                                "%\n"
                                "\n"
                                "Example: blasd get s69209e… --wait 60\n";
static const char result_usage[] =
    "usage: blasd result ID [--wait SECONDS] [-o [output=]out.npy] …\n"
    "\n"
    "Prints the outputs of a job, or saves them as .npy files.\n"
    "  -w, --wait SECONDS         wait up to SECONDS for its end\n"
    "  -o, --output [NAME=]FILE   save an output (default: the first); may be repeated\n"
    "  -q, --quiet                print no timing\n"
    "%\n"
    "\n"
    "Example: blasd result s69209e… -o x.npy\n";
static const char cancel_usage[] =
    "usage: blasd cancel ID … | blasd cancel [--state STATE] [--op OP] [--label NAME[=VALUE]]\n"
    "\n"
    "Cancels jobs that have not ended: the named ones, or all that match the filters.\n"
    "  -f, --forget               delete ended jobs and their outputs, too\n"
    "      --state STATE          cancel queued or running jobs\n"
    "      --op OP                select jobs of this operation\n"
    "      --label NAME[=VALUE]   select jobs with this label; may be repeated\n"
    "      --since TIME, --before TIME\n"
    "                             select jobs by their creation time\n"
    "%\n";
static const char jobs_usage[] =
    "usage: blasd jobs [--state STATE] [--op OP] [-n COUNT]\n"
    "\n"
    "Lists jobs: running and queued ones first, the newest first.\n"
    "      --state STATE          list queued, running, succeeded, failed, cancelled "
    "or expired jobs\n"
    "      --op OP                select jobs of this operation\n"
    "      --label NAME[=VALUE]   select jobs with this label\n"
    "      --since TIME           list jobs from this time on, as 2026-01-31T12:00:00Z\n"
    "      --before TIME          list jobs before this time\n"
    "  -n, --count COUNT          list at most COUNT jobs (20)\n"
    "%\n";
static const char devices_usage[] = "usage: blasd devices --url URL\n"
                                    "\n"
                                    "Lists the devices of a running service and what waits for "
                                    "them. Without --url it measures those\n"
                                    "of this machine: `blasd help devices`.\n"
                                    "%\n";

/* --- one job */

struct job_order {
    struct cli cli;
    struct cli_saves saves;
    const char *id;
    double wait;
    bool quiet;
};

/* -1: go on; else the exit status. */
static int parse_job(struct job_order *order, bool has_outputs, int argc, char **argv) {
    static const struct option options[] = {{"wait", required_argument, NULL, 'w'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            CLI_OPTIONS};
    struct cli *cli = &order->cli;
    int option, status = -1;
    while (status < 0 &&
           (option = getopt_long(argc, argv, has_outputs ? "w:o:q" CLI_SHORT : "w:" CLI_SHORT,
                                 options, NULL)) != -1)
        switch (option) {
        case 'w': status = cli_number(cli, optarg, "seconds", &order->wait) ? -1 : CLI_USAGE; break;
        case 'q': order->quiet = true; break;
        case 'o': status = cli_take_save(cli, &order->saves, optarg) ? -1 : CLI_USAGE; break;
        default: status = cli_take(cli, option);
        }
    if (status >= 0) return status;
    if (optind + 1 != argc) {
        cli_print_usage(cli, stderr);
        return CLI_USAGE;
    }
    order->id = argv[optind];
    return -1;
}

/* The job after its end, or after `wait` seconds, and the exit status of its state; NULL, and that
 * of a complaint, where it cannot be read. */
static int look(const struct job_order *order, struct blasd_client *client,
                struct blasd_reply **ret) {
    struct blasd_problem problem;
    *ret = NULL;
    if (client == NULL) return CLI_USAGE;
    if (blasd_client_get(client, order->id, order->wait, ret, &problem) != 0)
        return cli_complain(&order->cli, &problem);
    if (!blasd_reply_ended(*ret)) return CLI_NOT_ENDED;
    return blasd_reply_failed(*ret, &problem) ? CLI_FAILED : CLI_OK;
}

int blasd_cli_get(int argc, char **argv) {
    struct job_order order = {.cli = {.name = "get", .usage = get_usage}};
    int status = parse_job(&order, false, argc, argv);
    struct blasd_client *client;
    struct blasd_reply *reply;
    if (status >= 0) return status;
    client = cli_connect(&order.cli);
    status = look(&order, client, &reply);
    if (reply != NULL && order.cli.json)
        puts(blasd_reply_document(reply));
    else if (reply != NULL) {
        json_t *document = cli_document(reply);
        cli_print_job(document);
        json_decref(document);
    }
    blasd_reply_free(reply);
    blasd_client_free(client);
    return cli_end(&order.cli, status);
}

/* The outputs of a job that has ended. */
static int show_result(const struct job_order *order, struct blasd_client *client) {
    struct blasd_reply *reply = NULL;
    struct blasd_problem problem;
    int status = CLI_OK;
    if (blasd_client_result(client, order->id, &reply, &problem) != 0 ||
        cli_save_outputs(&order->saves, reply, &problem) != 0)
        status = cli_complain(&order->cli, &problem);
    else
        cli_report(&order->cli, &order->saves, order->quiet, reply);
    blasd_reply_free(reply);
    return status;
}

int blasd_cli_result(int argc, char **argv) {
    struct job_order order = {.cli = {.name = "result", .usage = result_usage}};
    int status = parse_job(&order, true, argc, argv);
    struct blasd_problem problem;
    struct blasd_client *client;
    struct blasd_reply *reply;
    char state[32];
    if (status >= 0) return status;
    client = cli_connect(&order.cli);
    status = look(&order, client, &reply);
    if (status == CLI_OK)
        status = show_result(&order, client);
    else if (status == CLI_NOT_ENDED) {
        if (order.cli.json) puts(blasd_reply_document(reply));
        cli_say(&order.cli, "the job is %s",
                cli_plain(blasd_reply_state(reply), state, sizeof state));
    } else if (reply != NULL && blasd_reply_failed(reply, &problem))
        cli_complain(&order.cli, &problem);
    blasd_reply_free(reply);
    blasd_client_free(client);
    return cli_end(&order.cli, status);
}

/* --- many */

struct list_order {
    struct cli cli;
    char query[512]; /* filters, each with & behind it */
    int count;
    bool forget; /* of `cancel` */
};

/* Adds "NAME=VALUE&" to a query, the value escaped; false: there is no room. */
static bool add_filter(char *query, size_t room, const char *name, const char *value) {
    size_t len = strlen(query);
    len += (size_t)snprintf(query + len, room - len, "%s=", name);
    for (; *value != '\0' && len < room; value++)
        len += (size_t)snprintf(query + len, room - len,
                                isalnum((unsigned char)*value) ? "%c" : "%%%02X",
                                (unsigned char)*value);
    if (len < room) len += (size_t)snprintf(query + len, room - len, "&");
    return len < room;
}

#define FILTERS                                                                                    \
    {"state", required_argument, NULL, CLI_OWN}, {"op", required_argument, NULL, CLI_OWN + 1},     \
        {"since", required_argument, NULL, CLI_OWN + 2},                                           \
        {"before", required_argument, NULL, CLI_OWN + 3}, {                                        \
        "label", required_argument, NULL, CLI_OWN + 4                                              \
    }

/* Takes an option of a list, or of `cancel`; -1: go on, else the exit status. */
static int take_option(struct list_order *order, int option) {
    static const char *const filters[] = {"state", "op", "since", "before", "label"};
    double number;
    if (option == 'f') {
        order->forget = true;
    } else if (option == 'n') {
        if (!cli_whole(&order->cli, optarg, "jobs", &number)) return CLI_USAGE;
        order->count = (int)number;
    } else if (option < CLI_OWN) {
        return cli_take(&order->cli, option);
    } else if (!add_filter(order->query, sizeof order->query, filters[option - CLI_OWN], optarg)) {
        cli_say(&order->cli, "the filters are too long");
        return CLI_USAGE;
    }
    return -1;
}

static int parse_list(struct list_order *order, int argc, char **argv) {
    static const struct option options[] = {
        FILTERS, {"count", required_argument, NULL, 'n'}, CLI_OPTIONS};
    int option, status;
    while ((option = getopt_long(argc, argv, "n:" CLI_SHORT, options, NULL)) != -1)
        if ((status = take_option(order, option)) >= 0) return status;
    if (optind == argc) return -1;
    cli_say(&order->cli, "'%s' is not an option", argv[optind]);
    return CLI_USAGE;
}

/* Of a good answer that is none of the service's. */
static int refuse_answer(const struct cli *cli) {
    struct blasd_problem problem = {.code = "bad_answer",
                                    .message =
                                        "the answer is not the service's, as of a proxy before it"};
    return cli_complain(cli, &problem);
}

/* Adds what became of a job to `list`. The exit status: whether it was cancelled. */
static int cancel_one(const struct cli *cli, struct blasd_client *client, const char *id,
                      bool forget, json_t *list) {
    struct blasd_reply *reply = NULL;
    struct blasd_problem problem;
    const struct cli quiet = {.name = cli->name};
    char state[32];
    int code = forget ? blasd_client_forget(client, id, &reply, &problem)
                      : blasd_client_cancel(client, id, &reply, &problem);
    if (code != 0) {
        json_array_append_new(list, json_pack("{s:o, s:{s:s, s:i}}", "id", cli_string(id), "error",
                                              "code", problem.code, "status", problem.status));
        return cli_complain(&quiet, &problem);
    }
    if (!cli->json)
        printf("%s  %s\n", id, cli_plain(blasd_reply_state(reply), state, sizeof state));
    json_array_append_new(list, cli_document(reply));
    blasd_reply_free(reply);
    return CLI_OK;
}

/* Cancels what the filters name, page by page. */
static int cancel_all(const struct list_order *order, struct blasd_client *client) {
    char cursor[128] = "", query[1000];
    struct blasd_reply *reply;
    struct blasd_problem problem;
    json_int_t cancelled = 0;
    do {
        const char *next;
        json_t *document, *count;
        snprintf(query, sizeof query, "%s", order->query);
        if (cursor[0] != '\0' && !add_filter(query, sizeof query, "cursor", cursor))
            return CLI_USAGE;
        query[strlen(query) - 1] = '\0';
        if (blasd_client_cancel_all(client, query, &reply, &problem) != 0)
            return cli_complain(&order->cli, &problem);
        document = cli_document(reply);
        blasd_reply_free(reply);
        count = json_object_get(document, "cancelled");
        cancelled += json_integer_value(count);
        next = json_string_value(json_object_get(document, "cursor"));
        snprintf(cursor, sizeof cursor, "%s", next == NULL ? "" : next);
        if (!json_is_integer(count)) {
            json_decref(document);
            return refuse_answer(&order->cli);
        }
        json_decref(document);
    } while (cursor[0] != '\0');
    printf(order->cli.json ? "{\"cancelled\": %lld}\n" : "%lld cancelled\n", (long long)cancelled);
    return CLI_OK;
}

/* Cancels the jobs of these ids. */
static int cancel_each(const struct list_order *order, struct blasd_client *client, char **ids) {
    json_t *list = json_array();
    int status = CLI_OK;
    for (; *ids != NULL; ids++) {
        int one = cancel_one(&order->cli, client, *ids, order->forget, list);
        if (one > status) status = one;
    }
    list = json_pack("{s:o}", "jobs", list);
    if (order->cli.json) cli_print_json(list);
    json_decref(list);
    return status;
}

int blasd_cli_cancel(int argc, char **argv) {
    static const struct option options[] = {
        FILTERS, {"forget", no_argument, NULL, 'f'}, CLI_OPTIONS};
    struct list_order order = {.cli = {.name = "cancel", .usage = cancel_usage}};
    struct blasd_client *client;
    int option, status;
    bool by_filter;
    while ((option = getopt_long(argc, argv, "f" CLI_SHORT, options, NULL)) != -1)
        if ((status = take_option(&order, option)) >= 0) return status;
    by_filter = order.query[0] != '\0';
    if (by_filter ? optind < argc || order.forget : optind == argc) {
        cli_print_usage(&order.cli, stderr);
        return CLI_USAGE;
    }
    client = cli_connect(&order.cli);
    if (client == NULL) return CLI_USAGE;
    status = by_filter ? cancel_all(&order, client) : cancel_each(&order, client, argv + optind);
    blasd_client_free(client);
    return cli_end(&order.cli, status);
}

int cli_read_pages(const struct cli *cli, struct blasd_client *client, cli_page_fn page,
                   const char *member, const char *filters, int most, json_t *list) {
    char cursor[128] = "", query[1000], limit[16];
    struct blasd_reply *reply;
    struct blasd_problem problem;
    do {
        int left = most - (int)json_array_size(list);
        const char *next;
        json_t *document;
        snprintf(query, sizeof query, "%s", filters);
        snprintf(limit, sizeof limit, "%d", left < 100 ? left : 100);
        if (!add_filter(query, sizeof query, "limit", limit) ||
            (cursor[0] != '\0' && !add_filter(query, sizeof query, "cursor", cursor)))
            return CLI_USAGE;
        query[strlen(query) - 1] = '\0';
        if (page(client, query, &reply, &problem) != 0) return cli_complain(cli, &problem);
        document = cli_document(reply);
        blasd_reply_free(reply);
        if (json_array_extend(list, json_object_get(document, member)) != 0) {
            json_decref(document);
            return refuse_answer(cli);
        }
        next = json_string_value(json_object_get(document, "cursor"));
        snprintf(cursor, sizeof cursor, "%s", next == NULL ? "" : next);
        json_decref(document);
    } while (cursor[0] != '\0' && (int)json_array_size(list) < most);
    return CLI_OK;
}

int blasd_cli_jobs(int argc, char **argv) {
    struct list_order order = {.cli = {.name = "jobs", .usage = jobs_usage}, .count = 20};
    int status = parse_list(&order, argc, argv);
    struct blasd_client *client;
    json_t *jobs, *job;
    char row[512];
    size_t i;
    if (status >= 0) return status;
    client = cli_connect(&order.cli);
    if (client == NULL) return CLI_USAGE;
    jobs = json_array();
    status = cli_read_pages(&order.cli, client, blasd_client_jobs, "jobs", order.query, order.count,
                            jobs);
    if (status == CLI_OK && !order.cli.json) {
        puts(cli_job_heads);
        json_array_foreach(jobs, i, job) {
            cli_format_job(job, row, sizeof row);
            puts(row);
        }
    }
    jobs = json_pack("{s:o}", "jobs", jobs);
    if (status == CLI_OK && order.cli.json) cli_print_json(jobs);
    json_decref(jobs);
    blasd_client_free(client);
    return cli_end(&order.cli, status);
}

/* --- devices */

static void put_line(void *arg, const char *line) {
    (void)arg;
    puts(line);
}

int blasd_cli_devices(int argc, char **argv) {
    static const struct option options[] = {CLI_OPTIONS};
    struct cli cli = {.name = "devices", .usage = devices_usage};
    struct blasd_reply *reply = NULL;
    struct blasd_problem problem;
    struct blasd_client *client;
    int option, status;
    while ((option = getopt_long(argc, argv, CLI_SHORT, options, NULL)) != -1)
        if ((status = cli_take(&cli, option)) >= 0) return status;
    if (optind < argc) {
        cli_say(&cli, "'%s' is not an option", argv[optind]);
        return CLI_USAGE;
    }
    client = cli_connect(&cli);
    if (client == NULL) return CLI_USAGE;
    status = CLI_OK;
    if (blasd_client_devices(client, &reply, &problem) != 0)
        status = cli_complain(&cli, &problem);
    else if (cli.json)
        puts(blasd_reply_document(reply));
    else {
        json_t *document = cli_document(reply);
        cli_put_devices(document, NULL, 0, put_line, NULL);
        json_decref(document);
    }
    blasd_reply_free(reply);
    blasd_client_free(client);
    return cli_end(&cli, status);
}
