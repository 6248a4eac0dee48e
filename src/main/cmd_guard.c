/* `blasd guard`: the process that main/guard.c starts beside a worker. A thread for each
 * connection. */
#include "base/log.h"
#include "main/commands.h"
#include "main/confine.h"
#include "main/options.h"
#include "queue/worker_rules.h"
#include "redis/guarded.h"
#include "redis/relay.h"
#include "redis/route.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MOST 256 /* a worker has some for each queue */
#define END_MS 1000          /* for what the worker has sent before it ended */

struct settings {
    struct common_options common;
    const char *worker;
    int socket;
};

/* Of one queue. */
struct watched {
    struct blasd_worker_rules rules;
    struct blasd_link_address address;
};

struct guard {
    struct watched queues[BLASD_QUEUES_MOST];
    int count;
    atomic_int connections;
};

struct connection {
    struct guard *guard;
    const struct watched *queue;
    int client, timeout_ms;
};

static bool may(void *arg, const char *data, const struct blasd_redis_request *request) {
    const struct watched *queue = arg;
    return blasd_worker_may(&queue->rules, data, request);
}

static void serve(const struct connection *connection) {
    struct blasd_relay relay = {
        .client = connection->client, .may = may, .arg = (void *)(size_t)connection->queue};
    struct blasd_err err = {0};
    const char *wrong;
    int rc =
        blasd_link_connect(&connection->queue->address, connection->timeout_ms, &relay.redis, &err);
    blasd_guard_tell(connection->client, rc, &err);
    if (rc != 0) return;
    wrong = blasd_relay_run(&relay);
    if (wrong != NULL)
        blasd_log(BLASD_LOG_ERROR, "worker %s sent Redis %s: its connection is closed",
                  connection->queue->rules.worker, wrong);
}

static void *run_connection(void *arg) {
    struct connection *connection = arg;
    struct guard *guard = connection->guard;
    serve(connection);
    close(connection->client);
    free(connection);
    guard->connections--;
    return NULL;
}

/* The caller's descriptor is the thread's from now on, or closed. */
static void begin(struct guard *guard, const struct blasd_guard_ask *ask, int client) {
    struct connection *connection = NULL;
    const struct watched *queue = NULL;
    pthread_t thread;
    for (int i = 0; i < guard->count; i++)
        if (strcmp(ask->tag, guard->queues[i].rules.tag) == 0) queue = &guard->queues[i];
    if (queue != NULL && guard->connections < CONNECTIONS_MOST)
        connection = malloc(sizeof *connection);
    if (connection == NULL) {
        close(client);
        return;
    }
    *connection = (struct connection){guard, queue, client, ask->timeout_ms};
    guard->connections++;
    if (pthread_create(&thread, NULL, run_connection, connection) == 0) {
        pthread_detach(thread);
        return;
    }
    guard->connections--;
    close(client);
    free(connection);
}

/* What a worker sends last it awaits no reply to. */
static void let_end(struct guard *guard) {
    for (int ms = 0; guard->connections > 0 && ms < END_MS; ms += 10)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static int know_queues(const struct settings *settings, struct guard *guard,
                       struct blasd_err *err) {
    struct blasd_queue_options all = common_queue(&settings->common);
    int rc = common_store_open(&settings->common, &all.store, err);
    all.guard = settings->socket; /* its LIMITS are those of a worker that has one */
    guard->count = blasd_queue_count(&all);
    for (int i = 0; rc == 0 && i < guard->count; i++) {
        struct blasd_queue_one one;
        blasd_queue_one(&all, i, &one);
        blasd_worker_rules_init(&guard->queues[i].rules, settings->worker, &one.options);
        rc = blasd_link_parse(one.options.url, one.options.name, &guard->queues[i].address, err);
    }
    blasd_store_free(all.store);
    return rc;
}

static int run(const struct settings *settings) {
    static struct guard guard;
    const struct confine_files files = {.network = common_needs_network(&settings->common)};
    struct blasd_guard_ask ask;
    struct blasd_err err = {0};
    int client, rc;
    prctl(PR_SET_DUMPABLE, 0);
    if (know_queues(settings, &guard, &err) != 0) {
        blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
        return BLASD_EXIT_FAILED;
    }
    if (!settings->common.no_confine) {
        confine_files(&files);
        confine_calls();
    }
    while ((rc = blasd_guard_receive(settings->socket, &ask, &client)) != 0)
        if (rc > 0) begin(&guard, &ask, client);
    let_end(&guard);
    return BLASD_EXIT_OK;
}

static int take_option(void *arg, int option, char *value) {
    struct settings *settings = arg;
    if (option == 'w') {
        settings->worker = value;
        return 0;
    }
    settings->socket = (int)option_number("socket", value, 3, 1 << 20);
    return settings->socket < 0 ? -1 : 0;
}

static int parse(struct settings *settings, int argc, char **argv) {
    static const struct option options[] = {COMMON_OPTIONS,
                                            {"socket", required_argument, NULL, 's'},
                                            {"worker", required_argument, NULL, 'w'},
                                            {NULL, 0, NULL, 0}};
    static const struct command_line line = {
        "guard",     "usage: blasd guard --socket FD --worker NAME [options]\n",
        "",          options,
        take_option, true,
        false};
    return command_line_read(&line, &settings->common, settings, argc, argv);
}

int blasd_cmd_guard(int argc, char **argv) {
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    struct settings settings = {.socket = -1};
    int status = parse(&settings, argc, argv);
    if (status != 0) return status < 0 ? BLASD_EXIT_OK : status;
    if (settings.socket < 0 || settings.worker == NULL) return option_wrong("guard");
    prctl(PR_SET_NAME, "blasd guard");
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    common_log(&settings.common, "blasd guard");
    return run(&settings);
}
