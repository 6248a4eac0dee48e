/* The commands that speak to a running service: clients of it like any other, on the C client
 * library (../c/blasd.h), parts of the one executable. Each takes argv from its own name on and
 * returns the exit status.
 *
 * Standard output has what was asked for and nothing else; with --json it is one JSON document,
 * also where something went wrong. Read next: cli_options.c, cli_run.c, cli_jobs.c, cli_top.c. */
#ifndef BLASD_CLI_H
#define BLASD_CLI_H

#include "clients/c/blasd.h"

#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>

int blasd_cli_run(int argc, char **argv);
int blasd_cli_submit(int argc, char **argv);
int blasd_cli_get(int argc, char **argv);
int blasd_cli_result(int argc, char **argv);
int blasd_cli_cancel(int argc, char **argv);
int blasd_cli_jobs(int argc, char **argv);
int blasd_cli_devices(int argc, char **argv); /* `blasd devices --url` */
int blasd_cli_tensors(int argc, char **argv);
int blasd_cli_top(int argc, char **argv);

/* Exit statuses; by a signal it is 128 and its number. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NOT_ENDED = 3, CLI_AWAY = 4 };

/* --- cli_options.c: what all of them are told in the same words */

struct cli {
    const char *name;  /* of the command */
    const char *usage; /* its own part */
    const char *url, *ca_file, *cert_file, *cert_key, *key_file;
    double retries;
    bool insecure, json;
    int lost; /* errno of what was written before and could not be; 0: none */
};

enum {
    CLI_CA = 0x100,
    CLI_CERT,
    CLI_CERT_KEY,
    CLI_KEY_FILE,
    CLI_INSECURE,
    CLI_JSON,
    CLI_RETRIES,
    CLI_OWN
};
/* in every table of options; and in every string of short ones */
/* clang-format off */
#define CLI_OPTIONS                                                                                \
    {"url", required_argument, NULL, 'u'}, {"ca", required_argument, NULL, CLI_CA},                \
    {"cert", required_argument, NULL, CLI_CERT},                                                   \
    {"cert-key", required_argument, NULL, CLI_CERT_KEY},                                           \
    {"api-key-file", required_argument, NULL, CLI_KEY_FILE},                                       \
    {"insecure", no_argument, NULL, CLI_INSECURE}, {"json", no_argument, NULL, CLI_JSON},          \
    {"retries", required_argument, NULL, CLI_RETRIES}, {"help", no_argument, NULL, 'h'},           \
    {NULL, 0, NULL, 0}
/* clang-format on */
#define CLI_SHORT "u:h"

/* Takes an option of the common ones: -1: go on; else the exit status, help or an error. */
int cli_take(struct cli *cli, int option);
void cli_print_usage(const struct cli *cli, FILE *out);
/* "blasd NAME: …" and a line's end, on standard error. */
void cli_say(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A number above 0, and a whole one from 1 to 10^9; false, and says so, where it is none. */
bool cli_number(const struct cli *cli, const char *text, const char *unit, double *value);
bool cli_whole(const struct cli *cli, const char *text, const char *unit, double *value);
/* The exit status, which is another one where not all could be written to standard output: that of
 * SIGPIPE, without a word, where nobody reads it any more. */
int cli_end(const struct cli *cli, int status);
double cli_seconds(void); /* of a clock that only goes on */
/* A client set up as the options say; NULL, with what is wrong said: CLI_USAGE. */
struct blasd_client *cli_connect(const struct cli *cli);

/* --- cli_print.c: for people, and for programs */

/* What went wrong, for people on standard error and, with --json, for programs on standard output.
 * Returns the exit status. */
int cli_complain(const struct cli *cli, const struct blasd_problem *problem);
/* The same as a document. New reference. */
json_t *cli_problem(const struct blasd_problem *problem);
/* Text of the service's, without what a terminal would take for a command; in `out`, cut to it. */
const char *cli_plain(const char *text, char *out, size_t room);
void cli_print_array(const struct blasd_array *array);
/* Where the time went, on standard error, with the job's warnings. */
void cli_print_timing(const struct blasd_reply *reply);
/* One job on lines of its own. */
void cli_print_job(const json_t *job);
/* Its outputs that are kept, one a line. */
void cli_print_kept(const json_t *job);
/* The digests of its outputs, one a line; nothing of a job that asked for none. */
void cli_print_digests(const json_t *job);
/* What a job would do. */
void cli_print_dry_run(const json_t *document);
/* One job in a row of a table, without the line's end. */
#define CLI_JOB_ID 41       /* columns of the id, which stands first */
#define CLI_JOB_COLUMNS 101 /* up to the time it took */
void cli_format_job(const json_t *job, char *out, size_t room);
extern const char cli_job_heads[];
void cli_format_bytes(double bytes, char out[16]);
/* "12 s left"; "" where it is not known: less than 0. */
#define CLI_LEFT 40
void cli_format_left(double seconds, char out[CLI_LEFT]);
/* A JSON string of whatever bytes. New reference. */
json_t *cli_string(const char *text);
void cli_print_json(const json_t *document);
/* What is known of a tensor, as the service writes it. New reference. */
json_t *cli_tensor(const struct blasd_tensor_info *tensor);
/* The document of a reply. New reference; never NULL. */
json_t *cli_document(const struct blasd_reply *reply);

/* --- cli_jobs.c */

typedef int (*cli_page_fn)(struct blasd_client *client, const char *query, struct blasd_reply **ret,
                           struct blasd_problem *problem);
/* Page after page of `member` into `list`, up to `most`; `filters` go before each page's own query,
 * with & behind each. The exit status, after a complaint where one cannot be read. */
int cli_read_pages(const struct cli *cli, struct blasd_client *client, cli_page_fn page,
                   const char *member, const char *filters, int most, json_t *list);

/* --- cli_inputs.c: inputs that are no files */

#define CLI_INPUTS                                                                                 \
    "An INPUT is a file.npy, or one of:\n"                                                         \
    "  tensor:ID[PART]            a stored tensor (`blasd tensors put`, --keep)\n"                 \
    "  job:ID/OUTPUT[PART]        an output of a job; PART: [0:1000,:]\n"                          \
    "  https://…                  a .npy file that the service loads (docs/urls.md)\n"           \
    "  eye:N, full:SHAPE:VALUE    generated; SHAPE: 500x20; append @DTYPE for a dtype\n"           \
    "  arange:START:STOP:STEP, linspace:START:STOP:N\n"                                            \
    "  random:normal:SHAPE:SEED, random:uniform:SHAPE:SEED\n"
bool cli_is_url(const char *value);
/* Whether it begins as one: "https://", "tensor:", "eye:", … */
bool cli_is_reference(const char *value);
/* What a job has in its place; NULL: it is not well formed. New reference. */
json_t *cli_reference(const char *value);

/* --- cli_devices.c */

typedef void (*cli_line_fn)(void *arg, const char *line);
/* The document of GET /devices, line by line; rates since `before`, the same `seconds` ago, which
 * may be NULL. */
void cli_put_devices(const json_t *document, const json_t *before, double seconds, cli_line_fn put,
                     void *arg);

/* --- cli_outputs.c: outputs that are to become files */

#define CLI_MOST_SAVES 16
struct cli_saves {
    struct {
        char output[64]; /* its name; "": the first */
        const char *path;
    } list[CLI_MOST_SAVES];
    int count;
};
/* [output=]file, looked at as far as that goes before the job has run; false: it is said why. */
bool cli_take_save(const struct cli *cli, struct cli_saves *saves, const char *argument);
bool cli_is_readable(const struct cli *cli, const char *path);
int cli_save_outputs(const struct cli_saves *saves, const struct blasd_reply *reply,
                     struct blasd_problem *problem);
/* What a job came to: its document, its outputs, or nothing where they were saved. */
void cli_report(const struct cli *cli, const struct cli_saves *saves, bool quiet,
                const struct blasd_reply *reply);

/* --- cli_split.c: one job as blocks for all workers */

struct cli_split {
    const struct cli *cli;
    struct blasd_request request; /* without references: those are */
    const json_t *params;
    json_t *references; /* those of files are added */
    int blocks;
    const char *output; /* its name, or "" */
    const char *path;
    double timeout; /* of a block */
    bool bar;
};
/* Returns the exit status. */
int cli_split(struct blasd_client *client, const struct cli_split *what);

/* --- cli_signals.c */

extern volatile sig_atomic_t cli_interrupted; /* the signal that came, or 0 */
/* The first Ctrl-C or SIGTERM is noted; a second one ends this process at once. */
void cli_catch_signals(void);

#endif
