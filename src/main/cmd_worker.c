/* `blasd worker`: one worker process for one device. Read next: ../worker/worker.h. */
#include "main/blas_start.h"
#include "main/child.h"
#include "main/commands.h"
#include "main/confine.h"
#include "main/options.h"
#include "main/signal_pipe.h"
#include "queue/queue_link.h"
#include "worker/worker.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char usage[] =
    "usage: blasd worker --redis URL [options]\n"
    "\n"
    "Runs jobs of the queue on one device until SIGTERM; running jobs finish within drain_s.\n"
    "  --device DEVICE        use cpu:0 (default) or cuda:N\n"
    "  --name NAME            set a unique name (HOST-DEVICE-PID)\n"
    "  --measured DIR         store learned job costs and the fastest BLAS kernels here;\n"
    "                         none: store and try nothing\n"
    "  --blas PATH            compute with this library; see docs/devices.md [BLASD_BLAS]\n"
    "  --audit                log every ended job [BLASD_AUDIT=1]\n"
    "  --price PRICES         log the cost of ended jobs [BLASD_PRICE]\n"
    "  --acl                  print the rules of a Redis user for workers, and exit;\n"
    "                         see docs/deploying.md\n";
static const char notes[] =
    "All processes of a queue must use the same blob store (redis).\n"
    "Exit status: 0 ended by a signal, 1 start failed, 2 invalid options, 3 device failure,\n"
    "4 a computation did not stop.\n";

static bool stopping(void *arg) {
    (void)arg;
    return told_to_end();
}

static void ready(void *arg) {
    if (child_tell_ready()) return;
    printf("ready %s\n", (const char *)arg);
    fflush(stdout);
}

/* Nothing is tidied up: that would wait for what hangs. */
static void hung(void *arg) {
    (void)arg;
    _exit(BLASD_EXIT_HUNG);
}

static void default_name(const char *device, char *name, size_t size) {
    char host[65] = "host";
    size_t len;
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "host");
    len = (size_t)snprintf(name, size, "%s-%.15s-%d", host, device, (int)getpid());
    for (size_t i = 0; i < len && i < size; i++)
        if (name[i] == ':') name[i] = '.';
}

struct settings {
    struct common_options common;
    const char *device, *name, *measured, *blas;
    bool acl, audit;
};

static int take_option(void *arg, int option, char *value) {
    struct settings *settings = arg;
    switch (option) {
    case 'd': settings->device = value; return 0;
    case 'n': settings->name = value; return 0;
    case 'm': settings->measured = value; return 0;
    case 'a': settings->acl = true; return 0;
    case 'l': settings->audit = true; return 0;
    default: settings->blas = value; return 0;
    }
}

static int parse(struct settings *settings, int argc, char **argv) {
    static const struct option options[] = {COMMON_OPTIONS,
                                            {"device", required_argument, NULL, 'd'},
                                            {"name", required_argument, NULL, 'n'},
                                            {"measured", required_argument, NULL, 'm'},
                                            {"blas", required_argument, NULL, 'b'},
                                            {"acl", no_argument, NULL, 'a'},
                                            {"audit", no_argument, NULL, 'l'},
                                            PRICE_OPTION,
                                            {NULL, 0, NULL, 0}};
    static const struct command_line line = {"worker",    usage, notes, options,
                                             take_option, false, true};
    int status = command_line_read(&line, &settings->common, settings, argc, argv);
    return status != 0 || settings->acl ? status : common_need_redis("worker", &settings->common);
}

static bool measures(const struct settings *settings) {
    return settings->measured == NULL || strcmp(settings->measured, "none") != 0;
}

/* Before the device is looked for: its libraries start threads, which then are held, too. */
static void give_up_files(const struct settings *settings) {
    const struct common_options *common = &settings->common;
    const struct confine_files files = {
        .read = {settings->blas},
        .write = {common_blob_dir(common), measures(settings) ? settings->measured : NULL},
        .network = common_needs_network(common),
        .card = strncmp(settings->device, "cpu:", 4) != 0};
    if (!common->no_confine) confine_files(&files);
}

static int run(struct settings *settings) {
    struct blasd_worker_options options = {.queue = common_queue(&settings->common),
                                           .audit = settings->audit,
                                           .prices = settings->common.prices,
                                           .stopping = stopping,
                                           .version = BLASD_VERSION,
                                           .alive = child_tell_alive,
                                           .hung = hung,
                                           .ready = ready};
    struct blasd_err err = {0};
    char name[128];
    int code;
    if (measures(settings)) options.kept_in = settings->measured;
    default_name(settings->device, name, sizeof name);
    options.name = settings->name != NULL ? settings->name : name;
    options.arg = (void *)(size_t)options.name;
    note_end_signals();
    code = telemetry_open(&settings->common.telemetry, options.queue.limits->otlp_spans,
                          "blasd worker", options.name, &options.otlp, &err);
    if (code == 0) code = common_store_open(&settings->common, &options.queue.store, &err);
    if (code == 0) blasd_queue_take_lease(&options.queue, &settings->common.limits);
    give_up_files(settings);
    if (code == 0)
        code = blasd_backend_find(settings->device, &options.backend, &options.ordinal, &err);
    if (code == 0) blasd_store_recycle(options.queue.store, options.queue.limits->pool_bytes);
    if (code == 0 && !settings->common.no_confine) confine_calls();
    if (code == 0) code = blasd_otlp_start(options.otlp, &err);
    if (code == 0) code = blasd_worker_run(&options, &err);
    blasd_otlp_stop(options.otlp);
    blasd_store_free(options.queue.store);
    if (code == 0) return BLASD_EXIT_OK;
    blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
    return code == -(int)BLASD_E_device_error ? BLASD_EXIT_DEVICE : BLASD_EXIT_FAILED;
}

/* Where memory runs out it is better that a worker dies than its front end or Redis: its jobs go to
 * another one. */
static void set_oom_score(void) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (write(fd, "500", 3) != 3) blasd_log(BLASD_LOG_DEBUG, "cannot set oom_score_adj");
    close(fd);
}

/* What multiplies on the CPU; a card brings its own. */
static int start_blas(const struct settings *settings, char **argv) {
    struct blas_start start = {.path = settings->blas, .measure = measures(settings)};
    if (strncmp(settings->device, "cpu:", 4) != 0) return 0;
    if (start.measure) start.kept_in = settings->measured;
    return blas_start(&start, argv);
}

static int print_acl(const char *queue) {
    char text[BLASD_QUEUE_ACL];
    blasd_queue_worker_acl(queue, text, sizeof text);
    puts(text);
    return BLASD_EXIT_OK;
}

int blasd_cmd_worker(int argc, char **argv) {
    struct settings settings = {
        .device = "cpu:0", .blas = getenv(BLASD_BLAS_PATH), .audit = option_set("BLASD_AUDIT")};
    int status = parse(&settings, argc, argv);
    if (status != 0) return status < 0 ? BLASD_EXIT_OK : status;
    if (settings.acl) return print_acl(settings.common.queue);
    prctl(PR_SET_NAME, "blasd worker");
    common_log(&settings.common, "blasd worker");
    set_oom_score();
    status = start_blas(&settings, argv);
    return status != 0 ? status : run(&settings);
}
