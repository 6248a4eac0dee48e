/* Every metric of GET /metrics, in one table: name, type, labels, whose it is, meaning.
 *
 * docs/metrics.md is generated from it, and nothing is written there that has no row here. Those
 * of a process are its own: sum them over the front ends. Those of the deployment are what Redis
 * and the workers say, and the same at each front end: take them from one. Read next:
 * ../http/metric_rows.h. */
#ifndef BLASD_BASE_METRIC_TABLE_H
#define BLASD_BASE_METRIC_TABLE_H

/* X(name, type, labels, scope, meaning) */
#define BLASD_METRICS(X)                                                                           \
    X(blasd_build_info, gauge, "version", process, "The version that runs.")                       \
    X(blasd_http_requests_total, counter, "route method status", process, "Requests answered.")    \
    X(blasd_http_problems_total, counter, "code", process,                                         \
      "Requests answered with an error, by its code (docs/errors.md): which limit rejected them, " \
      "or the kind of error.")                                                                     \
    X(blasd_http_connections, gauge, "", process, "Open connections.")                             \
    X(blasd_http_requests_in_flight, gauge, "", process, "Requests not yet answered.")             \
    X(blasd_http_requests_waiting, gauge, "", process, "Requests that wait for a job.")            \
    X(blasd_http_received_bytes_total, counter, "", process, "Bytes of request bodies.")           \
    X(blasd_http_sent_bytes_total, counter, "", process, "Bytes of answers' bodies.")              \
    X(blasd_intake_bytes, gauge, "", process, "Bytes of request bodies being received.")           \
    X(blasd_intake_bytes_limit, gauge, "", process, "The limit intake_bytes, as it is now.")       \
    X(blasd_http_memory_bytes, gauge, "", process,                                                 \
      "Memory that requests and answers hold: unpacked bodies and pieces.")                        \
    X(blasd_http_memory_bytes_limit, gauge, "", process, "The limit memory_bytes, as it is now.")  \
    X(blasd_jobs_sent_total, counter, "device", process,                                           \
      "Jobs queued, by the class of devices they were sent to; auto: whichever is free.")          \
    X(blasd_redis_call_seconds, histogram, "", process,                                            \
      "Round trips to Redis, from sending a call to its reply; one carries many jobs.")            \
    X(blasd_limit, gauge, "limit unit", process,                                                   \
      "The limits (docs/limits.md), as they were set; 0 mostly means: from the machine.")          \
    X(blasd_otlp_spans_total, counter, "outcome", process,                                         \
      "Spans sent, dropped because more came than could be sent, or refused by the collector.")    \
    X(process_cpu_seconds_total, counter, "", process, "User and system time.")                    \
    X(process_resident_memory_bytes, gauge, "", process, "Resident memory.")                       \
    X(process_start_time_seconds, gauge, "", process, "Start of the service, since 1970.")         \
    X(process_open_fds, gauge, "", process, "Open descriptors.")                                   \
    X(process_max_fds, gauge, "", process, "Most open descriptors.")                               \
    X(blasd_queue_available, gauge, "", process,                                                   \
      "1 while this front end reaches the queue and it takes jobs.")                               \
    X(blasd_queue_jobs, gauge, "", deployment, "Jobs queued or running.")                          \
    X(blasd_queue_jobs_limit, gauge, "", deployment, "The limit queue_jobs.")                      \
    X(blasd_queue_bytes, gauge, "", deployment, "Inputs and outputs of those jobs.")               \
    X(blasd_queue_bytes_limit, gauge, "", deployment, "The limit queue_bytes, as it is now.")      \
    X(blasd_queue_waiting_jobs, gauge, "class priority", deployment,                               \
      "Jobs that have not begun, by the class of devices they wait for.")                          \
    X(blasd_queue_claimed_jobs, gauge, "class priority", deployment,                               \
      "Jobs that have begun, by the class of devices they asked for.")                             \
    X(blasd_queue_oldest_seconds, gauge, "class priority", deployment,                             \
      "How long the oldest job that has not begun has waited; 0: none waits.")                     \
    X(blasd_queue_running_jobs, gauge, "", deployment, "Jobs whose batch has begun.")              \
    X(blasd_results_bytes, gauge, "", deployment, "Results that are kept for fetching.")           \
    X(blasd_tensors, gauge, "", deployment, "Tensors that are kept.")                              \
    X(blasd_tensor_bytes, gauge, "", deployment, "Bytes of tensors that are kept.")                \
    X(blasd_tensors_evicted_total, counter, "", deployment, "Tensors that made way for others.")   \
    X(blasd_webhooks_waiting, gauge, "", deployment,                                               \
      "Webhooks of jobs that have ended, which are not delivered yet.")                            \
    X(blasd_webhooks_total, counter, "outcome", deployment,                                        \
      "Tries to deliver webhooks: delivered, failed (it is tried again), or given_up.")            \
    X(blasd_workers, gauge, "class", deployment, "Live workers by device class.")                  \
    X(blasd_jobs_submitted_total, counter, "op", deployment, "Jobs taken in.")                     \
    X(blasd_jobs_total, counter, "op state", deployment, "Jobs that have ended, by final state.")  \
    X(blasd_job_failures_total, counter, "op code", deployment, "Failed jobs, by error code.")     \
    X(blasd_job_phase_seconds, histogram, "op phase class worker", deployment,                     \
      "Where the time of jobs went that this worker ran: receive, queue, batch_wait, upload, "     \
      "compute, download, and total.")                                                             \
    X(blasd_batch_jobs, histogram, "op class worker", deployment,                                  \
      "Jobs that ran as one call of a kernel.")                                                    \
    X(blasd_device_memory_bytes, gauge, "worker device device_name", deployment,                   \
      "Memory of the worker's device.")                                                            \
    X(blasd_device_memory_free_bytes, gauge, "worker device device_name", deployment,              \
      "What of it is free.")                                                                       \
    X(blasd_device_busy_ratio, gauge, "worker device device_name", deployment,                     \
      "Share of the time in which the worker ran a batch.")                                        \
    X(blasd_device_utilization_ratio, gauge, "worker device device_name", deployment,              \
      "Share of the time in which anything ran on the card, as it tells itself.")                  \
    X(blasd_device_power_watts, gauge, "worker device device_name", deployment,                    \
      "Power that the card draws now.")                                                            \
    X(blasd_device_energy_joules_total, counter, "worker device device_name", deployment,          \
      "Energy that the card has used since its driver was loaded.")                                \
    X(blasd_worker_otlp_spans_total, counter, "worker outcome", deployment,                        \
      "As blasd_otlp_spans_total, of the workers.")                                                \
    X(blasd_tenant_waiting_jobs, gauge, "tenant", deployment,                                      \
      "Jobs of a tenant that no worker has taken yet. Only with --metrics-tenants, as the next.")  \
    X(blasd_tenant_jobs, gauge, "tenant", deployment,                                              \
      "Jobs of a tenant that are queued or running.")                                              \
    X(blasd_tenant_bytes, gauge, "tenant", deployment, "Inputs and outputs of those jobs.")        \
    X(blasd_tenant_results_bytes, gauge, "tenant", deployment,                                     \
      "Results of a tenant that are kept for fetching.")                                           \
    X(blasd_tenant_ended_jobs_total, counter, "tenant worker", deployment,                         \
      "Jobs of a tenant that the worker has ended; of the first 64 tenants, and of others.")       \
    X(blasd_tenant_device_seconds_total, counter, "tenant worker", deployment,                     \
      "Device time of the tenant's jobs: upload, compute and download, each job's share of its "   \
      "batch.")                                                                                    \
    X(blasd_tenant_energy_joules_total, counter, "tenant worker", deployment,                      \
      "Energy that the device used for the tenant's jobs, if the device reports it.")

enum blasd_metric {
#define X(name, type, labels, scope, meaning) BLASD_METRIC_##name,
    BLASD_METRICS(X)
#undef X
        BLASD_METRIC_COUNT
};

struct blasd_metric_info {
    const char *name, *type; /* type: counter, gauge, histogram; static, as all here */
    const char *labels;      /* names, with a space between */
    const char *scope;       /* process or deployment */
    const char *meaning;
};

const struct blasd_metric_info *blasd_metric_info(enum blasd_metric metric);

#endif
