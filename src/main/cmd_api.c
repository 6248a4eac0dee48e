/* `blasd api`: the HTTP front end. Read next: ../http/http.h. */
#include "base/log.h"
#include "http/http.h"
#include "main/access.h"
#include "main/child.h"
#include "main/commands.h"
#include "main/confine.h"
#include "main/listen.h"
#include "main/options.h"
#include "main/signal_pipe.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define GRACE_MS 10000

static const char usage[] =
    "usage: blasd api --redis URL [options]\n"
    "\n"
    "Runs the HTTP front end over a given Redis until SIGTERM.\n"
    "  --listen HOST:PORT     listen here (127.0.0.1:8080); port 0 selects a free one;\n"
    "                         unix:PATH is a socket, without keys for this user only\n"
    "  --loops N              run N event loops, each a thread (1)\n" ACCESS_USAGE
    "  --price TEXT           set prices, for a cost in job documents [BLASD_PRICE], as\n"
    "                         cpu=0.05/h,cuda=2.5/h,kwh=0.30,currency=EUR\n"
    "  --webhooks             accept \"notify\" in jobs; run `blasd notify` to deliver\n"
    "  --low-latency          keep idle cores polling; see docs/deploying.md\n"
    "  --unusable 'NAME: WHY' list this device as unusable in GET /devices\n"
    "  --listen-fds N[,N…]    use these inherited sockets; bind none\n";
static const char notes[] =
    "All processes of a queue must use the same blob store (redis).\n"
    "Exit status: 0 ended by a signal, 1 start failed, 2 invalid options.\n";

struct settings {
    struct common_options common;
    struct access_options access;
    const char *listen, *fds;
    int loops;
    bool low_latency, webhooks;
    bool has_supervisor; /* which prints the ready line */
    bool ready;          /* it was printed */
    struct text_list unusable;
    struct listeners listeners;
};

static int take_option(void *arg, int option, char *value) {
    struct settings *settings = arg;
    int taken = access_take(&settings->access, option, value);
    if (taken != 1) return taken;
    switch (option) {
    case 'l': settings->listen = value; return 0;
    case 'f': settings->fds = value; return 0;
    case 'n':
        settings->loops = (int)option_number("loops", value, 1, LISTEN_MOST);
        return settings->loops < 0 ? -1 : 0;
    case 'L': settings->low_latency = true; return 0;
    case 'w': settings->webhooks = true; return 0;
    default: return text_list_add(&settings->unusable, value);
    }
}

static int parse(struct settings *settings, int argc, char **argv) {
    static const struct option options[] = {COMMON_OPTIONS,
                                            ACCESS_OPTIONS,
                                            {"listen", required_argument, NULL, 'l'},
                                            {"listen-fds", required_argument, NULL, 'f'},
                                            {"loops", required_argument, NULL, 'n'},
                                            PRICE_OPTION,
                                            {"low-latency", no_argument, NULL, 'L'},
                                            {"webhooks", no_argument, NULL, 'w'},
                                            {"unusable", required_argument, NULL, 'u'},
                                            {NULL, 0, NULL, 0}};
    static const struct command_line line = {"api", usage, notes, options, take_option, true, true};
    return command_line_read(&line, &settings->common, settings, argc, argv);
}

static void on_ready(void *arg) {
    struct settings *settings = arg;
    settings->has_supervisor = child_tell_ready();
}

static void on_queue(void *arg, const struct blasd_err *trouble) {
    struct settings *settings = arg;
    char url[LISTEN_URL];
    if (trouble != NULL) {
        blasd_log(BLASD_LOG_WARN, "no job can be taken: %s", trouble->detail);
        return;
    }
    if (settings->ready) blasd_log(BLASD_LOG_INFO, "jobs are taken again");
    if (!settings->ready && !settings->has_supervisor) {
        listeners_url(&settings->listeners, settings->access.tls_cert != NULL, url);
        printf("ready %s\n", url);
        fflush(stdout);
    }
    settings->ready = true;
}

static void give_up_rights(const struct settings *settings) {
    const struct common_options *common = &settings->common;
    const struct access_options *access = &settings->access;
    const struct confine_files files = {
        .read = {access->keys, access->tls_cert, access->tls_key, access->client_ca,
                 access->tokens.keys, common->outgoing_ca},
        .write = {common_blob_dir(common)},
        .network = common->outgoing_hosts != NULL || common_needs_network(common)};
    if (common->no_confine) return;
    confine_files(&files);
    confine_calls();
}

/* The sockets; whether they may be served; and who may come in, where that is not everybody. */
static int open_access(struct settings *settings, struct blasd_auth **auth, struct blasd_err *err) {
    const struct access_options *access = &settings->access;
    int code = settings->fds != NULL ? listeners_adopt(&settings->listeners, settings->fds, err)
                                     : listeners_open(&settings->listeners, settings->listen,
                                                      settings->loops, access_closed(access), err);
    if (code == 0) code = access_check(access, &settings->listeners, err);
    if (code == 0 && access_closed(access))
        code = blasd_auth_open(access->keys, access->tokens.keys == NULL ? NULL : &access->tokens,
                               auth, err);
    return code;
}

static int open_telemetry(const struct settings *settings, char url[LISTEN_URL],
                          struct blasd_otlp **ret, struct blasd_err *err) {
    const struct common_options *common = &settings->common;
    listeners_url(&settings->listeners, settings->access.tls_cert != NULL, url);
    return telemetry_open(&common->telemetry, common->limits.otlp_spans, "blasd api", url, ret,
                          err);
}

static int run(struct settings *settings) {
    static const int ends[] = {SIGTERM, SIGINT, 0}, rereads[] = {SIGTERM, SIGINT, SIGHUP, 0};
    const struct access_options *access = &settings->access;
    const struct blasd_tls_files tls = {access->tls_cert, access->tls_key, access->client_ca};
    struct blasd_auth *auth = NULL;
    char url[LISTEN_URL];
    struct blasd_queue_options queue = common_queue(&settings->common);
    struct blasd_http_options options = {
        .queue = &queue,
        .allow_hosts = access->hosts.texts,
        .allow_origins = access->origins.texts,
        .unusable_devices = settings->unusable.texts,
        .stop_fd = signal_pipe_open(access_reread(access) ? rereads : ends),
        .tls = access->tls_cert == NULL ? NULL : &tls,
        .share = access->share,
        .log = {access->audit, access->access_log},
        .metrics_tenants = access->metrics_tenants,
        .webhooks = settings->webhooks,
        .prices = settings->common.prices,
        .grace_ms = child_has_supervisor() ? -1 : GRACE_MS,
        .version = BLASD_VERSION,
        .on_ready = on_ready,
        .on_serving = child_tell_serving,
        .on_queue = on_queue,
        .on_alive = child_tell_alive,
        .on_quiet = child_tell_quiet,
        .arg = settings};
    struct blasd_outgoing *outgoing = NULL;
    struct blasd_err err = {0};
    int code;
    if (options.stop_fd < 0) {
        blasd_log(BLASD_LOG_ERROR, "cannot wait for signals: %s", strerror(errno));
        return BLASD_EXIT_FAILED;
    }
    code = open_access(settings, &auth, &err);
    if (code == 0) code = common_store_open(&settings->common, &queue.store, &err);
    if (code == 0 && access->share && blasd_store_kind(queue.store) != BLASD_STORE_DIR)
        code = blasd_fail(&err, BLASD_E_internal_error, "",
                          "--share needs a blob store that is a directory: --blobs dir:/path");
    if (code == 0) code = common_check_redis(&queue, &err);
    if (code == 0) code = common_outgoing(&settings->common, &outgoing, &err);
    if (code == 0) blasd_store_recycle(queue.store, queue.limits->pool_bytes);
    if (code == 0) {
        options.listen_fds = settings->listeners.fds;
        options.loops = settings->listeners.count;
        options.auth = auth;
        options.outgoing = outgoing;
        code = open_telemetry(settings, url, &options.otlp, &err);
        give_up_rights(settings);
        if (code == 0) code = access_check_again(access, &err);
        if (code == 0) code = blasd_otlp_start(options.otlp, &err);
        if (code == 0) code = blasd_http_run(&options, &err);
        blasd_otlp_stop(options.otlp);
    }
    listeners_remove(&settings->listeners);
    blasd_auth_free(auth);
    blasd_outgoing_free(outgoing);
    blasd_store_free(queue.store);
    close(options.stop_fd);
    if (code == 0) return BLASD_EXIT_OK;
    blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
    return BLASD_EXIT_FAILED;
}

/* Bodies and answers come and go by the thousand: memory given back to the kernel after each is
 * faulted in, and zeroed, for the next. */
static void keep_memory(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 32 << 20);
    mallopt(M_TOP_PAD, 1 << 20);
#endif
}

int blasd_cmd_api(int argc, char **argv) {
    struct settings settings = {.listen = "127.0.0.1:8080", .loops = 1};
    int status;
    access_init(&settings.access);
    status = parse(&settings, argc, argv);
    if (status == 0) {
        prctl(PR_SET_NAME, "blasd api");
        keep_memory();
        common_log(&settings.common, "blasd api");
        status = settings.low_latency && hold_low_latency(BLASD_LATENCY_DEVICE) != 0
                     ? BLASD_EXIT_FAILED
                     : run(&settings);
    }
    access_release(&settings.access);
    text_list_release(&settings.unusable);
    return status < 0 ? BLASD_EXIT_OK : status;
}
