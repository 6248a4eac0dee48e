/* `blasd top`: a live view of queue, devices and jobs, with keys to cancel. Plain ANSI: an
 * alternate screen that is left as it was found, lines cut to the terminal's width. */
#include "clients/cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define SILENCE_S 10.0
#define MOST_JOBS 100
#define SHORTEST_ID 12

static const char top_usage[] = "usage: blasd top [-n SECONDS]\n"
                                "\n"
                                "Shows queue, devices and jobs of a service, refreshed every "
                                "second. If standard output is not a\n"
                                "terminal, or with --json, it prints them once.\n"
                                "  -n, --interval SECONDS     refresh every SECONDS (1)\n"
                                "      --once                 print once\n"
                                "%\n"
                                "\n"
                                "Keys: up and down (or k and j) select a job, c cancels it after "
                                "y, space refreshes, q quits.\n";

struct top {
    struct cli cli;
    struct blasd_client *client;
    double interval;
    bool once;
    json_t *devices, *before; /* owned: GET /devices now, and at the look before */
    double at, span;          /* when that was, and how long before the other */
    json_t *jobs;             /* owned: an array */
    char trouble[512];        /* why there is nothing new */
    char said[256];           /* of the last key */
    char chosen[96];          /* the job's id, or "" */
    bool asks;                /* whether to cancel it */
    int rows, columns;
    FILE *out;
};

/* --- looking */

/* The document of an answer; NULL, and a complaint in `problem`. */
static json_t *document_of(int code, struct blasd_reply *reply) {
    json_t *document = code == 0 ? cli_document(reply) : NULL;
    blasd_reply_free(reply);
    return document;
}

static bool look(struct top *top, struct blasd_problem *problem) {
    struct blasd_reply *reply = NULL;
    json_t *devices, *page = NULL;
    char query[32];
    double now = cli_seconds();
    int code = blasd_client_devices(top->client, &reply, problem);
    devices = document_of(code, reply);
    if (devices != NULL) {
        snprintf(query, sizeof query, "limit=%d", top->rows < MOST_JOBS ? top->rows : MOST_JOBS);
        reply = NULL;
        code = blasd_client_jobs(top->client, query, &reply, problem);
        page = document_of(code, reply);
    }
    if (page == NULL) {
        json_decref(devices);
        cli_plain(problem->message, top->trouble, sizeof top->trouble);
        return false;
    }
    json_decref(top->before);
    json_decref(top->jobs);
    top->before = top->devices;
    top->span = top->before == NULL ? 0 : now - top->at;
    top->at = now;
    top->devices = devices;
    top->jobs = json_incref(json_object_get(page, "jobs"));
    if (top->jobs == NULL) top->jobs = json_array();
    json_decref(page);
    top->trouble[0] = '\0';
    return true;
}

/* --- drawing */

struct frame {
    struct top *top;
    int line;
    bool chosen; /* the line to come */
};

static void put(void *arg, const char *line) {
    struct frame *frame = arg;
    int room = frame->top->columns + 1;
    char cut[1024];
    if (frame->line >= frame->top->rows) return;
    if (frame->line++ > 0) fputc('\n', frame->top->out);
    cli_plain(line, cut, room < (int)sizeof cut ? (size_t)room : sizeof cut);
    if (frame->top->once)
        fputs(cut, frame->top->out);
    else
        fprintf(frame->top->out, "\033[K%s%s%s", frame->chosen ? "\033[7m" : "", cut,
                frame->chosen ? "\033[0m" : "");
}

static void put_jobs(struct frame *frame) {
    struct top *top = frame->top;
    /* in narrow terminals ids give way to what changes: the ends that tell one from another stay */
    int most = CLI_JOB_ID + top->columns - CLI_JOB_COLUMNS - 2;
    int width = most > CLI_JOB_ID ? CLI_JOB_ID : most < SHORTEST_ID ? SHORTEST_ID : most;
    bool cut = width < CLI_JOB_ID;
    char row[512], line[560];
    size_t i;
    json_t *job;
    snprintf(line, sizeof line, "  %-*s%s", width, "ID", cli_job_heads + CLI_JOB_ID);
    put(frame, line);
    json_array_foreach(top->jobs, i, job) {
        const char *id = json_string_value(json_object_get(job, "id"));
        bool chosen = !top->once && id != NULL && strcmp(id, top->chosen) == 0;
        cli_format_job(job, row, sizeof row);
        snprintf(line, sizeof line, "%s%s%s", chosen ? "> " : "  ", cut ? ".." : "",
                 row + (cut ? CLI_JOB_ID - width + 2 : 0));
        frame->chosen = chosen;
        put(frame, line);
        frame->chosen = false;
    }
}

static void draw(struct top *top) {
    struct frame frame = {.top = top};
    char line[600];
    if (!top->once) fputs("\033[H", top->out);
    snprintf(line, sizeof line, "blasd top%s%s", top->trouble[0] != '\0' ? ": " : "", top->trouble);
    put(&frame, line);
    if (top->asks) {
        snprintf(line, sizeof line, "cancel %s? y cancels, any other key does not", top->chosen);
        put(&frame, line);
    } else
        put(&frame, top->said);
    if (top->devices != NULL) {
        cli_put_devices(top->devices, top->before, top->span, put, &frame);
        put(&frame, "");
        put_jobs(&frame);
    }
    fputs(top->once ? "\n" : "\033[J", top->out);
    if (fflush(top->out) != 0 && top->cli.lost == 0) top->cli.lost = errno;
}

/* --- keys */

static void cancel(struct top *top) {
    struct blasd_reply *reply = NULL;
    struct blasd_problem problem;
    char text[200];
    if (blasd_client_cancel(top->client, top->chosen, &reply, &problem) == 0)
        snprintf(top->said, sizeof top->said, "%s is %s", top->chosen, blasd_reply_state(reply));
    else
        snprintf(top->said, sizeof top->said, "%s", cli_plain(problem.message, text, sizeof text));
    blasd_reply_free(reply);
}

static int index_of_chosen(const struct top *top) {
    size_t i;
    json_t *job;
    json_array_foreach(top->jobs, i, job) {
        const char *id = json_string_value(json_object_get(job, "id"));
        if (id != NULL && strcmp(id, top->chosen) == 0) return (int)i;
    }
    return -1;
}

static void choose(struct top *top, int step) {
    int count = (int)json_array_size(top->jobs), at = index_of_chosen(top);
    const char *id;
    at = at < 0 ? 0 : at + step;
    if (at >= count) at = count - 1;
    if (at < 0) at = 0;
    id = json_string_value(json_object_get(json_array_get(top->jobs, (size_t)at), "id"));
    cli_plain(id, top->chosen, sizeof top->chosen);
}

/* False where it is to end; `*now` where the service is to be looked at. */
static bool take_key(struct top *top, const char *key, bool *now) {
    top->said[0] = '\0';
    if (top->asks) {
        top->asks = false;
        if (key[0] == 'y' || key[0] == 'Y') {
            cancel(top);
            *now = true;
        }
    } else if (strcmp(key, "q") == 0)
        return false;
    else if (strcmp(key, "j") == 0 || strcmp(key, "\033[B") == 0 || strcmp(key, "\033OB") == 0)
        choose(top, 1);
    else if (strcmp(key, "k") == 0 || strcmp(key, "\033[A") == 0 || strcmp(key, "\033OA") == 0)
        choose(top, -1);
    else if (strcmp(key, "c") == 0) {
        top->asks = top->chosen[0] != '\0';
        if (!top->asks) snprintf(top->said, sizeof top->said, "no job is chosen: up, down");
    } else if (strcmp(key, " ") == 0)
        *now = true;
    return true;
}

/* One key after the other of what came at once. An arrow is three bytes. */
static bool take_keys(struct top *top, const char *bytes, ssize_t count, bool *now) {
    for (ssize_t i = 0; i < count;) {
        char key[4] = "";
        size_t len = bytes[i] == '\033' && i + 2 < count ? 3 : 1;
        memcpy(key, bytes + i, len);
        i += (ssize_t)len;
        if (!take_key(top, key, now)) return false;
    }
    return true;
}

/* --- the screen */

static void on_resize(int signum) {
    (void)signum; /* poll ends, and the screen is drawn anew */
}

static void measure(struct top *top) {
    struct winsize size;
    top->rows = 24;
    top->columns = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        return;
    top->rows = size.ws_row;
    top->columns = size.ws_col;
}

/* Until a key, a signal or `end`; false where it is to end. */
static bool wait_for_key(struct top *top, double end, bool *now) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    double left = end - cli_seconds();
    char bytes[64];
    ssize_t count;
    int ready = poll(&input, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
    if (cli_interrupted != 0) return false;
    if (ready <= 0) {
        if (ready == 0) *now = true;
        return true;
    }
    count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) return false;
    return take_keys(top, bytes, count, now);
}

static void live(struct top *top) {
    struct blasd_problem problem;
    bool now = true;
    double end = 0;
    do {
        measure(top);
        if (now) {
            look(top, &problem);
            end = cli_seconds() + top->interval;
            now = false;
        }
        draw(top);
    } while (wait_for_key(top, end, &now));
}

/* What signals have to know of it. */
static struct termios old, raw;

/* The terminal gives keys as they come. */
static void take_terminal(void) {
    static const char screen[] = "\033[?1049h\033[?25l";
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    if (write(STDOUT_FILENO, screen, sizeof screen - 1) < 0) return; /* draw tells of it */
}

/* It is what it was. */
static void leave_terminal(void) {
    static const char screen[] = "\033[?25h\033[?1049l";
    ssize_t written = write(STDOUT_FILENO, screen, sizeof screen - 1);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &old);
    (void)written;
}

/* Ctrl-Z: the shell has the terminal as it gave it, while this process stands still. */
static void on_stop(int signum) {
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    struct sigaction ours;
    sigset_t stop;
    int before = errno;
    leave_terminal();
    sigaction(signum, &usual, &ours);
    sigemptyset(&stop);
    sigaddset(&stop, signum);
    raise(signum);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* here it stops, unless it has no shell that waits */
    sigaction(signum, &ours, NULL);
    take_terminal();
    errno = before;
}

/* After a stop that no handler saw, too. */
static void on_continue(int signum) {
    int before = errno;
    (void)signum;
    take_terminal();
    errno = before;
}

static void catch_stops(void) {
    struct sigaction stop = {.sa_handler = on_stop}, go_on = {.sa_handler = on_continue}, now;
    sigaction(SIGCONT, &go_on, NULL);
    /* who ignores it for us has no control of jobs */
    if (sigaction(SIGTSTP, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        sigaction(SIGTSTP, &stop, NULL);
}

static void catch_no_stops(void) {
    signal(SIGTSTP, SIG_DFL);
    signal(SIGCONT, SIG_DFL);
}

static int show_live(struct top *top) {
    struct sigaction resize = {.sa_handler = on_resize};
    if (tcgetattr(STDIN_FILENO, &old) != 0) {
        cli_say(&top->cli, "standard input is not a terminal; use --once");
        return CLI_USAGE;
    }
    raw = old;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    cli_catch_signals();
    sigaction(SIGWINCH, &resize, NULL);
    catch_stops();
    take_terminal();
    live(top);
    catch_no_stops();
    leave_terminal();
    return cli_interrupted != 0 ? 128 + cli_interrupted : CLI_OK;
}

static int show_once(struct top *top) {
    struct blasd_problem problem;
    top->rows = 1000;
    top->columns = 1000;
    if (!look(top, &problem)) {
        return cli_complain(&top->cli, &problem);
    }
    if (top->cli.json) {
        json_t *document = json_pack("{s:O, s:O}", "devices", top->devices, "jobs", top->jobs);
        cli_print_json(document);
        json_decref(document);
    } else
        draw(top);
    return CLI_OK;
}

int blasd_cli_top(int argc, char **argv) {
    static const struct option options[] = {{"interval", required_argument, NULL, 'n'},
                                            {"once", no_argument, NULL, CLI_OWN},
                                            CLI_OPTIONS};
    struct top top = {.cli = {.name = "top", .usage = top_usage}, .interval = 1, .out = stdout};
    struct blasd_problem problem;
    int option, status;
    while ((option = getopt_long(argc, argv, "n:" CLI_SHORT, options, NULL)) != -1)
        if (option == 'n') {
            if (!cli_number(&top.cli, optarg, "seconds", &top.interval)) return CLI_USAGE;
        } else if (option == CLI_OWN)
            top.once = true;
        else if ((status = cli_take(&top.cli, option)) >= 0)
            return status;
    if (optind < argc) {
        cli_say(&top.cli, "'%s' is not an option", argv[optind]);
        return CLI_USAGE;
    }
    if (top.interval > 86400) top.interval = 86400;
    if (top.interval < 0.05) top.interval = 0.05;
    top.client = cli_connect(&top.cli);
    if (top.client == NULL) return CLI_USAGE;
    blasd_client_set_silence(top.client, SILENCE_S, &problem);
    top.once = top.once || top.cli.json || !isatty(STDOUT_FILENO);
    status = top.once ? show_once(&top) : show_live(&top);
    json_decref(top.devices);
    json_decref(top.before);
    json_decref(top.jobs);
    blasd_client_free(top.client);
    return cli_end(&top.cli, status);
}
