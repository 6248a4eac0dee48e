/* Every limit of the service, in one table: name, default, least, most, unit, meaning.
 *
 * Each can be set by `--limit name=value` of `blasd up`, `api` and `worker`, or by the environment
 * variable BLASD_NAME in capitals. docs/limits.md is generated from this table. A limit that is hit
 * answers with an error that names it. Read next: ../core/dtype.h. */
#ifndef BLASD_BASE_LIMITS_H
#define BLASD_BASE_LIMITS_H

#include <stdint.h>

struct blasd_err;

#define BLASD_KIB UINT64_C(1024)
#define BLASD_MIB (BLASD_KIB * 1024)
#define BLASD_GIB (BLASD_MIB * 1024)
#define BLASD_TIB (BLASD_GIB * 1024)

/* X(name, default, least, most, unit, meaning). A default of 0 bytes means "from the machine". */
#define BLASD_LIMITS(X)                                                                            \
    X(body_bytes, 4 * BLASD_GIB, BLASD_KIB, BLASD_TIB, "bytes", "largest request body")            \
    X(json_bytes, 64 * BLASD_MIB, BLASD_KIB, 4 * BLASD_GIB, "bytes",                               \
      "largest JSON request body; larger tensors travel as safetensors or .npy")                   \
    X(envelope_bytes, 256 * BLASD_KIB, BLASD_KIB, 16 * BLASD_MIB, "bytes",                         \
      "largest JSON request once its numbers are taken out, and largest safetensors header")       \
    X(json_depth, 32, 8, 1024, "levels", "deepest nesting of a JSON request")                      \
    X(multipart_parts, 64, 1, 1024, "parts", "most parts of a multipart request")                  \
    X(inline_bytes, 64 * BLASD_KIB, 0, 16 * BLASD_MIB, "bytes",                                    \
      "largest inputs, or outputs, of a job that travel through Redis; larger ones go to the "     \
      "blob store, and where that is a directory 1K to 256K go to segments in it in any case")     \
    X(answer_inline_elements, 4096, 0, 16 * BLASD_MIB, "elements",                                 \
      "largest output whose data stands in the job document")                                      \
    X(job_items, 100000000, 1, 1000000000000000, "problems",                                       \
      "most problems in one job: the product of its leading dimensions, broadcast")                \
    X(job_bytes, 64 * BLASD_GIB, BLASD_KIB, 64 * BLASD_TIB, "bytes",                               \
      "most memory for inputs, outputs and workspace that the plan of one job may ask for")        \
    X(job_s, 3600, 0, 31536000, "seconds",                                                         \
      "how long one job may compute: one predicted to take longer is refused, one that has run "   \
      "longer is ended (0: no limit)")                                                             \
    X(graph_steps, 1000, 1, 2000, "steps", "most steps of a graph")                                \
    X(graph_depth, 1000, 1, 2000, "steps",                                                         \
      "longest chain of steps of a graph, each of which reads an output of the step before it")    \
    X(graph_tensors, 7, 0, 7, "tensors",                                                           \
      "most tensors that are kept, and outputs of other jobs, that the steps of a graph read")     \
    X(graph_results, 40, 0, 40, "outputs", "most outputs that a graph gives as its results")       \
    X(intake_bytes, 0, BLASD_MIB, BLASD_TIB, "bytes",                                              \
      "request bodies being received at one time (0: half of the blob store's free space)")        \
    X(memory_bytes, 0, 4 * BLASD_MIB, BLASD_TIB, "bytes",                                          \
      "memory of one front end for requests and answers: unpacked bodies, pieces and packers; "    \
      "a request beyond it is answered 503 (0: a quarter of the memory)")                          \
    X(queue_jobs, 200000, 1, 100000000, "jobs", "jobs that are queued or running")                 \
    X(queue_bytes, 0, BLASD_MIB, BLASD_TIB, "bytes",                                               \
      "inputs and outputs of the jobs that are queued or running (0: half of the blob store)")     \
    X(disk_reserve_bytes, 0, BLASD_MIB, BLASD_TIB, "bytes",                                        \
      "free space below which `blasd up` takes no more jobs, on the disk of --data; half as much " \
      "is reserved for queued jobs (0: a 16th of the disk, from 8M to 128M)")                      \
    X(ready_workers, 1, 0, 1000000, "workers",                                                     \
      "live workers below which /health/ready says no; with 0 jobs for a class without any wait, " \
      "too, where workers are started as work comes")                                              \
    X(queue_wait_ms, 1000, 0, 60000, "milliseconds",                                               \
      "how long a small request that finds the queue full waits for room before it is refused; "   \
      "some longer where many wait, for jobs go before refusals")                                  \
    X(wait_replicas, 0, 0, 16, "replicas",                                                         \
      "replicas of Redis that must have a job, or a tensor that is kept, before it is "            \
      "acknowledged (0: none are asked)")                                                          \
    X(wait_replicas_ms, 1000, 1, 3000, "milliseconds",                                             \
      "how long they have for that; then the answer is 503, though the job may run")               \
    X(record_bytes, 0, BLASD_MIB, BLASD_TIB, "bytes",                                              \
      "results kept for fetching (0: a quarter of the blob store): those promised by an answer "   \
      "202 stay for their time; room for those of queued jobs is reserved, and new jobs are "      \
      "rejected when it is used up; with keys a tenant gets at most as much as is still free")     \
    X(record_sync_bytes, 0, BLASD_MIB, BLASD_TIB, "bytes",                                         \
      "results of waited-for jobs (0: a 64th of the blob store): if a tenant leaves less than "    \
      "half of it free, its next results stay for less time, 2 s at the least")                    \
    X(record_sync_s, 60, 1, 86400, "seconds",                                                      \
      "how long after its end the result of a waited-for job is kept where there is room, and "    \
      "its Idempotency-Key is known in any case")                                                  \
    X(record_async_s, 3600, 1, 2592000, "seconds",                                                 \
      "how long the result of any other job is kept, once it was promised by an answer 202, and "  \
      "its Idempotency-Key is known")                                                              \
    X(tensor_bytes, 0, BLASD_MIB, BLASD_TIB, "bytes",                                              \
      "tensors that are kept, or that queued jobs will keep (0: a quarter of the blob store); "    \
      "beyond it a tenant's own go that were not used for longest, but what queued jobs refer to") \
    X(tensors, 100000, 1, 10000000, "tensors", "how many tensors are kept")                        \
    X(tensor_life_s, 3600, 1, 2592000, "seconds",                                                  \
      "how long a tensor is kept from its last use on, where nothing else was asked for")          \
    X(tensor_life_most_s, 604800, 1, 2592000, "seconds", "the longest that may be asked for")      \
    X(pool_bytes, 0, 1, BLASD_TIB, "bytes",                                                        \
      "files of removed blobs kept for up to a minute for the next ones (0: a sixteenth of the "   \
      "blob store; less than 256K: none)")                                                         \
    X(url_s, 600, 1, 86400, "seconds", "how long an input may take to come from its URL")          \
    X(url_transfers, 64, 1, 10000, "transfers",                                                    \
      "inputs that one front end fetches by URL at a time; with keys a quarter of them for one "   \
      "tenant, and the rest wait")                                                                 \
    X(webhooks, 100000, 1, 10000000, "webhooks",                                                   \
      "webhooks of jobs that are queued, running, or have ended and are not delivered yet; with "  \
      "keys those of one tenant may be three quarters of it, and to one host a tenth")             \
    X(webhook_s, 86400, 1, 2592000, "seconds",                                                     \
      "how long after its job's end a webhook is tried again")                                     \
    X(ended_jobs, 0, 0, 100000000, "jobs",                                                         \
      "about how many ended jobs the Redis stream {QUEUE}:ended keeps, each with its use of "      \
      "resources (0: the stream is not written)")                                                  \
    X(wait_s, 300, 1, 86400, "seconds", "longest wait that one request may ask for")               \
    X(deadline_ms, 86400000, 1, 2592000000, "milliseconds", "longest deadline of a job")           \
    X(connections, 16384, 16, 1000000, "connections", "open connections of one front end")         \
    X(connection_idle_s, 60, 1, 86400, "seconds", "how long an idle connection stays open")        \
    X(connections_per_address, 0, 1, 1000000, "connections",                                       \
      "of these, from one address, one /64 of IPv6 or one local user (0: half of them); further "  \
      "ones are answered 503 and closed; if all are in use, the address with most gives way")      \
    X(request_s, 60, 1, 86400, "seconds",                                                          \
      "how long a request's head may take to come, and its body, which has a second more for "     \
      "each request_rate bytes that came")                                                         \
    X(request_rate, 16 * BLASD_KIB, 1, BLASD_GIB, "bytes a second",                                \
      "how fast a body that takes longer than request_s has to come, on average")                  \
    X(connection_bytes, 32 * BLASD_KIB, 4 * BLASD_KIB, 16 * BLASD_MIB, "bytes",                    \
      "memory of one connection for headers and the receive buffer; one that begins with a post "  \
      "of 4K or less has 16K, up to 64 that begin with a body of 1M or more have 1M each")         \
    X(event_streams, 256, 0, 65536, "streams",                                                     \
      "streams of GET /events that one front end holds open; with keys a quarter of them for one " \
      "tenant")                                                                                    \
    X(event_rate, 2000, 1, 1000000, "events a second",                                             \
      "events that one stream is sent; a slow reader loses some, and the stream says how many")    \
    X(list_jobs, 100, 1, 100, "jobs", "most jobs on a page of GET /jobs")                          \
    X(stop_s, 5, 1, 86400, "seconds",                                                              \
      "how long a computation that must end (cancelled, past its deadline or job_s, its lease "    \
      "lost) may go on before its worker ends itself")                                             \
    X(drain_s, 20, 1, 86400, "seconds",                                                            \
      "how long running jobs of a worker that drains may compute before they go back "             \
      "to the queue")                                                                              \
    X(silence_s, 10, 2, 86400, "seconds",                                                          \
      "how long the front end, a worker or the private Redis may give no sign of life before "     \
      "`blasd up` replaces it; a worker whose loop stands still for three times as long ends "     \
      "itself")                                                                                    \
    X(log_jobs, 20, 0, 1000000, "lines a second",                                                  \
      "lines that a process logs about refused, failed and cancelled jobs; further lines are "     \
      "counted")                                                                                   \
    X(otlp_spans, 8192, 16, 10000000, "spans",                                                     \
      "spans that wait to be sent (--otlp); further spans are dropped and counted")                \
    X(lease_ms, 10000, 500, 600000, "milliseconds",                                                \
      "how long a silent worker keeps its jobs before others take them")                           \
    X(attempts, 5, 1, 100, "attempts", "workers that a job may end before it is given up")         \
    X(claim_jobs, 256, 1, 65536, "jobs", "most jobs a worker takes at once")                       \
    X(claim_bytes, BLASD_GIB, BLASD_MIB, BLASD_TIB, "bytes",                                       \
      "inputs and outputs of the jobs a worker takes at once; one job may be larger")              \
    X(batch_flops, 200000000000, 1000000, 1000000000000000000, "operations",                       \
      "work in one batch; one job may be larger")

struct blasd_limits {
#define X(name, preset, least, most, unit, meaning) uint64_t name;
    BLASD_LIMITS(X)
#undef X
};

struct blasd_limit_info {
    const char *name; /* static */
    uint64_t preset, least, most;
    const char *unit, *meaning; /* static */
};

/* Fills in the defaults. */
void blasd_limits_init(struct blasd_limits *limits);
/* Sets limits from environment variables named BLASD_ and the limit's name in capitals. */
int blasd_limits_from_env(struct blasd_limits *limits, struct blasd_err *err);
/* Sets one limit from text of the form name=value; the value may end in K, M, G or T (KiB …). */
int blasd_limits_set(struct blasd_limits *limits, const char *assignment, struct blasd_err *err);
/* The value of limit number `i`. */
uint64_t blasd_limits_get(const struct blasd_limits *limits, int i);
/* The table row number `i`, or NULL past the end. */
const struct blasd_limit_info *blasd_limits_info(int i);

#endif
