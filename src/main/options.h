/* What `up`, `api` and `worker` have in common on their command lines. Each value comes from the
 * option, else from the environment, else from a default; `up` hands its own on to its children
 * through the environment, so that no password stands in a list of processes. */
#ifndef BLASD_MAIN_OPTIONS_H
#define BLASD_MAIN_OPTIONS_H

#include "base/limits.h"
#include "base/log.h"
#include "core/price.h"
#include "main/telemetry.h"
#include "outgoing/outgoing.h"
#include "queue/queue.h"

#include <getopt.h>
#include <stdbool.h>

struct common_options {
    const char *redis;  /* --redis, BLASD_REDIS; NULL: none. Borrowed, as all texts here, or kept */
    bool may_lose_jobs; /* --redis-may-lose-jobs, BLASD_REDIS_MAY_LOSE_JOBS=1 */
    const char *queue;  /* --queue, BLASD_QUEUE; "blasd" */
    const char *blobs;  /* --blobs, BLASD_BLOBS; NULL: not given */
    bool no_confine;    /* --no-confine, BLASD_NO_CONFINE=1 */
    const char *outgoing_hosts; /* --outgoing-hosts, BLASD_OUTGOING_HOSTS; NULL: none */
    const char *outgoing_ca;    /* --outgoing-ca, BLASD_OUTGOING_CA; NULL: the system's alone */
    struct blasd_limits limits;
    enum blasd_log_level log_level; /* --log-level, BLASD_LOG_LEVEL; info */
    struct telemetry_options telemetry;
    const struct blasd_prices
        *prices; /* --price, BLASD_PRICE; NULL: none, or not for the command */
};

/* Rows for a table of getopt_long, and what they print in a usage text. */
enum {
    OPTION_REDIS = 256,
    OPTION_LOSE,
    OPTION_QUEUE,
    OPTION_BLOBS,
    OPTION_LIMIT,
    OPTION_LOG,
    OPTION_FREE,
    OPTION_OUTGOING,
    OPTION_OUTGOING_CA,
    OPTION_PRICE
};
/* by hand: versions of clang-format differ in how they lay out braces in a macro */
/* clang-format off */
#define COMMON_OPTIONS                                                                             \
    {"redis", required_argument, NULL, OPTION_REDIS},                                              \
    {"redis-may-lose-jobs", no_argument, NULL, OPTION_LOSE},                                       \
    {"queue", required_argument, NULL, OPTION_QUEUE},                                              \
    {"blobs", required_argument, NULL, OPTION_BLOBS},                                              \
    {"limit", required_argument, NULL, OPTION_LIMIT},                                              \
    {"log-level", required_argument, NULL, OPTION_LOG},                                            \
    {"no-confine", no_argument, NULL, OPTION_FREE},                                                \
    {"outgoing-hosts", required_argument, NULL, OPTION_OUTGOING},                                  \
    {"outgoing-ca", required_argument, NULL, OPTION_OUTGOING_CA},                                  \
    TELEMETRY_OPTIONS,                                                                             \
    {"help", no_argument, NULL, 'h'}
#define PRICE_OPTION {"price", required_argument, NULL, OPTION_PRICE}
/* clang-format on */

/* A command that has these options and its own. */
struct command_line {
    const char *command, *usage, *notes; /* common_usage is printed between these two */
    const struct option *options;
    /* Takes an option of the command's own; 0, or -1 after a message. */
    int (*take)(void *settings, int option, char *value);
    bool needs_redis, has_prices;
};
/* Reads the environment, then the options; of a word with a password it leaves none in the list of
 * processes. `settings` are the command's own. 0, an exit status after a message, or -1 after help
 * was printed. */
int command_line_read(const struct command_line *line, struct common_options *common,
                      void *settings, int argc, char **argv);
/* 0 where an address of Redis was given, or an exit status after a message. */
int common_need_redis(const char *command, const struct common_options *common);
/* The queue in that Redis; its store is still to come. */
struct blasd_queue_options common_queue(const struct common_options *common);
int common_store_open(const struct common_options *common, struct blasd_store **ret,
                      struct blasd_err *err);
/* That the given Redis loses no jobs and that the store is the deployment's. A Redis that is away
 * may come later: that is no error, for whoever connects then asks again. */
int common_check_redis(const struct blasd_queue_options *queue, struct blasd_err *err);
/* Puts every value into the environment, for children. */
int common_export(const struct common_options *common);
/* Says how this process logs, as the options ask; `process` is static. */
void common_log(const struct common_options *common, const char *process);
/* Whether its Redis, or a collector of spans, is reached over a network. */
bool common_needs_network(const struct common_options *common);
/* Whom requests of the service may go to on a client's word; *ret is NULL where that is nobody. */
int common_outgoing(const struct common_options *common, struct blasd_outgoing **ret,
                    struct blasd_err *err);
/* The directory of the blob store; NULL: it is of another kind. */
const char *common_blob_dir(const struct common_options *common);

/* A whole number from least to most, or -1 after a message that names `option`. */
long option_number(const char *option, const char *text, long least, long most);
/* What getopt said no to, as an exit status; `command` for the hint. */
int option_wrong(const char *command);

/* What the variable says of the file that webhooks are signed with; NULL: nothing. */
/* Whether that variable of the environment is 1. */
bool option_set(const char *name);
const char *webhook_secrets_given(void);

/* For --low-latency: asks the kernel, through `device` (BLASD_LATENCY_DEVICE), to let idle cores
 * poll rather than halt, until this process ends. 0, or -1 after a message. */
#define BLASD_LATENCY_DEVICE "/dev/cpu_dma_latency"
int hold_low_latency(const char *device);

/* A growing list of texts for options that may be repeated; ended by NULL. */
struct text_list {
    const char **texts; /* owned; the texts are borrowed */
    int count;
};
int text_list_add(struct text_list *list, const char *text);
void text_list_release(struct text_list *list);

#endif
