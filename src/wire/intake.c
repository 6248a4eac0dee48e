/* The way in, from outside: chooses the reader of the body's format, feeds it, and makes the job.
 *
 * Knows no format itself. Read next: body_reader.h. */
#include "wire/intake.h"

#include "wire/body_reader.h"
#include "wire/graph_in.h"
#include "wire/part_header.h"
#include "wire/remote_in.h"
#include "wire/sanitize.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct blasd_intake {
    struct blasd_body body;
    struct blasd_named_inputs inputs;
    struct blasd_request_fields fields;
    struct blasd_freelist *freelist;  /* borrowed; NULL: none */
    struct blasd_body_reader *reader; /* owned */
    struct blasd_graph_in *graph;     /* owned; NULL: the body is a job */
    uint64_t fed;
    bool guess;  /* there was no Content-Type and the first byte is still to come */
    bool ended;  /* nothing more may be fed */
    bool failed; /* or finished: takes only blasd_intake_free */
    _Alignas(max_align_t) char room[BLASD_READER_ROOM];
};

static int new_multipart(const struct blasd_body *body, const char *content_type,
                         struct blasd_body_reader **ret, struct blasd_err *err) {
    char boundary[72];
    size_t len;
    if (!blasd_header_param(content_type, strlen(content_type), "boundary", boundary,
                            sizeof boundary, &len))
        return blasd_fail(err, BLASD_E_malformed_multipart, "Content-Type",
                          "Content-Type gives no boundary");
    if (len == 0 || len > 70)
        return blasd_fail(err, BLASD_E_malformed_multipart, "Content-Type",
                          "the boundary has %zu characters; 1 to 70 are taken", len);
    for (size_t i = 0; i < len; i++)
        if (boundary[i] < ' ' || boundary[i] > '~')
            return blasd_fail(err, BLASD_E_malformed_multipart, "Content-Type",
                              "the boundary has a character that is not printable");
    *ret = blasd_multipart_reader_new(body, boundary, len);
    return 0;
}

static int choose_reader(struct blasd_intake *intake, const char *type, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX];
    int rc = 0;
    /* `curl -d` calls whatever it sends a form: what then starts like JSON is taken as JSON */
    intake->guess = type == NULL || blasd_media_type_is(type, "application/x-www-form-urlencoded");
    if (intake->guess || blasd_media_type_is(type, "application/json"))
        intake->reader = blasd_json_reader_new(&intake->body);
    else if (blasd_media_type_is(type, "application/x-safetensors") ||
             blasd_media_type_is(type, "application/octet-stream"))
        intake->reader = blasd_safetensors_reader_new(&intake->body);
    else if (blasd_media_type_is(type, "multipart/form-data"))
        rc = new_multipart(&intake->body, type, &intake->reader, err);
    else
        return blasd_fail(err, BLASD_E_unsupported_media_type, "Content-Type",
                          "'%s' is not application/json, application/x-safetensors or "
                          "multipart/form-data",
                          blasd_sanitize(shown, type, strcspn(type, "; \t")));
    if (rc == 0 && intake->reader == NULL) return blasd_no_memory(err);
    return rc;
}

static int note_query(struct blasd_intake *intake, const struct blasd_intake_options *options,
                      struct blasd_err *err) {
    const char *const named[][2] = {
        {"op", options->op},
        {"params", options->params},
        {"priority", options->priority},
        {"deadline_ms", options->deadline_ms},
        {"device", options->device},
        {"keep", options->keep},
        {"results", options->results},
        {"labels", options->labels},
        {"notify", options->notify},
        {"digest", options->digest},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        const char *text = named[i][1];
        int rc;
        if (text == NULL) continue;
        rc = blasd_request_fields_text(&intake->fields, BLASD_IN_QUERY, named[i][0], text,
                                       strlen(text), err);
        if (rc != 0) return rc;
    }
    return 0;
}

static int check_size(const struct blasd_intake *intake, uint64_t bytes, struct blasd_err *err) {
    if (bytes <= intake->body.limits->body_bytes) return 0;
    return blasd_fail(err, BLASD_E_body_too_large, "",
                      "the body is larger than %llu bytes, the limit body_bytes",
                      (unsigned long long)intake->body.limits->body_bytes);
}

size_t blasd_intake_bytes(void) {
    return sizeof(struct blasd_intake);
}

/* An intake with nothing set that blasd_intake_free would not take; the arrays are left as they
 * are. */
static struct blasd_intake *make(struct blasd_freelist *freelist) {
    struct blasd_intake *intake =
        freelist != NULL ? blasd_freelist_take(freelist) : malloc(sizeof *intake);
    if (intake == NULL) return NULL;
    intake->freelist = freelist;
    intake->inputs.count = 0;
    intake->inputs.any = false;
    intake->reader = NULL;
    intake->graph = NULL;
    intake->fed = 0;
    intake->guess = intake->ended = intake->failed = false;
    return intake;
}

/* Data of a graph may go to any input of a step. */
static int expect_graph(struct blasd_intake *intake, const struct blasd_limits *limits,
                        struct blasd_sink *sink, struct blasd_err *err) {
    intake->fields.graph = intake->inputs.any = true;
    intake->graph = blasd_graph_in_new(limits, sink);
    if (intake->graph != NULL) return 0;
    return blasd_no_memory(err);
}

int blasd_intake_new(const struct blasd_intake_options *options, struct blasd_sink *sink,
                     struct blasd_intake **ret, struct blasd_err *err) {
    struct blasd_intake *intake = make(options->freelist);
    int rc;
    *ret = NULL;
    if (intake == NULL) return blasd_no_memory(err);
    intake->inputs.sink = sink;
    blasd_request_fields_init(&intake->fields, options->limits);
    if (intake->fields.priority < options->ceiling) intake->fields.priority = options->ceiling;
    rc = options->graph ? expect_graph(intake, options->limits, sink, err) : 0;
    intake->body = (struct blasd_body){options->limits, options->content_length, &intake->inputs,
                                       &intake->fields, intake->graph,           intake->room,
                                       options->account};
    if (rc == 0) rc = check_size(intake, options->content_length, err);
    if (rc == 0 && options->reader != NULL)
        intake->reader = options->reader(&intake->body, options->reader_arg);
    else if (rc == 0)
        rc = choose_reader(intake, options->content_type, err);
    if (rc == 0) rc = note_query(intake, options, err);
    if (rc != 0) {
        blasd_intake_free(intake);
        return rc;
    }
    *ret = intake;
    return 0;
}

/* Without a Content-Type only what begins like a JSON object is taken. */
static int guess_format(struct blasd_intake *intake, const char *bytes, size_t len,
                        struct blasd_err *err) {
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == ' ' || bytes[i] == '\t' || bytes[i] == '\r' || bytes[i] == '\n') continue;
        intake->guess = false;
        if (bytes[i] == '{') return 0;
        return blasd_fail(err, BLASD_E_unsupported_media_type, "Content-Type",
                          "without the Content-Type of a format the body must be a JSON object");
    }
    return 0;
}

static int used_up(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_internal_error, "", "the request had ended already");
}

int blasd_intake_feed(struct blasd_intake *intake, const void *bytes, size_t len,
                      struct blasd_err *err) {
    int rc;
    if (intake->failed || intake->ended) return used_up(err);
    if (len == 0) return 0;
    intake->fed += len;
    rc = check_size(intake, intake->fed, err);
    if (rc == 0 && intake->guess) rc = guess_format(intake, bytes, len, err);
    if (rc == 0) rc = intake->reader->feed(intake->reader, bytes, len, err);
    intake->failed = rc != 0;
    return rc;
}

int blasd_intake_end(struct blasd_intake *intake, struct blasd_err *err) {
    int rc;
    if (intake->failed) return used_up(err);
    if (intake->ended) return 0;
    intake->ended = true;
    rc = intake->reader->finish(intake->reader, err);
    intake->failed = rc != 0;
    return rc;
}

const struct blasd_named_inputs *blasd_intake_inputs(const struct blasd_intake *intake) {
    return &intake->inputs;
}

const struct blasd_body *blasd_intake_body(const struct blasd_intake *intake) {
    return &intake->body;
}

int blasd_intake_finish(struct blasd_intake *intake, struct blasd_job *job, struct blasd_err *err) {
    int rc = blasd_intake_end(intake, err);
    job->op = NULL;
    if (rc != 0) return rc;
    intake->failed = true;
    if (intake->graph != NULL)
        return blasd_graph_in_job(intake->graph, &intake->fields, &intake->inputs, job, err);
    return blasd_request_fields_job(&intake->fields, &intake->inputs, job, err);
}

int blasd_intake_refer(struct blasd_intake *intake, struct blasd_job *job, struct blasd_err *err) {
    return intake->graph == NULL ? 0 : blasd_graph_in_plan(intake->graph, job, err);
}

struct blasd_cost_step *blasd_intake_costs(const struct blasd_intake *intake, int *count) {
    *count = 0;
    return intake->graph == NULL ? NULL : blasd_graph_in_costs(intake->graph, count);
}

int blasd_intake_outputs(const struct blasd_intake *intake, struct blasd_buf *out) {
    return intake->graph == NULL ? 0 : blasd_graph_in_outputs(intake->graph, out);
}

int blasd_intake_steps(const struct blasd_intake *intake, struct blasd_buf *out,
                       struct blasd_err *err) {
    return intake->graph == NULL ? 0 : blasd_graph_in_steps(intake->graph, out, err);
}

const char *blasd_intake_notify(const struct blasd_intake *intake) {
    return intake->fields.notify;
}

void blasd_intake_free(struct blasd_intake *intake) {
    if (intake == NULL) return;
    if (intake->reader != NULL) intake->reader->free(intake->reader);
    blasd_named_inputs_release(&intake->inputs);
    blasd_request_fields_release(&intake->fields);
    blasd_graph_in_free(intake->graph);
    if (intake->freelist != NULL)
        blasd_freelist_give(intake->freelist, intake);
    else
        free(intake);
}
