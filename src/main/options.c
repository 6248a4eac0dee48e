/* Reading and handing on the options that several commands share. */
#include "main/options.h"

#include "base/err.h"
#include "main/commands.h"
#include "redis/redis_link.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char common_usage[] =
    "  --redis URL            connect to Redis [BLASD_REDIS]:\n"
    "                         redis://[user:password@]host[:port][,host[:port]...][/db]\n"
    "                         redis+sentinel://[user:password@]host[:port][,...]/MASTER[/db]\n"
    "                         rediss://, rediss+sentinel:// with TLS\n"
    "                         unix:[//user:password@]/path\n"
    "                         file:/path of a file with one of these, to hide passwords\n"
    "  --redis-may-lose-jobs  accept a Redis without a file or with eviction\n"
    "                         [BLASD_REDIS_MAY_LOSE_JOBS=1]\n"
    "  --queue NAME           use this queue (blasd) [BLASD_QUEUE]\n"
    "  --blobs KIND           store large tensors in dir:/path or redis [BLASD_BLOBS]\n"
    "  --limit NAME=VALUE     set a limit; see docs/limits.md [BLASD_<NAME>]\n"
    "  --log-level LEVEL      log error, warn, info or debug [BLASD_LOG_LEVEL]\n"
    "  --no-confine           keep all rights, for debuggers; see SECURITY.md\n"
    "                         [BLASD_NO_CONFINE=1]\n"
    "  --outgoing-hosts LIST  allow URLs to these hosts [BLASD_OUTGOING_HOSTS]: HOST[:PORT],\n"
    "                         *.HOST or an address, separated by commas; https unless\n"
    "                         http:// is written; +private allows private networks\n"
    "  --outgoing-ca FILE     trust these certificates there, too [BLASD_OUTGOING_CA]\n";

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static const char *from_environment(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int set_level(struct common_options *common, const char *text) {
    for (int i = 0; i < 4; i++)
        if (strcmp(text, level_names[i]) == 0) {
            common->log_level = (enum blasd_log_level)i;
            return 0;
        }
    fprintf(stderr, "blasd: '%s' is not a log level; use error, warn, info or debug\n", text);
    return -1;
}

bool option_set(const char *name) {
    const char *value = from_environment(name);
    return value != NULL && strcmp(value, "1") == 0;
}

/* The address that the file holds. It is kept until the process ends. */
static int read_redis(struct common_options *common, const char *path) {
    static char line[8192];
    FILE *file = fopen(path, "re");
    const char *got = file == NULL ? NULL : fgets(line, sizeof line, file);
    int error = errno;
    if (file != NULL) fclose(file);
    if (got == NULL) {
        fprintf(stderr, "blasd: no address of Redis can be read from %s: %s\n", path,
                file == NULL ? strerror(error) : "it is empty");
        return -1;
    }
    line[strcspn(line, "\r\n")] = '\0';
    common->redis = line;
    return 0;
}

static int set_redis(struct common_options *common, const char *url) {
    common->redis = url;
    return url != NULL && strncmp(url, "file:", 5) == 0 ? read_redis(common, url + 5) : 0;
}

#define FROM_ENVIRONMENT "env" /* shorter than any address with a password and a host */

/* A password in a word of the command line, which everybody on the machine can read: kept, and
 * written over there. */
static int take_redis(struct common_options *common, char *word) {
    static char *kept;
    if (strcmp(word, FROM_ENVIRONMENT) == 0)
        return set_redis(common, from_environment("BLASD_REDIS"));
    char *from = strstr(word, "://"), *to = strrchr(word, '@'), *before = getenv("BLASD_REDIS");
    free(kept);
    kept = strdup(word);
    if (kept == NULL) return -1;
    if (from != NULL && to != NULL && from + 3 < to &&
        strlen(word) >= sizeof FROM_ENVIRONMENT - 1) {
        /* for this program started anew by the same command line, as blas_start.c does */
        if (before != NULL) explicit_bzero(before, strlen(before));
        if (setenv("BLASD_REDIS", kept, 1) != 0) return -1;
        memset(word, '\0', strlen(word));
        memcpy(word, FROM_ENVIRONMENT, sizeof FROM_ENVIRONMENT - 1);
    }
    return set_redis(common, kept);
}

static int common_init(struct common_options *common) {
    struct blasd_err err = {0};
    const char *level = from_environment("BLASD_LOG_LEVEL");
    *common = (struct common_options){.may_lose_jobs = option_set("BLASD_REDIS_MAY_LOSE_JOBS"),
                                      .no_confine = option_set("BLASD_NO_CONFINE"),
                                      .queue = from_environment("BLASD_QUEUE"),
                                      .blobs = from_environment("BLASD_BLOBS"),
                                      .outgoing_hosts = from_environment("BLASD_OUTGOING_HOSTS"),
                                      .outgoing_ca = from_environment("BLASD_OUTGOING_CA"),
                                      .log_level = BLASD_LOG_INFO};
    if (common->queue == NULL) common->queue = "blasd";
    blasd_limits_init(&common->limits);
    if (blasd_limits_from_env(&common->limits, &err) != 0) {
        fprintf(stderr, "blasd: the environment's limit %s: %s\n", err.field, err.detail);
        return -1;
    }
    if (set_redis(common, from_environment("BLASD_REDIS")) != 0) return -1;
    if (telemetry_init(&common->telemetry) != 0) return -1;
    return level == NULL ? 0 : set_level(common, level);
}

/* 1: the option is none of these. */
static int common_take(struct common_options *common, int option, char *value) {
    struct blasd_err err = {0};
    switch (option) {
    case OPTION_REDIS: return take_redis(common, value);
    case OPTION_LOSE: common->may_lose_jobs = true; return 0;
    case OPTION_QUEUE: common->queue = value; return 0;
    case OPTION_BLOBS: common->blobs = value; return 0;
    case OPTION_LOG: return set_level(common, value);
    case OPTION_FREE: common->no_confine = true; return 0;
    case OPTION_OUTGOING: common->outgoing_hosts = value; return 0;
    case OPTION_OUTGOING_CA: common->outgoing_ca = value; return 0;
    case OPTION_PRICE: return setenv("BLASD_PRICE", value, 1); /* which children inherit */
    case OPTION_LIMIT:
        if (blasd_limits_set(&common->limits, value, &err) == 0) return 0;
        fprintf(stderr, "blasd: --limit %s: %s\n", value, err.detail);
        return -1;
    default: return telemetry_take(&common->telemetry, option, value);
    }
}

void common_log(const struct common_options *common, const char *process) {
    blasd_log_setup(process, common->log_level);
    if (common->telemetry.log_json) blasd_log_json();
}

int option_wrong(const char *command) {
    fprintf(stderr, "blasd %s: `blasd help %s` tells the options\n", command, command);
    return BLASD_EXIT_USAGE;
}

int common_outgoing(const struct common_options *common, struct blasd_outgoing **ret,
                    struct blasd_err *err) {
    const char *ca = common->outgoing_ca;
    *ret = NULL;
    if (common->outgoing_hosts == NULL) return 0;
    if (ca != NULL && access(ca, R_OK) != 0)
        return blasd_fail(err, BLASD_E_invalid_field, "outgoing-ca",
                          "--outgoing-ca: no certificates can be read from %.150s: %s", ca,
                          strerror(errno));
    return blasd_outgoing_new(common->outgoing_hosts, ca, ret, err);
}

static int check_outgoing(const struct common_options *common) {
    struct blasd_outgoing *outgoing;
    struct blasd_err err = {0};
    if (common->outgoing_hosts == NULL) return 0;
    if (common->outgoing_hosts[strspn(common->outgoing_hosts, ", \t\r\n")] == '\0') {
        fputs("blasd: --outgoing-hosts: the list is empty; remove the option to allow no host\n",
              stderr);
        return -1;
    }
    /* the list alone: parts that go nowhere do not depend on the file */
    if (blasd_outgoing_new(common->outgoing_hosts, NULL, &outgoing, &err) != 0) {
        fprintf(stderr, "blasd: --outgoing-hosts: %s\n", err.detail);
        return -1;
    }
    blasd_outgoing_free(outgoing);
    return 0;
}

static int check_queue(const struct common_options *common) {
    struct blasd_err err = {0};
    if (strchr(common->queue, ':') != NULL) /* which one of several has in its name */
        blasd_fail(&err, BLASD_E_invalid_field, "queue", "A queue's name has no colon");
    else if (blasd_link_check_name(common->queue, &err) == 0)
        return 0;
    fprintf(stderr, "blasd: --queue '%.80s': %s\n", common->queue, err.detail);
    return -1;
}

static int read_prices(struct common_options *common) {
    static struct blasd_prices prices;
    const char *text = from_environment("BLASD_PRICE");
    struct blasd_err err = {0};
    if (text == NULL) return 0;
    common->prices = &prices;
    if (blasd_prices_read(text, &prices, &err) == 0) return 0;
    fprintf(stderr, "blasd: --price: %s\n", err.detail);
    return -1;
}

/* Options of earlier versions, and what replaces them. */
static const struct {
    const char *option, *advice;
} removed_options[] = {
    {"--puts", "fetch outputs with GET /jobs/ID/outputs/NAME, after a webhook"},
    {"--guard",
     "give workers a Redis user of their own, with the rules of `blasd worker --acl`, and "
     "unset BLASD_GUARD"},
    {"--queues", "start a deployment for each queue, with deploy/shards before them, and unset "
                 "BLASD_QUEUES"},
    {"--notice-file", "send SIGTERM to the process when the machine is about to be taken away"},
    {"--notice-url", "send SIGTERM to the process when the machine is about to be taken away"},
    {"--notice-text", "send SIGTERM to the process when the machine is about to be taken away"},
};

/* Prints the advice for a removed option that getopt did not recognize. */
static void explain_removed(const char *word) {
    size_t len = strcspn(word, "=");
    for (size_t i = 0; i < sizeof removed_options / sizeof *removed_options; i++)
        if (strlen(removed_options[i].option) == len &&
            memcmp(word, removed_options[i].option, len) == 0)
            fprintf(stderr, "blasd: %s was removed: %s\n", removed_options[i].option,
                    removed_options[i].advice);
}

int command_line_read(const struct command_line *line, struct common_options *common,
                      void *settings, int argc, char **argv) {
    int option;
    if (from_environment("BLASD_QUEUES") != NULL || from_environment("BLASD_GUARD") != NULL) {
        explain_removed(from_environment("BLASD_QUEUES") != NULL ? "--queues" : "--guard");
        return BLASD_EXIT_USAGE;
    }
    if (common_init(common) != 0) return BLASD_EXIT_USAGE;
    while ((option = getopt_long(argc, argv, "h", line->options, NULL)) != -1) {
        int taken = option == '?' ? -1 : common_take(common, option, optarg);
        if (option == '?') explain_removed(argv[optind - 1]);
        if (option == 'h') {
            printf("%s%s%s%s", line->usage, common_usage, telemetry_usage, line->notes);
            return -1;
        }
        if (taken == 1) taken = line->take(settings, option, optarg);
        if (taken != 0) return option_wrong(line->command);
    }
    if (optind < argc) {
        fprintf(stderr, "blasd %s: '%s' is not an option\n", line->command, argv[optind]);
        return option_wrong(line->command);
    }
    if (telemetry_check(&common->telemetry) != 0 || check_outgoing(common) != 0 ||
        check_queue(common) != 0 || (line->has_prices && read_prices(common) != 0))
        return option_wrong(line->command);
    return line->needs_redis ? common_need_redis(line->command, common) : 0;
}

int common_need_redis(const char *command, const struct common_options *common) {
    if (common->redis != NULL) return 0;
    fprintf(stderr, "blasd %s: give the queue's Redis with --redis URL\n", command);
    return option_wrong(command);
}

const char *webhook_secrets_given(void) {
    return from_environment("BLASD_WEBHOOK_SECRETS");
}

int hold_low_latency(const char *device) {
    static const int32_t microseconds = 0;
    int fd = open(device, O_WRONLY | O_CLOEXEC); /* kept: the request ends with the descriptor */
    if (fd >= 0 && write(fd, &microseconds, sizeof microseconds) == sizeof microseconds) return 0;
    fprintf(stderr,
            "blasd: --low-latency needs %s: %s; give this user leave to write to it, or leave the "
            "option out\n",
            device, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

struct blasd_queue_options common_queue(const struct common_options *common) {
    return (struct blasd_queue_options){.url = common->redis,
                                        .name = common->queue,
                                        .limits = &common->limits,
                                        .may_lose_jobs = common->may_lose_jobs};
}

int common_store_open(const struct common_options *common, struct blasd_store **ret,
                      struct blasd_err *err) {
    return blasd_store_open(common->blobs == NULL ? "redis" : common->blobs, ret, err);
}

int common_check_redis(const struct blasd_queue_options *queue, struct blasd_err *err) {
    int code = blasd_queue_check_store(queue, err);
    if (code == BLASD_QUEUE_UNSURE)
        blasd_log(BLASD_LOG_WARN,
                  "this user of Redis may not ask it (INFO) whether it keeps a file "
                  "and evicts nothing: see to it that it does");
    return code == BLASD_QUEUE_UNSURE || code == -(int)BLASD_E_queue_unavailable ? 0 : code;
}

static int export_limit(const struct common_options *common, int i) {
    const char *name = blasd_limits_info(i)->name;
    char variable[80], value[24];
    int len = snprintf(variable, sizeof variable, "BLASD_%s", name);
    for (int n = 0; n < len; n++) variable[n] = (char)toupper((unsigned char)variable[n]);
    snprintf(value, sizeof value, "%llu", (unsigned long long)blasd_limits_get(&common->limits, i));
    return setenv(variable, value, 1);
}

int common_export(const struct common_options *common) {
    int failed = 0;
    for (int i = 0; blasd_limits_info(i) != NULL; i++) failed |= export_limit(common, i);
    if (common->redis != NULL) failed |= setenv("BLASD_REDIS", common->redis, 1);
    if (common->may_lose_jobs) failed |= setenv("BLASD_REDIS_MAY_LOSE_JOBS", "1", 1);
    if (common->blobs != NULL) failed |= setenv("BLASD_BLOBS", common->blobs, 1);
    if (common->no_confine) failed |= setenv("BLASD_NO_CONFINE", "1", 1);
    if (common->outgoing_hosts != NULL)
        failed |= setenv("BLASD_OUTGOING_HOSTS", common->outgoing_hosts, 1);
    if (common->outgoing_ca != NULL) failed |= setenv("BLASD_OUTGOING_CA", common->outgoing_ca, 1);
    failed |= setenv("BLASD_QUEUE", common->queue, 1);
    failed |= setenv("BLASD_LOG_LEVEL", level_names[common->log_level], 1);
    failed |= telemetry_export(&common->telemetry);
    return failed == 0 ? 0 : -1;
}

bool common_needs_network(const struct common_options *common) {
    bool far = common->redis != NULL && strncmp(common->redis, "unix:", 5) != 0;
    return far || common->telemetry.otlp != NULL;
}

const char *common_blob_dir(const struct common_options *common) {
    const char *blobs = common->blobs;
    return blobs != NULL && strncmp(blobs, "dir:", 4) == 0 ? blobs + 4 : NULL;
}

long option_number(const char *option, const char *text, long least, long most) {
    char *end;
    long value;
    errno = 0;
    value = strtol(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && value >= least && value <= most) return value;
    fprintf(stderr, "blasd: --%s '%s' is not a whole number from %ld to %ld\n", option, text, least,
            most);
    return -1;
}

int text_list_add(struct text_list *list, const char *text) {
    const char **grown = realloc(list->texts, ((size_t)list->count + 2) * sizeof *grown);
    if (grown == NULL) return -1;
    list->texts = grown;
    list->texts[list->count++] = text;
    list->texts[list->count] = NULL;
    return 0;
}

void text_list_release(struct text_list *list) {
    free(list->texts);
    *list = (struct text_list){0};
}
