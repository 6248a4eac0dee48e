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
    X(malformed_json, 400, false, "Invalid JSON",                                                  \
      "Send one JSON object; write NaN and infinities as the strings \"NaN\", \"Infinity\", "      \
      "\"-Infinity\".")                                                                            \
    X(malformed_safetensors, 400, false, "Invalid safetensors file",                               \
      "Write it with a safetensors library; the header must match the bytes that follow.")         \
    X(malformed_npy, 400, false, "Invalid .npy file",                                              \
      "Write it with numpy.save(..., allow_pickle=False).")                                        \
    X(malformed_multipart, 400, false, "Invalid multipart/form-data",                              \
      "Send it as `curl -F name=@file.npy` does.")                                                 \
    X(feature_removed, 400, false, "Removed feature", "Use the replacement that is named.")        \
    X(malformed_query, 400, false, "Invalid query parameter or header",                            \
      "See GET /openapi.json for the parameters of this route.")                                   \
    X(unauthorized, 401, false, "Missing or invalid API key",                                      \
      "Send `Authorization: Bearer KEY`; the operator creates keys with `blasd keys add`.")        \
    X(forbidden, 403, false, "Insufficient rights",                                                \
      "Use a key whose role and scopes cover the request.")                                        \
    X(forbidden_host, 403, false, "Unknown Host header",                                           \
      "Use the address the service listens on, or start it with --allow-host NAME.")               \
    X(forbidden_origin, 403, false, "Request from a web page of another origin",                   \
      "Send the request from a program, or start the service with --allow-origin ORIGIN.")         \
    X(sharing_off, 403, false, "Shared memory is disabled",                                        \
      "Send the tensors in the body, or start the service with --share.")                          \
    X(route_not_found, 404, false, "Unknown path", "See GET /openapi.json for the routes.")        \
    X(job_not_found, 404, false, "Unknown job", "Check the id; POST /jobs returns it.")            \
    X(output_not_found, 404, false, "Unknown output of the job",                                   \
      "See `outputs` in the job document for the names.")                                          \
    X(tensor_not_found, 404, false, "Unknown tensor", "Check the id; POST /tensors returns it.")   \
    X(method_not_allowed, 405, false, "Method not allowed",                                        \
      "See the Allow header, or GET /openapi.json.")                                               \
    X(not_acceptable, 406, false, "No acceptable response format",                                 \
      "Accept application/json or application/x-safetensors; for a single output also "            \
      "application/x-npy.")                                                                        \
    X(request_timeout, 408, true, "Request timeout",                                               \
      "Send the request without pauses, or raise the limit that is named.")                        \
    X(not_finished, 409, true, "The job has not ended",                                            \
      "Wait with GET /jobs/ID?wait=SECONDS, then ask again.")                                      \
    X(job_ended, 409, false, "The job has already ended",                                          \
      "Delete it and its tensors with DELETE /jobs/ID?forget=1.")                                  \
    X(record_expired, 410, false, "The record of the job has expired",                             \
      "Fetch results soon after the job ends, or submit it again.")                                \
    X(tensor_expired, 410, false, "The tensor has expired or was evicted",                         \
      "Upload it again; each use, and PATCH /tensors/ID, extend its TTL.")                         \
    X(body_too_large, 413, false, "Body too large",                                                \
      "Send a smaller problem, or raise the limit that is named.")                                 \
    X(job_too_large, 413, false, "The job needs too much memory",                                  \
      "Send a smaller problem, or raise the limit that is named.")                                 \
    X(range_not_satisfiable, 416, false, "Range beyond the end of the output",                     \
      "See Content-Range for its size.")                                                           \
    X(unsupported_media_type, 415, false, "Unsupported body format",                               \
      "Send application/json, application/x-safetensors or multipart/form-data.")                  \
    X(body_file_refused, 422, false, "Invalid file in Body-File",                                  \
      "See GET /share for the directory and the requirements.")                                    \
    X(unknown_operation, 422, false, "Unknown operation", "See GET /ops.")                         \
    X(unknown_field, 422, false, "Unknown member", "Remove it.")                                   \
    X(invalid_field, 422, false, "Invalid value of a member", "Correct the value.")                \
    X(url_not_allowed, 422, false, "Address of the URL is not allowed",                            \
      "Use a host that the operator allows with --outgoing-hosts, with the listed scheme and "     \
      "port.")                                                                                     \
    X(url_refused, 422, false, "The remote file cannot be used",                                   \
      "Check the URL with curl: it must return 200 with Content-Length, without a redirect.")      \
    X(url_unavailable, 502, true, "The remote server failed", "Send the request again.")           \
    X(unknown_input, 422, false, "Unknown input of the operation",                                 \
      "See GET /ops for the names of its inputs.")                                                 \
    X(unknown_step, 422, false, "Unknown step of the graph", "Use a name from `steps`.")           \
    X(unknown_output, 422, false, "Unknown output",                                                \
      "See GET /ops for the outputs of the operation.")                                            \
    X(graph_cycle, 422, false, "Cycle in the graph",                                               \
      "Remove the cycle: a step cannot depend on its own output.")                                 \
    X(graph_too_large, 413, false, "Graph too large",                                              \
      "Send several graphs, or raise the limit that is named.")                                    \
    X(missing_field, 422, false, "Missing member", "Add the member.")                              \
    X(missing_input, 422, false, "Missing input", "Add the input.")                                \
    X(unknown_parameter, 422, false, "Unknown parameter of the operation",                         \
      "See GET /ops for the names of its parameters.")                                             \
    X(invalid_parameter, 422, false, "Invalid value of a parameter",                               \
      "See GET /ops for its type and range.")                                                      \
    X(invalid_tensor, 422, false, "Invalid tensor",                                                \
      "Send nested lists of equal lengths, or dtype, shape and data that agree.")                  \
    X(unsupported_dtype, 422, false, "Unsupported dtype",                                          \
      "See GET /ops for the dtypes of each input.")                                                \
    X(invalid_shape, 422, false, "Invalid number of dimensions or length",                         \
      "See GET /ops for the shapes of each input.")                                                \
    X(shape_mismatch, 422, false, "Shapes of the inputs do not match",                             \
      "See GET /ops for the shapes of each input.")                                                \
    X(not_finite, 422, false, "NaN or infinity in an input", "Remove or replace the values.")      \
    X(out_of_range, 422, false, "Value out of range in an input", "Correct the values.")           \
    X(invalid_reference, 422, false, "Invalid reference",                                          \
      "Write {\"tensor\": ID} or {\"job\": ID, \"output\": NAME}, optionally with \"slice\".")     \
    X(reference_not_found, 422, false, "Unknown or expired reference",                             \
      "Check the id, or upload the tensor again.")                                                 \
    X(job_not_ended, 409, true, "Reference to a job that has not ended",                           \
      "Wait for the job, or send both jobs as steps of one graph (POST /graphs).")                 \
    X(input_failed, 422, false, "Reference to a job without a result",                             \
      "See `error` in the document of that job.")                                                  \
    X(no_such_device, 422, true, "No worker for the requested device",                             \
      "Use \"device\": \"auto\", or see GET /devices.")                                            \
    X(idempotency_conflict, 422, false, "Idempotency-Key of another request",                      \
      "Use a new key for a new request.")                                                          \
    X(queue_full, 429, true, "Queue full", "Send the request again after Retry-After seconds.")    \
    X(rate_limited, 429, true, "Rate limit of the key exceeded",                                   \
      "Send the request again after Retry-After seconds.")                                         \
    X(too_many_failures, 429, true, "Too many invalid keys from this address",                     \
      "Correct the key, and send the request again after Retry-After seconds.")                    \
    X(too_many_streams, 429, true, "Too many event streams",                                       \
      "Close a stream, or raise the limit that is named.")                                         \
    X(quota_exceeded, 429, true, "Quota of the tenant exceeded",                                   \
      "Wait for jobs to end, or delete results with DELETE /jobs/ID?forget=1.")                    \
    X(too_many_webhooks, 429, true, "Too many pending webhooks",                                   \
      "Send the job without `notify`, or wait until the receiver has accepted some.")              \
    X(tensor_too_large, 413, false, "Tensors too large to store",                                  \
      "Send smaller tensors, or raise the limit that is named.")                                   \
    X(tensors_full, 429, true, "No space for stored tensors",                                      \
      "Delete tensors with DELETE /tensors/ID, or send the request again later.")                  \
    X(results_full, 429, true, "No space for results",                                             \
      "Delete fetched results with DELETE /jobs/ID?forget=1, or send the request again later.")    \
    X(too_many_connections, 503, true, "Too many connections from this address",                   \
      "Reuse connections, or raise the limit that is named.")                                      \
    X(headers_too_large, 431, false, "Headers too large",                                          \
      "Send shorter headers and a shorter query.")                                                 \
    X(internal_error, 500, true, "Internal error", "Report it with the detail.")                   \
    X(queue_unavailable, 503, true, "Queue unavailable",                                           \
      "Send the request again after Retry-After seconds.")                                         \
    X(disk_full, 503, true, "Disk of the queue full",                                              \
      "Free space on the disk of --data, and send the request again after Retry-After seconds.")   \
    X(job_lost, 503, true, "Job lost",                                                             \
      "Send it again. The operator must keep Redis' data: appendonly yes, no eviction.")           \
    X(no_space, 503, true, "No memory for the tensors",                                            \
      "Send the request again after Retry-After seconds.")                                         \
    X(draining, 503, true, "The service is shutting down",                                         \
      "Send the request to another front end, or again later.")                                    \
    X(singular_matrix, 422, false, "Singular matrix", "Use lstsq for a least-squares solution.")   \
    X(not_positive_definite, 422, false, "Matrix not positive definite",                           \
      "Check the matrix, or use assume_a \"symmetric\" or \"general\" of solve.")                  \
    X(not_converged, 422, false, "No convergence",                                                 \
      "Raise the number of iterations, or change the parameters.")                                 \
    X(deadline_exceeded, 504, true, "Deadline exceeded",                                           \
      "Send it again later, or with a longer deadline_ms.")                                        \
    X(cancelled, 409, false, "Job cancelled", "Submit it again.")                                  \
    X(inputs_lost, 500, true, "Inputs of the job lost", "Submit the job again.")                   \
    X(poisoned, 500, false, "The job crashed several workers and was aborted",                     \
      "Report it; do not send it again unchanged.")                                                \
    X(out_of_memory, 503, true, "Out of device memory",                                            \
      "Send it again later, or send a smaller problem.")                                           \
    X(device_error, 500, true, "Device failure during the job", "Send it again.")                  \
    X(job_too_long, 422, false, "The job takes too long",                                          \
      "Send a smaller problem or fewer iterations, or raise the limit that is named.")

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
