/* Everything of a request that is not a tensor: op, params, priority, deadline_ms, device, labels,
 * keep, results and notify. It is gathered from the query, the body or both, in any order, and
 * becomes a job once all is there. Read next: param_read.h for the parameters' values. */
#ifndef BLASD_WIRE_REQUEST_FIELDS_H
#define BLASD_WIRE_REQUEST_FIELDS_H

#include "base/buf.h"
#include "wire/json_text.h"
#include "wire/sanitize.h"
#include "wire/tensor_writer.h"

enum blasd_place { BLASD_IN_NOWHERE, BLASD_IN_QUERY, BLASD_IN_BODY };

#define BLASD_REQUEST_FIELDS 10

struct blasd_request_fields {
    const struct blasd_limits *limits; /* borrowed */
    enum blasd_place given_in[BLASD_REQUEST_FIELDS];
    char op[BLASD_SANITIZED_MAX]; /* as it may be shown: cut where longer than any name */
    enum blasd_priority priority;
    enum blasd_device_class device;
    int64_t deadline_ms;
    char labels[BLASD_LABELS_MAX];
    bool digest;
    char *notify;                /* a URL, not yet looked at, or NULL; owned */
    struct blasd_buf params;     /* the text of a JSON object, with zeros behind it; empty: none */
    struct blasd_buf texts;      /* parameters that came as text: name, zero, value, zero */
    struct blasd_buf keep, sent; /* of keep and results: names, each with a zero behind it */
    /* The request is a graph, which has these members in place of op and params: as they came as
     * text, with zeros behind them; empty where they did not. */
    bool graph;
    struct blasd_buf steps, results;
};

void blasd_request_fields_init(struct blasd_request_fields *fields,
                               const struct blasd_limits *limits);
void blasd_request_fields_release(struct blasd_request_fields *fields);

/* Whether `name` is a member that comes as text, or params.NAME. */
bool blasd_request_fields_knows(const struct blasd_request_fields *fields, const char *name);
/* Whether the body had the member. */
bool blasd_request_fields_given(const struct blasd_request_fields *fields, const char *name);
/* Refuses a member that earlier versions had, and names what to use instead; 0: it is none. */
int blasd_request_fields_removed(const char *name, struct blasd_err *err);
/* Whether it is one that only graphs have. */
bool blasd_request_fields_of_graph(const char *name);
/* Notes a member that came as text; params as JSON text, one parameter as params.NAME,
 * labels as NAME=VALUE,NAME=VALUE. */
int blasd_request_fields_text(struct blasd_request_fields *fields, enum blasd_place place,
                              const char *name, const char *text, size_t len,
                              struct blasd_err *err);
/* Notes a member whose JSON value begins at `p`; *next is one past it. */
int blasd_request_fields_json(struct blasd_request_fields *fields, enum blasd_place place,
                              const char *name, const struct blasd_json_text *text, const char *p,
                              const char **next, struct blasd_err *err);
/* Whether the operation has an input of that name; unknown_input, which says what it has. */
int blasd_request_fields_input(const struct blasd_op *op, const char *name, struct blasd_err *err);
/* Gives the job what is said of it as a whole: priority, device, deadline and labels. */
int blasd_request_fields_note(const struct blasd_request_fields *fields, struct blasd_job *job,
                              struct blasd_err *err);
/* Fills `job` from what was gathered; what its inputs refer by goes over to it. */
int blasd_request_fields_job(const struct blasd_request_fields *fields,
                             struct blasd_named_inputs *inputs, struct blasd_job *job,
                             struct blasd_err *err);

#endif
