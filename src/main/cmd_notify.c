/* `blasd notify`: delivers the webhooks of jobs that have ended. Read next: lane_rounds.h,
 * ../queue/webhooks.h. */
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
    "Delivers the webhooks of jobs that have ended (\"notify\" in a job), signed as Standard "
    "Webhooks\n"
    "say, until SIGTERM. Several may run. `blasd up --webhook-secrets` starts one; see\n"
    "docs/webhooks.md.\n"
    "  --secrets FILE         lines [TENANT] whsec_BASE64; read again when it changes\n"
    "                         [BLASD_WEBHOOK_SECRETS]\n"
    "  --price PRICES         documents have a cost, as those of the front end do [BLASD_PRICE]\n";
static const char notes[] =
    "What is not delivered is tried again, later and later, for the limit webhook_s.\n"
    "Exit status: 0 ended when told, 1 could not start, 2 wrong options.\n";

#define LOOK_NS (200 * BLASD_MS)
#define CARE_NS (1000 * BLASD_MS) /* between signs of life, and looks at the file */
#define TURN_MS 50
#define LEASE_S (2 * WEBHOOK_MOST_S)

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

struct work;

/* Webhooks. */
struct channel {
    struct work *work;            /* borrowed: it is a part of it */
    struct blasd_webhooks *queue; /* owned */
    struct lane_sender sender;
    uint64_t life_s;
    int64_t look_ns;  /* when it is to be looked at next */
    bool unavailable; /* Redis is, and that was said */
};

/* What it works with. */
struct work {
    struct channel hooks;
    struct lane_rounds *rounds;
    struct blasd_signer *signer;
    struct webhook_options signing;
    int64_t care_ns; /* when it is due */
};

/* Says once that Redis is unavailable, and once that it is there. */
static void note_redis(struct channel *channel, int code, const struct blasd_err *err) {
    bool unavailable = code < 0;
    if (unavailable) child_tell_alive(NULL); /* it may have been waited for, for seconds */
    if (unavailable && !channel->unavailable)
        blasd_log(BLASD_LOG_WARN, "%s; what is to be sent waits", err->detail);
    if (!unavailable && channel->unavailable) blasd_log(BLASD_LOG_INFO, "sending goes on");
    channel->unavailable = unavailable;
}

static int tell_round(void *arg, const char *lane, const struct blasd_webhook_outcome *outcomes,
                      int count) {
    struct channel *channel = arg;
    struct blasd_err err = {0};
    int given_up =
        blasd_webhooks_done(channel->queue, lane, channel->life_s, outcomes, count, &err);
    bool unavailable = given_up == -(int)BLASD_E_queue_unavailable;
    note_redis(channel, unavailable ? given_up : 0, &err);
    if (given_up > 0)
        blasd_log(BLASD_LOG_WARN, "%d %ss for %s were given up", given_up, channel->sender.noun,
                  lane);
    if (unavailable) return given_up;
    if (given_up < 0) /* telling it again would be no use: the lane is given away once more */
        blasd_log(BLASD_LOG_ERROR, "what became of %ss was not taken: %s", channel->sender.noun,
                  err.detail);
    return 0;
}

static void look(struct channel *channel, int64_t now) {
    struct lane_rounds *rounds = channel->work->rounds;
    struct lane_rounds_order order = {rounds, &channel->sender};
    struct blasd_err err = {0};
    int room, taken;
    if (told_to_end() || now < channel->look_ns) return;
    if ((room = lane_rounds_room(rounds)) == 0) return;
    taken = blasd_webhooks_take(channel->queue, room, LANE_EACH, LEASE_S, lane_rounds_begin, &order,
                                &err);
    note_redis(channel, taken, &err);
    if (taken <= 0) channel->look_ns = now + (taken < 0 ? CARE_NS : LOOK_NS);
}

static void care(struct work *work, int64_t now) {
    struct blasd_err err = {0};
    if (now < work->care_ns) return;
    work->care_ns = now + CARE_NS;
    child_tell_alive(NULL);
    if (blasd_signer_refresh(work->signer, &err) != 0)
        blasd_log(BLASD_LOG_WARN, "the webhooks' secrets stay as they were: %s", err.detail);
}

static bool has_any(const struct work *work) {
    return lane_rounds_room(work->rounds) < LANE_ROUNDS;
}

/* Told to end, it ends once the webhooks on their way have been answered. */
static void go_on(struct work *work) {
    while (!told_to_end() || has_any(work)) {
        int64_t now = blasd_clock_ns();
        int code;
        care(work, now);
        look(&work->hooks, now);
        lane_rounds_turn(work->rounds, TURN_MS);
        code = lane_rounds_over(work->rounds, &work->hooks.sender, tell_round, &work->hooks);
        if (code != 0 && told_to_end()) return; /* whoever comes next delivers these again */
        if (code != 0) usleep(TURN_MS * 1000);
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

static int open_work(const struct settings *settings, struct blasd_queue_options *queue,
                     struct work *work, struct blasd_err *err) {
    int code = blasd_signer_open(settings->secrets, &work->signer, err);
    work->signing =
        (struct webhook_options){.signer = work->signer, .prices = settings->common.prices};
    work->hooks.work = work;
    work->hooks.life_s = settings->common.limits.webhook_s;
    work->hooks.sender = webhook_sender(&work->signing);
    if (code == 0) code = blasd_webhooks_open(queue, &work->hooks.queue, err);
    return code;
}

static void close_work(struct work *work) {
    lane_rounds_free(work->rounds);
    blasd_webhooks_free(work->hooks.queue);
    blasd_signer_free(work->signer);
}

static int run(const struct settings *settings) {
    struct blasd_queue_options queue = common_queue(&settings->common);
    struct work work = {0};
    struct blasd_outgoing *outgoing = NULL;
    struct blasd_err err = {0};
    int code = common_outgoing(&settings->common, &outgoing, &err);
    if (code == 0) code = open_work(settings, &queue, &work, &err);
    if (code == 0) {
        curl_global_init(CURL_GLOBAL_DEFAULT);
        give_up_rights(settings);
        work.rounds = lane_rounds_new(outgoing);
        if (work.rounds == NULL) code = blasd_fail(&err, BLASD_E_out_of_memory, "", "no memory");
    }
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
