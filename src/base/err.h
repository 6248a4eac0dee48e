/* Errors: one table of codes, and the object that carries one from where it happened to the user.
 *
 * Knows nothing of HTTP beyond the status number that goes with each code. api/errors.json and
 * docs/errors.md are generated from BLASD_ERRORS. Read next: limits.h. */
#ifndef BLASD_BASE_ERR_H
#define BLASD_BASE_ERR_H

#include <stdbool.h>
#include <stdint.h>

/* X(code, HTTP status, can a retry of the same request help, title, what to do) */
#define BLASD_ERRORS(X)                                                                            \
    X(malformed_json, 400, false, "The body is not valid JSON",                                    \
      "Send one JSON object; NaN and infinities are the strings \"NaN\", \"Infinity\", "           \
      "\"-Infinity\".")                                                                            \
    X(malformed_safetensors, 400, false, "The body is not a valid safetensors file",               \
      "Write it with a safetensors library; the header must match the bytes that follow.")         \
    X(malformed_npy, 400, false, "A part is not a valid .npy file",                                \
      "Write it with numpy.save(..., allow_pickle=False).")                                        \
    X(malformed_multipart, 400, false, "The body is not valid multipart/form-data",                \
      "Send it as `curl -F name=@file.npy` does.")                                                 \
    X(feature_removed, 400, false, "The request asks for what this service no longer has",         \
      "Use instead what `detail` names.")                                                          \
    X(malformed_query, 400, false, "A query parameter or header could not be read",                \
      "See GET /openapi.json for the parameters of this route.")                                   \
    X(unauthorized, 401, false, "The request shows no valid key",                                  \
      "Send `Authorization: Bearer KEY`; whoever runs the service makes one with "                 \
      "`blasd keys add`.")                                                                         \
    X(forbidden, 403, false, "The key may not do this",                                            \
      "Use a key whose role and scopes cover the request; `detail` says what is missing.")         \
    X(forbidden_host, 403, false, "The Host header does not name this service",                    \
      "Use the address the service listens on, or start it with --allow-host NAME.")               \
    X(forbidden_origin, 403, false, "Requests from web pages of other origins are refused",        \
      "Send the request from a program, or start the service with --allow-origin ORIGIN.")         \
    X(sharing_off, 403, false, "This service takes no files from its own machine",                 \
      "Send the tensors in the body, or start the service with --share.")                          \
    X(route_not_found, 404, false, "There is nothing at this path",                                \
      "See GET /openapi.json for the routes.")                                                     \
    X(job_not_found, 404, false, "There is no such job", "Check the id; POST /jobs returns it.")   \
    X(output_not_found, 404, false, "The job has no such output",                                  \
      "See `outputs` in the job document for the names.")                                          \
    X(tensor_not_found, 404, false, "There is no such tensor",                                     \
      "Check the id; POST /tensors returns it.")                                                   \
    X(method_not_allowed, 405, false, "This path does not take this method",                       \
      "See the Allow header, or GET /openapi.json.")                                               \
    X(not_acceptable, 406, false, "The answer cannot be given in the format asked for",            \
      "Accept application/json, application/x-safetensors or, for one output, the main one where " \
      "none is named, application/x-npy.")                                                         \
    X(request_timeout, 408, true, "The request took too long to come",                             \
      "Send it in one go, or raise the limits that `detail` names.")                               \
    X(not_finished, 409, true, "The job has not ended yet",                                        \
      "Wait with GET /jobs/ID?wait=SECONDS, then ask again.")                                      \
    X(job_ended, 409, false, "The job has ended already, so it cannot be cancelled",               \
      "DELETE /jobs/ID?forget=1 forgets it with its tensors.")                                     \
    X(record_expired, 410, false, "The record of this job has expired",                            \
      "Fetch results soon after the job ends, or submit it again.")                                \
    X(tensor_expired, 410, false, "The tensor is not kept any more",                               \
      "Send it again. PATCH /tensors/ID, and each use, extend its life; where there is too "       \
      "little "                                                                                    \
      "room those go first that were not used for longest.")                                       \
    X(body_too_large, 413, false, "The body is larger than this service takes",                    \
      "Send a smaller problem, or raise the limit that `detail` names.")                           \
    X(job_too_large, 413, false, "The job needs more memory than this service gives one job",      \
      "Send a smaller problem, or raise the limit that `detail` names.")                           \
    X(range_not_satisfiable, 416, false, "The output has no bytes in the range asked for",         \
      "See Content-Range for how many it has.")                                                    \
    X(unsupported_media_type, 415, false, "The format of the body is not known",                   \
      "Send application/json, application/x-safetensors or multipart/form-data.")                  \
    X(body_file_refused, 422, false, "The file that Body-File names cannot be taken",              \
      "See GET /share for where such a file lies and what it must be.")                            \
    X(unknown_operation, 422, false, "There is no such operation", "See GET /ops.")                \
    X(unknown_field, 422, false, "The job has a member that is not known", "Remove it.")           \
    X(invalid_field, 422, false, "A member of the job has a value it cannot take",                 \
      "Correct the member that `field` names.")                                                    \
    X(url_not_allowed, 422, false, "This service does not go to the address of the URL",           \
      "Name a host that whoever runs the service has listed with --outgoing-hosts, by the scheme " \
      "and port that are listed with it.")                                                         \
    X(url_refused, 422, false, "What lies at the URL cannot be taken",                             \
      "Ask for the URL with curl: it must answer 200 with Content-Length, without a redirect.")    \
    X(url_unavailable, 502, true, "The server that the URL names does not do its part",            \
      "Send the request again; `detail` says what went wrong.")                                    \
    X(unknown_input, 422, false, "The operation has no such input",                                \
      "See GET /ops for the names of its inputs.")                                                 \
    X(unknown_step, 422, false, "The graph has no such step",                                      \
      "Name a step of `steps`, as it is written there.")                                           \
    X(unknown_output, 422, false, "There is no such output",                                       \
      "See GET /ops for the names of its operation's outputs.")                                    \
    X(graph_cycle, 422, false, "Steps of the graph wait for each other",                           \
      "Let no step read, over others, what it makes itself.")                                      \
    X(graph_too_large, 413, false, "The graph has more of something than this service takes",      \
      "Send it as several graphs, or raise the limit that `detail` names.")                        \
    X(missing_field, 422, false, "A member of the job is missing",                                 \
      "Add the member that `field` names.")                                                        \
    X(missing_input, 422, false, "An input is missing", "Add the input that `field` names.")       \
    X(unknown_parameter, 422, false, "The operation has no such parameter",                        \
      "See GET /ops for the names of its parameters.")                                             \
    X(invalid_parameter, 422, false, "A parameter has a value it cannot take",                     \
      "See GET /ops for its type and range.")                                                      \
    X(invalid_tensor, 422, false, "A tensor is not well formed",                                   \
      "Give nested lists of equal lengths, or dtype, shape and data that agree.")                  \
    X(unsupported_dtype, 422, false, "The operation does not take this dtype",                     \
      "See GET /ops for the dtypes of each input.")                                                \
    X(invalid_shape, 422, false, "An input has the wrong number of dimensions or a bad length",    \
      "See GET /ops for the shapes the operation takes.")                                          \
    X(shape_mismatch, 422, false, "The shapes of the inputs do not fit together",                  \
      "See GET /ops for the shapes the operation takes.")                                          \
    X(not_finite, 422, false, "An input holds NaN or an infinity where none may be",               \
      "Remove or replace the values; `detail` says where the first one is.")                       \
    X(out_of_range, 422, false, "An input holds a value outside the range it may have",            \
      "Correct the values; `detail` says where the first one is and what is allowed.")             \
    X(invalid_reference, 422, false, "A reference is not well formed",                             \
      "Write {\"tensor\": ID} or {\"job\": ID, \"output\": NAME}, with \"slice\" where only a "    \
      "part "                                                                                      \
      "is meant.")                                                                                 \
    X(reference_not_found, 422, false, "An input refers to what is not there",                     \
      "Check the id; what was not used for long, or made way for others, has to be sent again.")   \
    X(job_not_ended, 409, true, "An input refers to a job that has not ended",                     \
      "Wait for the job, or send both jobs as steps of one graph (POST /graphs).")                 \
    X(input_failed, 422, false, "An input refers to a job that has no result",                     \
      "See `error` in the document of the job that `detail` names.")                               \
    X(no_such_device, 422, true, "No worker serves the device asked for",                          \
      "Use \"device\": \"auto\", or see GET /devices.")                                            \
    X(idempotency_conflict, 422, false, "The Idempotency-Key was used for another request",        \
      "Use a new key for a new request.")                                                          \
    X(queue_full, 429, true, "The queue is full",                                                  \
      "Send the request again after the seconds in Retry-After.")                                  \
    X(rate_limited, 429, true, "The key sends more requests a second than it may",                 \
      "Send the request again after the seconds in Retry-After.")                                  \
    X(too_many_failures, 429, true, "Too many requests of this address showed a wrong key",        \
      "Correct the key, and send the request again after the seconds in Retry-After.")             \
    X(too_many_streams, 429, true, "Too many event streams are open",                              \
      "Close one that you do not need, or raise the limit that `detail` names.")                   \
    X(quota_exceeded, 429, true, "The tenant has as much of the service as it may",                \
      "Wait until jobs of yours have ended, or forget results with DELETE /jobs/ID?forget=1, "     \
      "then send the request again.")                                                              \
    X(too_many_webhooks, 429, true, "Too many webhooks wait to be delivered",                      \
      "Send the job without `notify`, or again once the receiver has taken some.")                 \
    X(tensor_too_large, 413, false, "The tensors are larger than may be kept",                     \
      "Send smaller ones, or raise the limit that `detail` names.")                                \
    X(tensors_full, 429, true, "Tensors leave no room for new ones",                               \
      "Delete those that you do not need with DELETE /tensors/ID, or send the request again "      \
      "later.")                                                                                    \
    X(results_full, 429, true, "Results that are kept leave no room for those of new jobs",        \
      "Forget those you have fetched with DELETE /jobs/ID?forget=1, or send the request again "    \
      "later.")                                                                                    \
    X(too_many_connections, 503, true, "This address has too many connections open",               \
      "Use fewer connections, for more requests each, or raise the limit that `detail` names.")    \
    X(headers_too_large, 431, false, "The headers of the request are too large",                   \
      "Send shorter headers and query.")                                                           \
    X(internal_error, 500, true, "The service made a mistake", "Report it with `detail`.")         \
    X(queue_unavailable, 503, true, "The queue cannot be reached or refuses writes at present",    \
      "Send the request again after the seconds in Retry-After.")                                  \
    X(disk_full, 503, true, "The disk of the queue has too little space left for more jobs",       \
      "Send the request again after the seconds in Retry-After; whoever runs the service makes "   \
      "room on the disk of --data.")                                                               \
    X(job_lost, 503, true, "The queue does not know the job any more",                             \
      "Send it again. If nobody deleted it, Redis was emptied or lost its file: it has to keep "   \
      "one (appendonly yes) and to evict nothing.")                                                \
    X(no_space, 503, true, "There is no room for the tensors at present",                          \
      "Send the request again after the seconds in Retry-After.")                                  \
    X(draining, 503, true, "The service is shutting down", "Send the request to another one.")     \
    X(singular_matrix, 422, false, "The matrix is singular",                                       \
      "The system has no unique solution; use regression for a least-squares one.")                \
    X(not_positive_definite, 422, false, "The matrix is not positive definite",                    \
      "Check the matrix; solve takes others with assume_a \"symmetric\" or \"general\".")          \
    X(not_converged, 422, false, "The computation did not converge",                               \
      "Raise the number of iterations or change the parameters, where there are such.")            \
    X(deadline_exceeded, 504, true, "The deadline passed before the job ended",                    \
      "Send it again later, or with a longer deadline_ms.")                                        \
    X(cancelled, 409, false, "The job was cancelled", "Submit it again.")                          \
    X(inputs_lost, 500, true, "The tensors of the job are gone", "Submit the job again.")          \
    X(poisoned, 500, false, "The job ended several workers and was given up",                      \
      "Report it; do not send it again as it is.")                                                 \
    X(out_of_memory, 503, true, "The device has not enough memory for the job",                    \
      "Send it again later, or send a smaller problem.")                                           \
    X(device_error, 500, true, "The device failed while it ran the job", "Send it again.")         \
    X(job_too_long, 422, false, "The job takes longer than this service gives one job",            \
      "Send a smaller problem or fewer iterations, or raise the limit that `detail` names.")

enum blasd_code {
    BLASD_OK = 0,
#define X(name, status, retry, title, advice) BLASD_E_##name,
    BLASD_ERRORS(X)
#undef X
        BLASD_E_COUNT
};

/* What went wrong, where, in the user's words. A plain value: copy it freely, nothing to free. */
struct blasd_err {
    enum blasd_code code;
    char field[64];   /* the member at fault as a path, `inputs.a` or `params.alpha`; may be "" */
    char detail[256]; /* one sentence with the numbers that matter; never an internal name */
    int64_t least;    /* what the parameter `field` has to be for the job to run; 0: not told */
};

/* One row of the table. */
struct blasd_err_info {
    const char *name; /* static */
    int http_status;
    bool retry;
    const char *title;  /* static */
    const char *advice; /* static */
};

/* Fills `err` (which may be NULL) and returns -code, so that `return blasd_fail(...)` reads well.
 */
int blasd_fail(struct blasd_err *err, enum blasd_code code, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fails with no_space: memory has run out. */
int blasd_no_memory(struct blasd_err *err);

/* The row of `code`; never NULL (an unknown code gives internal_error's). */
const struct blasd_err_info *blasd_err_info(enum blasd_code code);

/* The code whose name is `name`, or BLASD_E_internal_error. */
enum blasd_code blasd_err_code(const char *name);

#endif
