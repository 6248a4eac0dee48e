/* blasd-load: drives an HTTP server as a specification says and prints what happened as JSON.
 *
 *   load SPECIFICATION.json
 *
 * The specification's form stands in load_spec.c. Read next: load_engine.c. */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static double cpu_seconds(const struct timeval *time) {
    return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

static json_t *statuses_json(const struct load_result *result) {
    json_t *statuses = json_object();
    for (int status = 0; status < 600; status++) {
        char name[8];
        if (result->statuses[status] == 0) continue;
        snprintf(name, sizeof name, "%d", status);
        json_object_set_new(statuses, name, json_integer((json_int_t)result->statuses[status]));
    }
    return statuses;
}

static json_t *requests_json(const struct load_spec *spec, struct load_histogram *all,
                             uint64_t *right) {
    json_t *list = json_object();
    for (int i = 0; i < spec->request_count; i++) {
        const struct load_request *request = &spec->requests[i];
        json_object_set_new(list, request->name,
                            json_pack("{s:I,s:I,s:o}", "right", (json_int_t)request->right, "wrong",
                                      (json_int_t)request->wrong, "latency_ms",
                                      load_histogram_json(request->latency)));
        load_histogram_merge(all, request->latency);
        *right += request->right;
    }
    return list;
}

static json_t *seconds_json(const struct load_result *result) {
    json_t *list = json_array();
    int last = LOAD_SECONDS_MOST - 1;
    while (last >= 0 && result->by_second[last] == 0) last--;
    for (int i = 0; i <= last; i++)
        json_array_append_new(list, json_integer((json_int_t)result->by_second[i]));
    return list;
}

static json_t *poll_json(const struct load_result *result) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:f,s:o}", "submitted", (json_int_t)result->submitted,
                     "ended", (json_int_t)result->ended, "failed", (json_int_t)result->failed,
                     "lost", (json_int_t)result->lost, "polls", (json_int_t)result->polls,
                     "submit_seconds", result->submit_seconds, "job_ms",
                     load_histogram_json(&result->jobs));
}

static int report(const struct load_spec *spec, const struct load_result *result) {
    struct load_histogram *all = calloc(1, sizeof *all);
    struct rusage usage;
    uint64_t right = 0;
    double seconds = (double)result->measured_ns * 1e-9;
    json_t *out, *requests;
    int rc;
    if (all == NULL) return -1;
    getrusage(RUSAGE_SELF, &usage);
    requests = requests_json(spec, all, &right);
    out = json_pack("{s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "seconds", seconds, "rate",
                    seconds > 0 ? (double)result->in_window / seconds : 0.0, "in_window",
                    (json_int_t)result->in_window, "right", (json_int_t)right, "sent",
                    (json_int_t)result->sent, "wrong", (json_int_t)result->wrong, "errors",
                    (json_int_t)result->errors, "timeouts", (json_int_t)result->timeouts,
                    "reopened", (json_int_t)result->reopened, "unsent", (json_int_t)result->unsent,
                    "retry_after", (json_int_t)result->retry_after, "aborted", result->aborted);
    json_object_set_new(out, "statuses", statuses_json(result));
    json_object_set_new(out, "latency_ms", load_histogram_json(all));
    json_object_set_new(out, "other_ms", load_histogram_json(&result->other));
    json_object_set_new(out, "requests", requests);
    json_object_set_new(out, "by_second", seconds_json(result));
    json_object_set_new(out, "bytes_out", json_integer((json_int_t)result->bytes_out));
    json_object_set_new(out, "bytes_in", json_integer((json_int_t)result->bytes_in));
    json_object_set_new(out, "cpu_user", json_real(cpu_seconds(&usage.ru_utime)));
    json_object_set_new(out, "cpu_system", json_real(cpu_seconds(&usage.ru_stime)));
    if (spec->poll.on) json_object_set_new(out, "jobs", poll_json(result));
    if (result->sample[0] != '\0')
        json_object_set_new(out, "sample",
                            json_stringn_nocheck(result->sample, strlen(result->sample)));
    rc = json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9) | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(out);
    free(all);
    return rc == 0 && fflush(stdout) == 0 ? 0 : -1;
}

int main(int argc, char **argv) {
    static struct load_spec spec;
    static struct load_result result;
    struct rlimit files;
    int rc = 1;
    if (argc != 2) {
        fprintf(stderr, "usage: %s SPECIFICATION.json\n", argv[0]);
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (load_spec_read(&spec, argv[1]) == 0 && load_run(&spec, &result) == 0 &&
        report(&spec, &result) == 0)
        rc = 0;
    load_spec_release(&spec);
    return rc;
}
