/* `blasd notify`: delivers the webhooks of jobs that have ended. Read next: webhook_queue.h,
 * webhook_send.h, ../queue/webhooks.h. */
#include "base/clock.h"
#include "main/child.h"
#include "main/commands.h"
#include "main/confine.h"
#include "main/options.h"
#include "main/signal_pipe.h"
#include "main/webhook_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char usage[] =
    "usage: blasd notify --redis URL --outgoing-hosts LIST --secrets FILE [options]\n"
    "\n"
    "Delivers webhooks of ended jobs (\"notify\" in a job), signed as Standard Webhooks, until "
    "SIGTERM.\n"
    "One of several delivers; another takes over if it stops. `blasd up --webhook-secrets` starts "
    "one;\n"
    "see docs/webhooks.md.\n"
    "  --secrets FILE         sign with lines [TENANT] whsec_BASE64, read again on\n"
    "                         change [BLASD_WEBHOOK_SECRETS]\n"
    "  --price PRICES         add the cost to documents [BLASD_PRICE]\n";
static const char notes[] =
    "Failed deliveries are retried with growing pauses for webhook_s seconds.\n"
    "Exit status: 0 ended by a signal, 1 start failed, 2 invalid options.\n";

#define LOOK_NS (200 * BLASD_MS)
#define CARE_NS (1000 * BLASD_MS) /* between signs of life, and looks at the file */
#define TURN_MS 50
#define READ_MOST 1000  /* entries at one time */
#define CONNECTIONS 64L /* that are kept open */

struct settings {
    struct common_options common;
    const char *secrets;
};

static int take_option(void *arg, int option, char *value) {
    struct settings *settings = arg;
    if (option == 's') settings->secrets = value;
    return 0;
}

static int parse(struct settings *settings, int argc, char **argv) {
    static const struct option options[] = {COMMON_OPTIONS,
                                            {"secrets", required_argument, NULL, 's'},
                                            PRICE_OPTION,
                                            {NULL, 0, NULL, 0}};
    static const struct command_line line = {"notify",    usage, notes, options,
                                             take_option, true,  true};
    int status = command_line_read(&line, &settings->common, settings, argc, argv);
    if (status != 0) return status;
    if (settings->secrets != NULL && settings->common.outgoing_hosts != NULL) return 0;
    fputs("blasd notify: --secrets names the file that webhooks are signed with, and "
          "--outgoing-hosts says where they may go\n",
          stderr);
    return option_wrong("notify");
}

/* What it works with. */
struct work {
    struct blasd_webhooks *queue; /* owned, as all here */
    struct webhook_queues queues;
    struct webhook_sender sender;
    int64_t life_s;           /* after its job's end a webhook is given up */
    int64_t look_ns, care_ns; /* when each is due */
    bool unavailable;         /* Redis is, and that was said */
};

/* Says once that Redis is unavailable, and once that it is there. */
static void note_redis(struct work *work, int code, const struct blasd_err *err) {
    bool unavailable = code < 0;
    if (unavailable) child_tell_alive(NULL); /* it may have been waited for, for seconds */
    if (unavailable && !work->unavailable)
        blasd_log(BLASD_LOG_WARN, "%s; pending requests wait", err->detail);
    if (!unavailable && work->unavailable) blasd_log(BLASD_LOG_INFO, "sending goes on");
    work->unavailable = unavailable;
}

static void forget(void *arg) {
    struct work *work = arg;
    webhook_queues_forget(&work->queues);
}

static void add(void *arg, const struct blasd_webhook *webhook) {
    struct work *work = arg;
    if (webhook_queues_add(&work->queues, webhook) != 0)
        blasd_log(BLASD_LOG_ERROR, "no memory for a webhook: it waits for the next start");
}

/* Reads what has come. */
static void look(struct work *work, int64_t now) {
    const struct blasd_webhook_index index = {forget, add, work};
    struct blasd_err err = {0};
    int taken;
    if (now < work->look_ns) return;
    taken = blasd_webhooks_take(work->queue, READ_MOST, &index, &err);
    note_redis(work, taken, &err);
    if (taken < READ_MOST) work->look_ns = now + LOOK_NS;
}

/* Tells what became of a webhook. What Redis did not hear of counts as failed: it is sent again. */
static void over(struct work *work, struct webhook_hook *hook, enum blasd_webhook_outcome outcome,
                 int asked_s) {
    int64_t now_us = blasd_webhooks_now_us(work->queue);
    struct blasd_err err = {0};
    if (outcome == BLASD_WEBHOOK_FAILED && (now_us - hook->ended_us) / 1000000 >= work->life_s)
        outcome = BLASD_WEBHOOK_GIVEN_UP;
    if (outcome == BLASD_WEBHOOK_GIVEN_UP)
        blasd_log(BLASD_LOG_WARN, "a webhook for %s was given up", webhook_queue_name(hook->queue));
    if (!work->unavailable)
        note_redis(work, blasd_webhooks_done(work->queue, hook->entry, outcome, &err), &err);
    webhook_queues_over(&work->queues, hook, work->unavailable || outcome == BLASD_WEBHOOK_FAILED,
                        asked_s, now_us);
}

/* Begins the request of a hook that is under way, or says that it is over. */
static void begin(struct work *work, struct webhook_hook *hook) {
    struct blasd_webhook webhook;
    struct blasd_err err = {0};
    int code = blasd_webhooks_get(work->queue, hook->entry, &webhook, &err);
    note_redis(work, code, &err);
    if (code <= 0) /* it is gone, or Redis is */
        over(work, hook, code == 0 ? BLASD_WEBHOOK_GIVEN_UP : BLASD_WEBHOOK_FAILED, 0);
    else if (webhook_send(&work->sender, &webhook, hook, &err) != 0) {
        blasd_log(BLASD_LOG_WARN, "the webhook of job %s cannot be sent: %s", webhook.id,
                  err.detail);
        over(work, hook, BLASD_WEBHOOK_FAILED, 0);
    }
    blasd_webhook_release(&webhook);
}

/* Begins what is due, and takes what has ended, waiting up to TURN_MS for it. */
static void turn(struct work *work) {
    enum blasd_webhook_outcome outcome;
    struct webhook_hook *hook;
    int left, asked_s;
    while (!told_to_end() && !work->unavailable &&
           (hook = webhook_queues_next(&work->queues, blasd_webhooks_now_us(work->queue))) != NULL)
        begin(work, hook);
    curl_multi_poll(work->sender.multi, NULL, 0, TURN_MS, NULL);
    curl_multi_perform(work->sender.multi, &left);
    while ((hook = webhook_sent(&work->sender, &outcome, &asked_s)) != NULL)
        over(work, hook, outcome, asked_s);
}

static void care(struct work *work, int64_t now) {
    struct blasd_err err = {0};
    if (now < work->care_ns) return;
    work->care_ns = now + CARE_NS;
    child_tell_alive(NULL);
    if (blasd_signer_refresh(work->sender.signer, &err) != 0)
        blasd_log(BLASD_LOG_WARN, "the webhooks' secrets stay as they were: %s", err.detail);
}

/* Told to end, it ends once the webhooks on their way have been answered. */
static void go_on(struct work *work) {
    while (!told_to_end() || work->queues.running_count > 0) {
        int64_t now = blasd_clock_ns();
        care(work, now);
        look(work, now);
        turn(work);
    }
}

static void give_up_rights(const struct settings *settings) {
    const struct common_options *common = &settings->common;
    const struct confine_files files = {.read = {settings->secrets, common->outgoing_ca},
                                        .network = true};
    if (common->no_confine) return;
    confine_files(&files);
    confine_calls();
}

static int open_work(const struct settings *settings, const struct blasd_queue_options *queue,
                     const struct blasd_outgoing *outgoing, struct work *work,
                     struct blasd_err *err) {
    int code;
    work->sender.outgoing = outgoing;
    work->sender.prices = settings->common.prices;
    code = blasd_signer_open(settings->secrets, &work->sender.signer, err);
    if (code == 0) code = blasd_webhooks_open(queue, &work->queue, err);
    if (code != 0) return code;
    work->life_s = (int64_t)settings->common.limits.webhook_s;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    give_up_rights(settings);
    work->sender.multi = curl_multi_init();
    if (work->sender.multi == NULL) return blasd_no_memory(err);
    curl_multi_setopt(work->sender.multi, CURLMOPT_MAXCONNECTS, CONNECTIONS);
    return 0;
}

static void close_work(struct work *work) {
    BLASD_LIST_EACH(node, &work->queues.running)
    webhook_cut(&work->sender, blasd_container_of(node, struct webhook_hook, node));
    webhook_queues_release(&work->queues);
    if (work->sender.multi != NULL) curl_multi_cleanup(work->sender.multi);
    blasd_webhooks_free(work->queue);
    blasd_signer_free(work->sender.signer);
}

static int run(const struct settings *settings) {
    struct blasd_queue_options queue = common_queue(&settings->common);
    struct blasd_outgoing *outgoing = NULL;
    struct blasd_err err = {0};
    struct work work = {.queue = NULL};
    int code = common_outgoing(&settings->common, &outgoing, &err);
    webhook_queues_init(&work.queues);
    if (code == 0) code = open_work(settings, &queue, outgoing, &work, &err);
    if (code == 0) {
        if (!child_tell_ready()) {
            puts("ready");
            fflush(stdout);
        }
        go_on(&work);
    }
    close_work(&work);
    blasd_outgoing_free(outgoing);
    if (code == 0) return BLASD_EXIT_OK;
    blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
    return BLASD_EXIT_FAILED;
}

int blasd_cmd_notify(int argc, char **argv) {
    struct settings settings = {.secrets = webhook_secrets_given()};
    int status = parse(&settings, argc, argv);
    if (status != 0) return status < 0 ? BLASD_EXIT_OK : status;
    prctl(PR_SET_NAME, "blasd notify");
    common_log(&settings.common, "blasd notify");
    note_end_signals();
    return run(&settings);
}
