/* `blasd tensors`: what stays at the service. */
#include "clients/cli/cli.h"

#include <string.h>

static const char usage[] =
    "usage: blasd tensors put FILE.npy …\n"
    "       blasd tensors list [-n COUNT]\n"
    "       blasd tensors get ID [-o FILE.npy]\n"
    "       blasd tensors rm ID …\n"
    "\n"
    "Manages stored tensors, for jobs that refer to them: `blasd run matmul a=tensor:ID …`. put "
    "uploads\n"
    "files and prints the ids, one per line; get prints or saves a tensor; rm deletes tensors "
    "(queued\n"
    "jobs still find them).\n"
    "      --life SECONDS         put: set the TTL, counted from each use (tensor_life_s)\n"
    "      --sha256               put: compute the SHA-256; list shows it\n"
    "  -n, --count COUNT          list: print at most COUNT (20)\n"
    "  -o, --output FILE          get: save as a .npy file\n"
    "%\n"
    "\n"
    "Example: id=$(blasd tensors put a.npy) && blasd run matmul a=tensor:$id b=b.npy\n";

struct order {
    struct cli cli;
    char **names; /* what stands behind the verb */
    int count;
    struct blasd_put put;
    int most;
    const char *path;
};

static int fail(const struct order *order, const struct blasd_problem *problem) {
    return cli_complain(&order->cli, problem);
}

/* Stops at the first that is not kept; those before it are, and are told. */
static int put(const struct order *order, struct blasd_client *client) {
    const struct cli quiet = {.name = order->cli.name};
    json_t *list, *error = NULL;
    int status = CLI_OK;
    for (int i = 0; i < order->count; i++)
        if (!cli_is_readable(&order->cli, order->names[i])) return CLI_USAGE;
    list = json_array();
    for (int i = 0; status == CLI_OK && i < order->count; i++) {
        struct blasd_put one = order->put;
        struct blasd_tensor_info tensor;
        struct blasd_problem problem;
        char id[sizeof tensor.id];
        one.path = order->names[i];
        if (blasd_tensor_put(client, &one, &tensor, &problem) != 0) {
            status = cli_complain(&quiet, &problem);
            error = cli_problem(&problem);
        } else if (order->cli.json)
            json_array_append_new(list, cli_tensor(&tensor));
        else
            puts(cli_plain(tensor.id, id, sizeof id));
    }
    list = json_pack("{s:o*,s:o}", "error", error, "tensors", list);
    if (order->cli.json) cli_print_json(list);
    json_decref(list);
    return status;
}

static void print_row(const json_t *tensor) {
    char id[96], dtype[32], ends[40], sum[80], shape[256] = "", bytes[16];
    size_t i, len = 0;
    json_t *length;
    json_array_foreach(json_object_get(tensor, "shape"), i, length) if (len < sizeof shape) len +=
        (size_t)snprintf(shape + len, sizeof shape - len, "%s%lld", i == 0 ? "" : "x",
                         (long long)json_integer_value(length));
    cli_format_bytes(json_number_value(json_object_get(tensor, "bytes")), bytes);
    printf("%-41s %-10s %8s  %-20.20s  %s%s%s\n",
           cli_plain(json_string_value(json_object_get(tensor, "id")), id, sizeof id),
           cli_plain(json_string_value(json_object_get(tensor, "dtype")), dtype, sizeof dtype),
           bytes,
           cli_plain(json_string_value(json_object_get(tensor, "expires_at")), ends, sizeof ends),
           shape[0] == '\0' ? "-" : shape, json_object_get(tensor, "sha256") == NULL ? "" : "  ",
           cli_plain(json_string_value(json_object_get(tensor, "sha256")), sum, sizeof sum));
}

static int list(const struct order *order, struct blasd_client *client) {
    json_t *tensors = json_array(), *tensor;
    int status = cli_read_pages(&order->cli, client, blasd_client_tensors, "tensors", "",
                                order->most, tensors);
    size_t i;
    if (status == CLI_OK && !order->cli.json) {
        puts("ID                                        DTYPE         BYTES  UNTIL                "
             " SHAPE");
        json_array_foreach(tensors, i, tensor) print_row(tensor);
    }
    tensors = json_pack("{s:o}", "tensors", tensors);
    if (status == CLI_OK && order->cli.json) cli_print_json(tensors);
    json_decref(tensors);
    return status;
}

static int get(const struct order *order, struct blasd_client *client) {
    const char *id = order->names[0];
    struct blasd_reply *reply = NULL;
    struct blasd_tensor_info tensor;
    struct blasd_problem problem;
    json_t *document;
    if (order->path != NULL && blasd_tensor_save(client, id, order->path, &problem) != 0)
        return fail(order, &problem);
    if (order->path == NULL && !order->cli.json) {
        if (blasd_tensor_get(client, id, &reply, &problem) != 0) return fail(order, &problem);
        if (blasd_reply_array_count(reply) > 0) cli_print_array(blasd_reply_array_at(reply, 0));
        blasd_reply_free(reply);
    }
    if (!order->cli.json) return CLI_OK;
    if (blasd_tensor_look(client, id, &tensor, &problem) != 0) return fail(order, &problem);
    document = cli_tensor(&tensor);
    cli_print_json(document);
    json_decref(document);
    return CLI_OK;
}

/* Goes on behind one that cannot be forgotten. */
static int rm(const struct order *order, struct blasd_client *client) {
    const struct cli quiet = {.name = order->cli.name};
    json_t *gone = json_array();
    int status = CLI_OK;
    for (int i = 0; i < order->count; i++) {
        struct blasd_problem problem;
        const char *id = order->names[i];
        json_t *one = json_pack("{s:o}", "id", cli_string(id));
        if (blasd_tensor_delete(client, id, &problem) != 0) {
            int why = cli_complain(&quiet, &problem);
            json_object_set_new(
                one, "error",
                json_pack("{s:o,s:i}", "code", cli_string(problem.code), "status", problem.status));
            if (why > status) status = why;
        }
        json_array_append_new(gone, one);
    }
    gone = json_pack("{s:o}", "tensors", gone);
    if (order->cli.json) cli_print_json(gone);
    json_decref(gone);
    return status;
}

static const struct verb {
    const char *name;
    int least, most; /* names behind it */
    int (*act)(const struct order *order, struct blasd_client *client);
} verbs[] = {
    {"put", 1, 1 << 20, put}, {"list", 0, 0, list}, {"get", 1, 1, get}, {"rm", 1, 1 << 20, rm}};

static const struct verb *find_verb(const char *name) {
    for (size_t i = 0; name != NULL && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

/* -1: go on; else the exit status. */
static int parse(struct order *order, int argc, char **argv) {
    static const struct option options[] = {{"life", required_argument, NULL, CLI_OWN},
                                            {"sha256", no_argument, NULL, CLI_OWN + 1},
                                            {"count", required_argument, NULL, 'n'},
                                            {"output", required_argument, NULL, 'o'},
                                            CLI_OPTIONS};
    const struct cli *cli = &order->cli;
    double number;
    int option, status = -1;
    while (status < 0 &&
           (option = getopt_long(argc, argv, "n:o:" CLI_SHORT, options, NULL)) != -1) {
        if (option == CLI_OWN + 1)
            order->put.sha256 = true;
        else if (option == 'o')
            order->path = optarg;
        else if (option == 'n' || option == CLI_OWN) {
            if (!cli_whole(cli, optarg, option == 'n' ? "tensors" : "seconds", &number))
                return CLI_USAGE;
            if (option == 'n')
                order->most = (int)number;
            else
                order->put.life_s = (int64_t)number;
        } else
            status = cli_take(&order->cli, option);
    }
    return status;
}

int blasd_cli_tensors(int argc, char **argv) {
    struct order order = {.cli = {.name = "tensors", .usage = usage}, .most = 20};
    const struct verb *verb = NULL;
    struct blasd_client *client;
    int status = parse(&order, argc, argv);
    if (status >= 0) return status;
    if (optind < argc) verb = find_verb(argv[optind++]);
    order.names = argv + optind;
    order.count = argc - optind;
    if (verb == NULL || order.count < verb->least || order.count > verb->most) {
        cli_print_usage(&order.cli, stderr);
        return CLI_USAGE;
    }
    client = cli_connect(&order.cli);
    status = client == NULL ? CLI_USAGE : verb->act(&order, client);
    blasd_client_free(client);
    return cli_end(&order.cli, status);
}
