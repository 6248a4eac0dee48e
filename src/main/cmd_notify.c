/* `blasd notify`: delivers the webhooks of jobs that have ended. Read next:
 * webhook_lanes.h, webhook_send.h, ../queue/webhooks.h. */
#include "base/clock.h"
#include "main/child.h"
#include "main/commands.h"
#include "main/confine.h"
#include "main/options.h"
#include "main/signal_pipe.h"
#include "main/webhook_lanes.h"
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
#define READ_MOST 1000 /* entries at one time */
#define REQUESTS (WEBHOOK_LANES * WEBHOOK_EACH)

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
    struct webhook_lanes lanes;
    struct webhook_sender *sender;
    struct blasd_signer *signer;
    int64_t life_s;           /* after its job's end a webhook is given up */
    int64_t look_ns, care_ns; /* when each is due */
    bool unavailable;         /* Redis is, and that was said */
};

/* Says once that Redis is unavailable, and once that it is there. */
static void note_redis(struct work *work, int code, const struct blasd_err *err) {
    bool unavailable = code < 0;
    if (unavailable) child_tell_alive(NULL); /* it may have been waited for, for seconds */
    if (unavailable && !work->unavailable)
        blasd_log(BLASD_LOG_WARN, "%s; what is to be sent waits", err->detail);
    if (!unavailable && work->unavailable) blasd_log(BLASD_LOG_INFO, "sending goes on");
    work->unavailable = unavailable;
}

static void forget(void *arg) {
    struct work *work = arg;
    webhook_lanes_forget(&work->lanes);
}

static void add(void *arg, const struct blasd_webhook *webhook) {
    struct work *work = arg;
    if (webhook_lanes_add(&work->lanes, webhook) != 0)
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
static void over(void *arg, void *of, enum blasd_webhook_outcome outcome, int asked_s) {
    struct work *work = arg;
    struct webhook_hook *hook = of;
    int64_t now_us = blasd_webhooks_now_us(work->queue);
    struct blasd_err err = {0};
    if (outcome == BLASD_WEBHOOK_FAILED && (now_us - hook->ended_us) / 1000000 >= work->life_s)
        outcome = BLASD_WEBHOOK_GIVEN_UP;
    if (outcome == BLASD_WEBHOOK_GIVEN_UP)
        blasd_log(BLASD_LOG_WARN, "a webhook for %s was given up", webhook_lane_name(hook->lane));
    if (!work->unavailable)
        note_redis(work, blasd_webhooks_done(work->queue, hook->entry, outcome, &err), &err);
    webhook_lanes_over(&work->lanes, hook, work->unavailable || outcome == BLASD_WEBHOOK_FAILED,
                       asked_s, now_us);
}

/* Begins what is due. */
static void begin(struct work *work) {
    struct webhook_hook *hook;
    struct blasd_webhook webhook;
    struct blasd_err err = {0};
    while (!work->unavailable && work->lanes.running_count < REQUESTS &&
           (hook = webhook_lanes_next(&work->lanes, blasd_webhooks_now_us(work->queue))) != NULL) {
        int code = blasd_webhooks_get(work->queue, hook->entry, &webhook, &err);
        note_redis(work, code, &err);
        if (code > 0)
            webhook_sender_begin(work->sender, &webhook, hook);
        else /* it is gone, or Redis is */
            over(work, hook, code == 0 ? BLASD_WEBHOOK_GIVEN_UP : BLASD_WEBHOOK_FAILED, 0);
        blasd_webhook_release(&webhook);
    }
}

static void care(struct work *work, int64_t now) {
    struct blasd_err err = {0};
    if (now < work->care_ns) return;
    work->care_ns = now + CARE_NS;
    child_tell_alive(NULL);
    if (blasd_signer_refresh(work->signer, &err) != 0)
        blasd_log(BLASD_LOG_WARN, "the webhooks' secrets stay as they were: %s", err.detail);
}

/* Told to end, it ends once the webhooks on their way have been answered. */
static void go_on(struct work *work) {
    while (!told_to_end() || work->lanes.running_count > 0) {
        int64_t now = blasd_clock_ns();
        care(work, now);
        look(work, now);
        if (!told_to_end()) begin(work);
        webhook_sender_turn(work->sender, TURN_MS);
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
    struct webhook_options options = {
        .outgoing = outgoing, .prices = settings->common.prices, .over = over, .arg = work};
    int code = blasd_signer_open(settings->secrets, &work->signer, err);
    if (code == 0) code = blasd_webhooks_open(queue, &work->queue, err);
    if (code != 0) return code;
    options.signer = work->signer;
    webhook_lanes_init(&work->lanes);
    work->life_s = (int64_t)settings->common.limits.webhook_s;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    give_up_rights(settings);
    work->sender = webhook_sender_new(&options, REQUESTS);
    return work->sender != NULL ? 0 : blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
}

static void close_work(struct work *work) {
    webhook_sender_free(work->sender);
    if (work->sender != NULL) webhook_lanes_release(&work->lanes);
    blasd_webhooks_free(work->queue);
    blasd_signer_free(work->signer);
}

static int run(const struct settings *settings) {
    struct blasd_queue_options queue = common_queue(&settings->common);
    struct blasd_outgoing *outgoing = NULL;
    struct blasd_err err = {0};
    struct work *work = calloc(1, sizeof *work);
    int code = work == NULL ? blasd_fail(&err, BLASD_E_out_of_memory, "", "no memory") : 0;
    if (code == 0) code = common_outgoing(&settings->common, &outgoing, &err);
    if (code == 0) code = open_work(settings, &queue, outgoing, work, &err);
    if (code == 0) {
        if (!child_tell_ready()) {
            puts("ready");
            fflush(stdout);
        }
        go_on(work);
    }
    if (work != NULL) close_work(work);
    free(work);
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
