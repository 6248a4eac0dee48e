/* The options that every command has, and the client that they make. */
#include "clients/cli/cli.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char common[] =
    "  -u, --url URL              connect here ($BLASD_URL, else http://127.0.0.1:8080);\n"
    "                             also https://… and unix:/PATH\n"
    "      --api-key-file FILE    read the key from the first line (else $BLASD_API_KEY)\n"
    "      --ca FILE              trust these authorities for https (those of the system)\n"
    "      --cert FILE            use this client certificate for https\n"
    "      --cert-key FILE        read its key from this file (that of --cert)\n"
    "      --insecure             do not verify the service for https\n"
    "      --retries N            retry N times after a network error (0; idempotent)\n"
    "      --json                 print one JSON document, errors included\n";
static const char statuses[] =
    "\n"
    "Exit status: 0 success; 1 the job failed or was rejected; 2 invalid command line; 3 the job "
    "has\n"
    "not ended; 4 the service is unreachable or busy; 128+N ended by signal N.\n";

/* The usage has a line "%" where the common options go. */
void cli_print_usage(const struct cli *cli, FILE *out) {
    const char *at = strstr(cli->usage, "%\n");
    fprintf(out, "%.*s%s%s%s", (int)(at - cli->usage), cli->usage, common, at + 2, statuses);
}

void cli_say(const struct cli *cli, const char *fmt, ...) {
    va_list args;
    fprintf(stderr, "blasd %s: ", cli->name);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

int cli_take(struct cli *cli, int option) {
    switch (option) {
    case 'u': cli->url = optarg; return -1;
    case CLI_CA: cli->ca_file = optarg; return -1;
    case CLI_CERT: cli->cert_file = optarg; return -1;
    case CLI_CERT_KEY: cli->cert_key = optarg; return -1;
    case CLI_KEY_FILE: cli->key_file = optarg; return -1;
    case CLI_INSECURE: cli->insecure = true; return -1;
    case CLI_JSON: cli->json = true; return -1;
    case CLI_RETRIES: return cli_whole(cli, optarg, "retries", &cli->retries) ? -1 : CLI_USAGE;
    case 'h': cli_print_usage(cli, stdout); return CLI_OK;
    default: cli_say(cli, "`blasd help %s` lists the options", cli->name); return CLI_USAGE;
    }
}

bool cli_number(const struct cli *cli, const char *text, const char *unit, double *value) {
    char *end = NULL;
    *value = strtod(text, &end);
    if (end != text && *end == '\0' && *value > 0) return true;
    cli_say(cli, "'%s' is not a number of %s", text, unit);
    return false;
}

bool cli_whole(const struct cli *cli, const char *text, const char *unit, double *value) {
    if (!cli_number(cli, text, unit, value)) return false;
    if (*value >= 1 && *value <= 1e9 && *value == floor(*value)) return true;
    cli_say(cli, "'%s' is not a number of %s", text, unit);
    return false;
}

/* As of `blasd jobs | head`: it may have been any write that failed, so errno does not tell. */
static bool is_read_no_more(void) {
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

int cli_end(const struct cli *cli, int status) {
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    int why = cli->lost != 0 ? cli->lost : errno;
    if (lost && is_read_no_more()) return 128 + SIGPIPE;
    if (lost) cli_say(cli, "standard output cannot be written: %s", strerror(why));
    return lost && status == CLI_OK ? CLI_FAILED : status;
}

/* The first line of the file, as the key; false, and says so, where there is none. */
static bool read_key(const struct cli *cli, struct blasd_client *client) {
    struct blasd_problem problem;
    char line[1024] = "";
    FILE *file = fopen(cli->key_file, "r");
    const char *why = file == NULL ? strerror(errno) : "it has no line";
    bool good = file != NULL && fgets(line, sizeof line, file) != NULL;
    if (file != NULL) fclose(file);
    line[strcspn(line, "\r\n")] = '\0';
    if (!good)
        cli_say(cli, "the file %s cannot be read: %s", cli->key_file, why);
    else if (blasd_client_set_api_key(client, line, &problem) != 0) {
        cli_complain(cli, &problem);
        good = false;
    }
    return good;
}

double cli_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct blasd_client *cli_connect(const struct cli *cli) {
    struct blasd_client *client = blasd_client_new(cli->url);
    struct blasd_problem problem;
    bool tls =
        cli->ca_file != NULL || cli->cert_file != NULL || cli->cert_key != NULL || cli->insecure;
    if (client == NULL) {
        cli_say(cli, "out of memory");
        return NULL;
    }
    if (cli->key_file != NULL && !read_key(cli, client)) goto fail;
    if (tls && blasd_client_set_tls(client, cli->ca_file, cli->cert_file, cli->cert_key,
                                    !cli->insecure, &problem) != 0) {
        cli_complain(cli, &problem);
        goto fail;
    }
    if (blasd_client_set_retries(client, (int)cli->retries, &problem) != 0) {
        cli_complain(cli, &problem);
        goto fail;
    }
    return client;
fail:
    blasd_client_free(client);
    return NULL;
}
