/* `blasd up`: the whole service on one machine. This file reads the command line and lays out what
 * is to run; supervisor.c runs it. */
#include "auth/signer.h"
#include "base/log.h"
#include "main/access.h"
#include "main/ask_self.h"
#include "main/blas_start.h"
#include "main/blob_dir.h"
#include "main/commands.h"
#include "main/data_dir.h"
#include "main/supervisor.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "usage: blasd up [options]\n"
    "\n"
    "Starts a private redis-server (unless --redis is given), the HTTP front end and a worker per\n"
    "device, and restarts them if they die. Prints `ready http://HOST:PORT` when jobs are "
    "accepted.\n"
    "SIGTERM or SIGINT shuts all of it down in order; a second one kills it.\n"
    "  --listen HOST:PORT     listen here (127.0.0.1:8080); port 0 selects a free one;\n"
    "                         unix:PATH is a socket, without keys for this user only\n"
    "  --data DIR             store data here (/var/lib/blasd for root, else\n"
    "                         $XDG_STATE_HOME/blasd or ~/.local/state/blasd)\n"
    "  --workers auto|N       start one worker per device (auto), or N on the CPU\n"
    "  --temporary            use a new directory in $TMPDIR, deleted at the end; also\n"
    "                         end when standard input, if it is a pipe, closes\n"
    "  --durable              sync every write; otherwise a power cut can lose a second\n"
    "  --loops N              run N event loops in the front end, each a thread\n"
    "  --blas PATH            compute with this library; see docs/devices.md "
    "[BLASD_BLAS]\n" ACCESS_USAGE
    "  --pin                  bind front end and CPU workers to separate processors\n"
    "  --price TEXT           set prices, for a cost in job documents [BLASD_PRICE], as\n"
    "                         cpu=0.05/h,cuda=2.5/h,kwh=0.30,currency=EUR\n"
    "  --webhook-secrets FILE\n"
    "                         deliver webhooks, signed with these secrets; needs\n"
    "                         --outgoing-hosts [BLASD_WEBHOOK_SECRETS]\n"
    "  --low-latency          keep idle cores polling; see docs/deploying.md\n";
static const char notes[] =
    "Large tensors are stored in dir:/dev/shm/blasd-<instance> by default.\n"
    "With --redis, workers use BLASD_WORKER_REDIS if it is set, for a user with fewer rights.\n"
    "Exit status: 0 ended by a signal, 1 start failed, 2 invalid options.\n";

#define DEVICE_NAME 16
#define DEVICE_TEXT 320
#define DEVICES_UNUSABLE 16

/* Those that cannot be used, each as "cuda:0: why". */
struct unusable_devices {
    char texts[DEVICES_UNUSABLE][DEVICE_TEXT];
    int count;
};

struct settings {
    struct common_options common;
    struct access_options access;
    const char *listen, *data, *secrets;
    int workers, loops; /* 0: chosen here */
    bool durable, temporary, pin, low_latency;
    struct unusable_devices unusable;
};

static int take_option(void *arg, int option, char *value) {
    struct settings *settings = arg;
    int taken = access_take(&settings->access, option, value);
    if (taken != 1) return taken;
    switch (option) {
    case 'l': settings->listen = value; return 0;
    case 'd': settings->data = value; return 0;
    case 's': settings->durable = true; return 0;
    case 'T': settings->temporary = true; return 0;
    case 'p': settings->pin = true; return 0;
    case 'L': settings->low_latency = true; return 0;
    case 'b': return setenv(BLASD_BLAS_PATH, value, 1);
    case 'W': settings->secrets = value; return 0;
    case 'n':
        settings->loops = (int)option_number("loops", value, 1, LISTEN_MOST);
        return settings->loops < 0 ? -1 : 0;
    default:
        settings->workers =
            strcmp(value, "auto") == 0 ? 0 : (int)option_number("workers", value, 1, WORKERS_MOST);
        return settings->workers < 0 ? -1 : 0;
    }
}

/* 0, an exit status, or -1 after help was printed. */
static int parse(struct settings *settings, int argc, char **argv) {
    static const struct option options[] = {COMMON_OPTIONS,
                                            ACCESS_OPTIONS,
                                            {"listen", required_argument, NULL, 'l'},
                                            {"data", required_argument, NULL, 'd'},
                                            {"workers", required_argument, NULL, 'w'},
                                            {"durable", no_argument, NULL, 's'},
                                            {"temporary", no_argument, NULL, 'T'},
                                            {"loops", required_argument, NULL, 'n'},
                                            PRICE_OPTION,
                                            {"pin", no_argument, NULL, 'p'},
                                            {"low-latency", no_argument, NULL, 'L'},
                                            {"webhook-secrets", required_argument, NULL, 'W'},
                                            {"blas", required_argument, NULL, 'b'},
                                            {NULL, 0, NULL, 0}};
    static const struct command_line line = {"up", usage, notes, options, take_option, false, true};
    const struct common_options *common = &settings->common;
    int status = command_line_read(&line, &settings->common, settings, argc, argv);
    if (status != 0) return status;
    if (settings->temporary && settings->data != NULL) {
        fputs("blasd up: --temporary makes a directory of its own; leave out --data\n", stderr);
        return option_wrong("up");
    }
    if (settings->access.share && common->blobs != NULL && strncmp(common->blobs, "dir:", 4) != 0) {
        fputs("blasd up: --share needs a blob store that is a directory: --blobs dir:/path\n",
              stderr);
        return option_wrong("up");
    }
    if (settings->secrets != NULL && common->outgoing_hosts == NULL) {
        fputs("blasd up: --webhook-secrets needs --outgoing-hosts, where webhooks may go\n",
              stderr);
        return option_wrong("up");
    }
    if (settings->durable && common->redis != NULL) {
        fputs("blasd up: --durable is for the private Redis; set appendfsync of the one given\n",
              stderr);
        return option_wrong("up");
    }
    return 0;
}

/* Of the processors in `all`, `count` from number `first` on: part `i` of `parts`, every
 * `parts`-th, or one that others have too where there are fewer. */
static void take_cpus(const cpu_set_t *all, int first, int count, int i, int parts,
                      cpu_set_t *ret) {
    int at = -first;
    for (int cpu = 0; cpu < CPU_SETSIZE && at < count; cpu++) {
        if (!CPU_ISSET(cpu, all)) continue;
        if (at >= 0 && (parts <= count ? at % parts == i : at == i % count)) CPU_SET(cpu, ret);
        at++;
    }
}

static bool is_on_cpu(const struct worker_plan *plan) {
    return strncmp(plan->device, "cpu", 3) == 0;
}

/* With --pin the front end has a processor for each of its loops, and the workers of the CPU share
 * the others; without, only several such workers have each a part of all of them. */
static void assign_cpus(const struct settings *settings, int loops, struct supervisor *up) {
    cpu_set_t all;
    int cpus, front = 0, sharing = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    cpus = CPU_COUNT(&all);
    if (settings->pin) front = loops < cpus - 1 ? loops : cpus - 1;
    take_cpus(&all, 0, front, 0, 1, &up->api_cpus);
    for (int i = 0; i < up->worker_count; i++) sharing += is_on_cpu(&up->workers[i]);
    if (front == 0 && sharing < 2) return;
    for (int i = 0, at = 0; i < up->worker_count; i++)
        if (is_on_cpu(&up->workers[i]))
            take_cpus(&all, front, cpus - front, at++, sharing, &up->workers[i].cpus);
}

/* The command line of the front end; false where memory has run out. */
static bool plan_api(const struct settings *settings, const struct listeners *listeners,
                     char fds[LISTEN_MOST * 8], struct text_list *words) {
    size_t len = 0;
    int failed = text_list_add(words, "blasd") | text_list_add(words, "api");
    for (int i = 0; i < listeners->count; i++)
        len += (size_t)snprintf(fds + len, LISTEN_MOST * 8 - len, "%s%d", i == 0 ? "" : ",",
                                listeners->fds[i]);
    failed |= text_list_add(words, "--listen-fds") | text_list_add(words, fds);
    if (settings->secrets != NULL) failed |= text_list_add(words, "--webhooks");
    failed |= access_words(&settings->access, words);
    for (int i = 0; i < settings->unusable.count; i++)
        failed |=
            text_list_add(words, "--unusable") | text_list_add(words, settings->unusable.texts[i]);
    return failed == 0;
}

#define TEXT_MOST 8192
#define TIMEOUT_MS 60000 /* drivers of many GPUs take their time to wake up */

static int split_devices(char *text, char devices[][DEVICE_NAME], int most,
                         struct unusable_devices *unusable) {
    int count = 0;
    for (char *line = text, *end; count < most && (end = strchr(line, '\n')) != NULL;
         line = end + 1) {
        *end = '\0';
        if (strncmp(line, "# ", 2) == 0) {
            blasd_log(BLASD_LOG_WARN, "no worker for %s", line + 2);
            if (unusable->count < DEVICES_UNUSABLE)
                snprintf(unusable->texts[unusable->count++], DEVICE_TEXT, "%s", line + 2);
        } else if (end > line && end - line < DEVICE_NAME)
            memcpy(devices[count++], line, (size_t)(end - line) + 1);
    }
    return count;
}

/* The devices of this machine, asked of a process of its own: what a GPU's runtime leaves behind in
 * a process does not survive being forked, and the supervisor forks. Fills in names such as
 * "cpu:0"; returns how many, at least the CPU. Logs what cannot be used. */
static int list_devices(char devices[][DEVICE_NAME], int most, struct unusable_devices *unusable) {
    static char program[] = "blasd", command[] = "devices", option[] = "--ids";
    char *const argv[] = {program, command, option, NULL};
    char text[TEXT_MOST];
    int count;
    ask_self(argv, NULL, TIMEOUT_MS, text, sizeof text);
    count = split_devices(text, devices, most, unusable);
    if (count > 0) return count;
    blasd_log(BLASD_LOG_WARN, "cannot list the devices; using cpu:0 alone");
    snprintf(devices[0], DEVICE_NAME, "cpu:0");
    return 1;
}

static void plan_worker(struct worker_plan *plan, const char *device, const char *host,
                        const struct data_dir *dir, int number) {
    static char program[] = "blasd", command[] = "worker", option_device[] = "--device",
                option_name[] = "--name", option_measured[] = "--measured";
    char *const argv[] = {program,    command,         option_device,  plan->device, option_name,
                          plan->name, option_measured, plan->measured, NULL};
    char order[16] = "";
    snprintf(plan->measured, sizeof plan->measured, "%s/measured", dir->path);
    snprintf(plan->device, sizeof plan->device, "%.*s", DEVICE_NAME - 1, device);
    snprintf(plan->label, sizeof plan->label, "blasd worker %s", plan->device);
    /* the same at every start: a worker that takes a dead one's name takes its jobs back at once */
    if (number >= 0) snprintf(order, sizeof order, "-%d", number);
    snprintf(plan->name, sizeof plan->name, "%s-%.8s-%s%s", host, dir->instance, plan->device,
             order);
    for (char *at = plan->name; *at != '\0'; at++)
        if (*at == ':') *at = '.';
    memcpy(plan->argv, argv, sizeof argv);
}

/* New: the caller frees it. NULL where memory has run out or no device was found. */
static struct worker_plan *plan_workers(struct settings *settings, const struct data_dir *dir,
                                        int *count) {
    char devices[WORKERS_MOST][DEVICE_NAME], host[65] = "host";
    int wanted = settings->workers;
    struct worker_plan *plans;
    *count = wanted > 0 ? wanted : list_devices(devices, WORKERS_MOST, &settings->unusable);
    if (*count < 1) return NULL;
    plans = calloc((size_t)*count, sizeof *plans);
    if (plans == NULL) return NULL;
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "host");
    for (int i = 0; i < *count; i++)
        plan_worker(&plans[i], wanted > 0 ? "cpu:0" : devices[i], host, dir, wanted > 0 ? i : -1);
    return plans;
}

/* What `blasd api` and `blasd notify` would say of their files, said at once. */
static int check_files(const struct settings *settings, struct blasd_err *err) {
    struct blasd_outgoing *outgoing = NULL;
    struct blasd_signer *signer = NULL;
    int code = common_outgoing(&settings->common, &outgoing, err);
    if (code == 0 && settings->secrets != NULL)
        code = blasd_signer_open(settings->secrets, &signer, err);
    blasd_outgoing_free(outgoing);
    blasd_signer_free(signer);
    return code;
}

static int run(struct settings *settings, struct data_dir *dir, struct blasd_err *err) {
    struct common_options *common = &settings->common;
    struct private_redis redis;
    struct listeners listeners = {.count = 0};
    struct supervisor up = {.common = common,
                            .dir = dir,
                            .listeners = &listeners,
                            .access = &settings->access,
                            .lifeline = settings->temporary,
                            .delivers = settings->secrets != NULL};
    bool own_redis = common->redis == NULL, own_blobs = common->blobs == NULL;
    struct text_list api_words = {0};
    char blobs[BLOB_SPEC_MAX], fds[LISTEN_MOST * 8];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int loops = settings->loops > 0 ? settings->loops
                : cpus >= 32        ? 8
                : cpus >= 8         ? (int)cpus / 4
                                    : 1;
    int status = BLASD_EXIT_FAILED;
    const struct private_redis_options how = {.queue = common->queue,
                                              .durable = settings->durable,
                                              .reserve = common->limits.disk_reserve_bytes};
    if (check_files(settings, err) != 0) return status;
    if (own_redis && private_redis_init(&redis, dir, &how, err) != 0) return status;
    if (own_redis) common->redis = redis.url;
    blob_dir_choose(dir, blobs);
    blob_dir_remove_stale();
    if (own_blobs) {
        blob_dir_restore(blobs, dir);
        common->blobs = blobs;
    }
    if (common_export(common) != 0 ||
        (settings->access.audit && setenv("BLASD_AUDIT", "1", 1) != 0) ||
        (settings->secrets != NULL && setenv("BLASD_WEBHOOK_SECRETS", settings->secrets, 1) != 0)) {
        blasd_fail(err, BLASD_E_internal_error, "", "no memory for the environment");
        return status;
    }
    if (listeners_open(&listeners, settings->listen, loops, access_closed(&settings->access),
                       err) != 0)
        return status;
    if (access_check(&settings->access, &listeners, err) != 0) goto done;
    if (blasd_store_open(common->blobs, &up.store, err) != 0) goto done;
    if (own_blobs) up.blobs = blobs;
    if (!own_redis) {
        struct blasd_queue_options queue = common_queue(common);
        queue.store = up.store;
        if (common_check_redis(&queue, err) != 0) goto done;
    }
    up.redis = own_redis ? &redis : NULL;
    up.worker_redis = own_redis ? redis.worker_url : getenv("BLASD_WORKER_REDIS");
    if (up.worker_redis == NULL) up.worker_redis = common->redis;
    up.workers = plan_workers(settings, dir, &up.worker_count);
    if (up.workers == NULL || !plan_api(settings, &listeners, fds, &api_words)) {
        blasd_fail(err, BLASD_E_internal_error, "",
                   "found no device, or no memory for the options");
        goto done;
    }
    up.api_argv = (char *const *)(size_t)api_words.texts;
    assign_cpus(settings, loops, &up);
    status = supervisor_run(&up);
    if (own_redis) private_redis_cleanup(&redis);
    if (own_blobs) blob_dir_remove_empty(blobs);
    if (own_blobs && settings->temporary) data_dir_remove_tree(blobs + strlen("dir:"));
done:
    blasd_store_free(up.store);
    listeners_close(&listeners);
    listeners_remove(&listeners);
    free(up.workers);
    text_list_release(&api_words);
    return status;
}

int blasd_cmd_up(int argc, char **argv) {
    struct settings settings = {.listen = "127.0.0.1:8080", .secrets = webhook_secrets_given()};
    struct data_dir dir;
    struct blasd_err err = {0};
    int status;
    access_init(&settings.access);
    status = parse(&settings, argc, argv);
    if (status == 0) {
        common_log(&settings.common, "blasd up");
        umask(077); /* of Redis too */
        status = BLASD_EXIT_FAILED;
        if ((!settings.low_latency || hold_low_latency(BLASD_LATENCY_DEVICE) == 0) &&
            (settings.temporary ? data_dir_open_temporary(&dir, &err)
                                : data_dir_open(&dir, settings.data, &err)) == 0) {
            status = run(&settings, &dir, &err);
            if (settings.temporary) data_dir_remove_tree(dir.path);
            data_dir_close(&dir);
        }
        if (err.code != BLASD_OK) blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
    }
    access_release(&settings.access);
    return status < 0 ? BLASD_EXIT_OK : status;
}
