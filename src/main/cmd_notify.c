/* `blasd notify`: delivers the webhooks of jobs that have ended. Read next: webhook_rounds.h,
 * ../queue/webhooks.h. */
#include "base/clock.h"
#include "main/child.h"
#include "main/commands.h"
#include "main/confine.h"
#include "main/options.h"
#include "main/webhook_rounds.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char usage[] =
    "usage: blasd notify --redis URL --secrets FILE --outgoing-hosts LIST [options]\n"
    "\n"
    "Delivers the webhooks of jobs that have ended (\"notify\" in a job), signed as Standard "
    "Webhooks\n"
    "say, until SIGTERM. Several may run. `blasd up --webhook-secrets` starts one; see "
    "docs/webhooks.md.\n"
    "  --secrets FILE         lines [TENANT] whsec_BASE64; read again when it changes "
    "[BLASD_WEBHOOK_SECRETS]\n"
    "  --price PRICES         documents have a cost, as those of the front end do [BLASD_PRICE]\n";
static const char notes[] =
    "What is not delivered is tried again, later and later, for the limit webhook_s.\n"
    "Exit status: 0 ended when told, 1 could not start, 2 wrong options.\n";

#define LOOK_NS (200 * BLASD_MS)
#define CARE_NS (1000 * BLASD_MS) /* between signs of life, and looks at the file */
#define TURN_MS 50
#define LEASE_S (2 * WEBHOOK_MOST_S)

static volatile sig_atomic_t told_to_end;

static void on_signal(int number) {
    (void)number;
    told_to_end = 1;
}

struct settings {
    struct common_options common;
    const char *secrets;
    struct blasd_prices prices;
    bool has_prices;
};

static int take_option(void *arg, int option, char *value) {
    struct settings *settings = arg;
    if (option == 's') settings->secrets = value;
    return option == 'P' ? setenv(PRICE_VARIABLE, value, 1) : 0;
}

static int parse(struct settings *settings, int argc, char **argv) {
    static const struct option options[] = {COMMON_OPTIONS,
                                            {"secrets", required_argument, NULL, 's'},
                                            {"price", required_argument, NULL, 'P'},
                                            {NULL, 0, NULL, 0}};
    struct command_line line = {.command = "notify",
                                .usage = usage,
                                .notes = notes,
                                .options = options,
                                .common = &settings->common,
                                .needs_redis = true,
                                .take = take_option,
                                .arg = settings};
    int status = command_line_read(&line, argc, argv);
    int given = status == 0 ? prices_read(&settings->prices) : 0;
    if (status != 0) return status;
    if (given < 0) return option_wrong("notify");
    settings->has_prices = given > 0;
    if (settings->secrets != NULL && settings->common.outgoing_hosts != NULL) return 0;
    fputs(
        "blasd notify: --secrets names the file that it signs with, and --outgoing-hosts where it "
        "may go\n",
        stderr);
    return option_wrong("notify");
}

/* What it works with. */
struct work {
    struct blasd_webhooks *queue;
    struct webhook_rounds *rounds;
    struct blasd_signer *signer;
    uint64_t life_s;
    int64_t look_ns, care_ns; /* when each is due */
    bool away;                /* Redis is, and that was said */
};

/* Says once that Redis is away, and once that it is there. */
static void note_redis(struct work *work, int code, const struct blasd_err *err) {
    bool away = code < 0;
    if (away && !work->away) blasd_log(BLASD_LOG_WARN, "%s; webhooks wait", err->detail);
    if (!away && work->away) blasd_log(BLASD_LOG_INFO, "webhooks go on");
    work->away = away;
}

static int tell_round(void *arg, const char *lane, const struct blasd_webhook_outcome *outcomes,
                      int count) {
    struct work *work = arg;
    struct blasd_err err = {0};
    int given_up = blasd_webhooks_done(work->queue, lane, work->life_s, outcomes, count, &err);
    bool away = given_up == -(int)BLASD_E_queue_unavailable;
    note_redis(work, away ? given_up : 0, &err);
    if (given_up > 0) blasd_log(BLASD_LOG_WARN, "%d webhooks for %s were given up", given_up, lane);
    if (away) return given_up;
    if (given_up < 0) /* telling it again would be no use: the lane is given away once more */
        blasd_log(BLASD_LOG_ERROR, "what became of webhooks was not taken: %s", err.detail);
    return 0;
}

static void look(struct work *work, int64_t now) {
    struct blasd_err err = {0};
    int room = webhook_rounds_room(work->rounds), taken;
    if (told_to_end || room == 0 || now < work->look_ns) return;
    taken = blasd_webhooks_take(work->queue, room, WEBHOOK_EACH, LEASE_S, webhook_rounds_begin,
                                work->rounds, &err);
    note_redis(work, taken, &err);
    if (taken <= 0) work->look_ns = now + (taken < 0 ? CARE_NS : LOOK_NS);
}

static void care(struct work *work, int64_t now) {
    struct blasd_err err = {0};
    if (now < work->care_ns) return;
    work->care_ns = now + CARE_NS;
    child_tell_alive(NULL);
    if (blasd_signer_refresh(work->signer, &err) != 0)
        blasd_log(BLASD_LOG_WARN, "the webhooks' secrets stay as they were: %s", err.detail);
}

/* Told to end, it ends once what is on its way has been answered. */
static void go_on(struct work *work) {
    while (!told_to_end || webhook_rounds_room(work->rounds) < WEBHOOK_ROUNDS) {
        int64_t now = blasd_clock_ns();
        int code;
        care(work, now);
        look(work, now);
        webhook_rounds_turn(work->rounds, TURN_MS);
        code = webhook_rounds_over(work->rounds, tell_round, work);
        if (code != 0 && told_to_end) return; /* whoever comes next delivers these again */
        if (code != 0) usleep(TURN_MS * 1000);
    }
}

static void give_up_rights(const struct settings *settings) {
    const struct confine_files files = {.read = {settings->secrets, settings->common.outgoing_ca},
                                        .network = true};
    if (settings->common.no_confine) return;
    confine_files(&files);
    confine_calls();
}

static int run(const struct settings *settings) {
    const struct blasd_queue_options options = {.url = settings->common.redis,
                                                .name = settings->common.queue,
                                                .limits = &settings->common.limits};
    struct webhook_rounds_options sending = {.prices =
                                                 settings->has_prices ? &settings->prices : NULL};
    struct work work = {.life_s = settings->common.limits.webhook_s};
    struct blasd_outgoing *outgoing = NULL;
    struct blasd_err err = {0};
    int code = blasd_signer_open(settings->secrets, &work.signer, &err);
    if (code == 0) code = common_outgoing(&settings->common, &outgoing, &err);
    if (code == 0) code = blasd_webhooks_open(&options, &work.queue, &err);
    if (code == 0) {
        curl_global_init(CURL_GLOBAL_DEFAULT);
        give_up_rights(settings);
        sending.outgoing = outgoing;
        sending.signer = work.signer;
        work.rounds = webhook_rounds_new(&sending);
        if (work.rounds == NULL) code = blasd_fail(&err, BLASD_E_out_of_memory, "", "no memory");
    }
    if (code == 0) {
        if (!child_tell_ready()) {
            puts("ready");
            fflush(stdout);
        }
        go_on(&work);
    }
    webhook_rounds_free(work.rounds);
    blasd_webhooks_free(work.queue);
    blasd_outgoing_free(outgoing);
    blasd_signer_free(work.signer);
    if (code == 0) return BLASD_EXIT_OK;
    blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
    return BLASD_EXIT_FAILED;
}

int blasd_cmd_notify(int argc, char **argv) {
    struct settings settings = {.secrets = webhook_secrets_given()};
    struct sigaction action = {.sa_handler = on_signal};
    int status = parse(&settings, argc, argv);
    if (status != 0) return status < 0 ? BLASD_EXIT_OK : status;
    prctl(PR_SET_NAME, "blasd notify");
    common_log(&settings.common, "blasd notify");
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    return run(&settings);
}
