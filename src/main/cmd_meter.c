/* `blasd meter`: writes what each job used to where it is billed. Read next:
 * ../queue/usage_stream.h. */
#include "base/buf.h"
#include "base/clock.h"
#include "main/commands.h"
#include "main/options.h"
#include "main/signal_pipe.h"
#include "main/usage_sink.h"
#include "queue/usage_stream.h"
#include "wire/cloud_event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char usage[] =
    "usage: blasd meter --redis URL --to WHERE [options]\n"
    "\n"
    "Writes what each job used, once it has ended, as CloudEvents until SIGTERM. From its first "
    "start\n"
    "on the queue keeps this for it; one at a time may run.\n"
    "  --to WHERE             file:PATH (a line each), redis (the stream {QUEUE}:cloudevents), or "
    "a URL\n"
    "                         of http or https that takes batches [BLASD_METER_TOKEN for its "
    "bearer]\n"
    "  --price PRICES         each event has a cost, as job documents have [BLASD_PRICE]\n"
    "  --end                  the queue keeps no more; ends once all that was kept is written\n";
static const char notes[] =
    "What cannot be written yet stays in Redis, and is tried again.\n"
    "Exit status: 0 ended when told, 1 could not start or go on, 2 wrong options.\n";

/* Between looks, where nothing came, and where something did: a step is half a dozen trips to Redis
 * and a sync, whatever it has, so what comes within a moment goes together; for more Redis would
 * make replies that others have to wait for. */
#define IDLE_US 200000
#define GATHER_US 20000
#define EVENT_USUAL 768 /* bytes of one, at the most, as a rule */
#define LATER_MOST_S 10

struct settings {
    struct common_options common;
    const char *to;
    bool end;
};

static int take_option(void *arg, int option, char *value) {
    struct settings *settings = arg;
    if (option == 't') settings->to = value;
    if (option == 'e') settings->end = true;
    return 0;
}

static int parse(struct settings *settings, int argc, char **argv) {
    static const struct option options[] = {COMMON_OPTIONS,
                                            {"to", required_argument, NULL, 't'},
                                            {"end", no_argument, NULL, 'e'},
                                            PRICE_OPTION,
                                            {NULL, 0, NULL, 0}};
    static const struct command_line line = {"meter",     usage, notes, options,
                                             take_option, true,  true};
    int status = command_line_read(&line, &settings->common, settings, argc, argv);
    if (status == 0 && settings->to == NULL) {
        fputs("blasd meter: --to says where; `blasd help meter` lists what there is\n", stderr);
        return BLASD_EXIT_USAGE;
    }
    return status;
}

/* The events of one step. */
struct step {
    const char *queue;
    int number;                        /* of the queue that it is of */
    const struct usage_sink *sink;     /* NULL: Redis itself */
    const struct blasd_prices *prices; /* NULL: none */
    char **events;
    int count, room;
};

static int keep_event(struct step *step, char *event, struct blasd_err *err) {
    if (step->count == step->room) {
        int room = step->room == 0 ? 256 : 2 * step->room;
        char **more = realloc(step->events, (size_t)room * sizeof *more);
        if (more == NULL) {
            free(event);
            return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the events");
        }
        step->events = more;
        step->room = room;
    }
    step->events[step->count++] = event;
    return 0;
}

static int take_job(void *arg, const struct blasd_usage_job *job, struct blasd_err *err) {
    struct step *step = arg;
    struct blasd_job_use use = {
        .queue = step->queue, .tenant = job->tenant, .sequence = job->sequence};
    struct blasd_buf text;
    /* written, but not settled */
    if (step->sink != NULL && strcmp(job->sequence, usage_sink_last(step->sink, step->number)) <= 0)
        return 0;
    job->record->prices = step->prices;
    blasd_buf_init(&text, BLASD_MIB);
    if (blasd_buf_reserve(&text, EVENT_USUAL) != 0 ||
        blasd_cloud_event(job->record, &use, &text) != 0 || blasd_buf_add(&text, "", 1) != 0) {
        blasd_buf_release(&text);
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the events");
    }
    return keep_event(step, text.data, err);
}

static void empty(struct step *step) {
    for (int i = 0; i < step->count; i++) free(step->events[i]);
    step->count = 0;
}

/* Takes what there is; returns how many jobs, or a code. */
static int run_step(struct blasd_usage_stream *from, struct usage_sink *sink, struct step *step,
                    struct blasd_err *err) {
    int jobs = blasd_usage_read(from, take_job, step, err), code = 0;
    if (jobs <= 0) return jobs;
    if (sink != NULL) code = usage_sink_write(sink, step->events, step->count, err);
    if (code == 0)
        code = blasd_usage_settle(from, sink == NULL ? step->events : NULL, step->count, err);
    return code == 0 ? jobs : code;
}

/* What one queue has noted. */
struct source {
    struct blasd_queue_one one;
    struct blasd_usage_stream *from; /* owned; NULL: its Redis has been away so far */
    unsigned later_s;                /* after which it is tried again, where it could not be */
    int64_t again_ns;
    bool stopped, left; /* it notes no more; there may be some yet */
};

struct metering {
    const struct settings *settings;
    struct source sources[BLASD_QUEUES_MOST];
    int count;
    struct usage_sink *sink; /* owned; NULL: Redis itself */
    struct step step;
};

static int open_source(const struct metering *metering, struct source *source,
                       struct blasd_err *err) {
    int code =
        source->from != NULL ? 0 : blasd_usage_open(&source->one.options, &source->from, err);
    bool stop = metering->settings->end && !source->stopped;
    if (code == 0 && stop) {
        code = blasd_usage_stop(source->from, err);
        source->stopped = code == 0;
    }
    return code;
}

/* One step of a queue; how many jobs, or the code that ends it all: what may yet go well is put
 * off. */
static int serve(struct metering *metering, int number, struct blasd_err *err) {
    struct source *source = &metering->sources[number];
    int jobs = open_source(metering, source, err);
    metering->step.number = number;
    if (jobs == 0) jobs = run_step(source->from, metering->sink, &metering->step, err);
    empty(&metering->step);
    if (jobs >= 0) source->later_s = 1;
    if (jobs == 0) source->left = false;
    if (jobs >= 0 || !blasd_err_info(err->code)->retry) return jobs;
    blasd_log(BLASD_LOG_WARN, "%s; once more in %u s", err->detail, source->later_s);
    source->again_ns = blasd_clock_ns() + source->later_s * 1000 * BLASD_MS;
    source->later_s = 2 * source->later_s < LATER_MOST_S ? 2 * source->later_s : LATER_MOST_S;
    return 0;
}

/* Until it is told to end, or, with --end, nothing is left. */
static int go_on(struct metering *metering, struct blasd_err *err) {
    while (!told_to_end()) {
        bool left = false, more = false, any = false;
        for (int i = 0; i < metering->count && !told_to_end(); i++) {
            struct source *source = &metering->sources[i];
            int jobs = 0;
            if (blasd_clock_ns() >= source->again_ns) jobs = serve(metering, i, err);
            if (jobs < 0) return jobs;
            left |= source->left;
            any |= jobs > 0;
            more |= jobs > 0 && blasd_usage_more(source->from);
        }
        if (!left && metering->settings->end) break;
        if (!more) usleep(any ? GATHER_US : IDLE_US);
    }
    return 0;
}

/* At least one of them; what is wrong otherwise than that Redis is away is wrong for good. */
static int open_sources(struct metering *metering, const struct blasd_queue_options *options,
                        struct blasd_err *err) {
    int code = 0, good = 0;
    metering->count = blasd_queue_count(options);
    for (int i = 0; i < metering->count; i++) {
        struct source *source = &metering->sources[i];
        source->later_s = 1;
        source->left = true;
        blasd_queue_one(options, i, &source->one);
        code = open_source(metering, source, err);
        if (code != 0 && code != -(int)BLASD_E_queue_unavailable) return code;
        good += code == 0;
    }
    return good > 0 ? 0 : code;
}

static int run(const struct settings *settings) {
    const struct blasd_queue_options options = common_queue(&settings->common);
    struct metering metering = {.settings = settings};
    struct blasd_err err = {0};
    int code = 0;
    if (strcmp(settings->to, "redis") != 0)
        code = usage_sink_open(settings->to, &options, &metering.sink, &err);
    metering.step = (struct step){
        .queue = settings->common.queue, .sink = metering.sink, .prices = settings->common.prices};
    if (code == 0) code = open_sources(&metering, &options, &err);
    if (code == 0) {
        printf("ready %s\n", settings->to);
        fflush(stdout);
        code = go_on(&metering, &err);
    }
    for (int i = 0; i < metering.count; i++) blasd_usage_free(metering.sources[i].from);
    free(metering.step.events);
    usage_sink_free(metering.sink);
    if (code == 0) return BLASD_EXIT_OK;
    blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
    return BLASD_EXIT_FAILED;
}

int blasd_cmd_meter(int argc, char **argv) {
    struct settings settings = {.to = NULL};
    int status = parse(&settings, argc, argv);
    if (status != 0) return status < 0 ? BLASD_EXIT_OK : status;
    prctl(PR_SET_NAME, "blasd meter");
    common_log(&settings.common, "blasd meter");
    note_end_signals();
    return run(&settings);
}
