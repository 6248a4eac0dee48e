/* Reads what a run is to be: a JSON file, and the files it names (bodies, expected answers).
 * Knows nothing of sockets. Read next: load_engine.c.
 *
 *   {"host": "127.0.0.1", "port": 8080, "connections": 64, "seconds": 5, "warmup": 0.5,
 *    "count": 0,            requests in all; then the run ends with the last of them
 *    "rate": 0,             open loop: arrivals a second; latency counts from when each was due
 *    "arrivals": "poisson", or "constant"
 *    "tls": false,          speak it; any certificate is taken
 *    "gather": false,       connect everything first, then send all at once
 *    "timeout": 60, "seed": 1,
 *    "poll": {"interval_ms": 10, "most_interval_ms": 200, "timeout": 120, "window": 1000, "suffix":
 * "", "ended": "\"state\":\"succeeded\"", "failed": "\"state\":\"failed\""}, "requests": [{"name":
 * "small", "weight": 1, "method": "POST", "path": "/jobs?wait=30", "headers": {"Content-Type":
 * "application/json"}, "body": "FILE", "status": 200, "contains": "text", "tail": "FILE",
 * "tail_float": 0, "tolerance": 0}]} */
#include "load.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_BODY 65536 /* up to here head and body go out as one piece */

static int complain(const char *what, const char *which) {
    fprintf(stderr, "load: %s: %s\n", what, which);
    return -1;
}

static double number(const json_t *object, const char *name, double otherwise) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static const char *text(const json_t *object, const char *name, const char *otherwise) {
    const json_t *value = json_object_get(object, name);
    return json_is_string(value) ? json_string_value(value) : otherwise;
}

static int64_t nanoseconds(double seconds) {
    return (int64_t)(seconds * 1e9);
}

/* Maps a whole file; an empty one gives "" of length 0. */
static int map_file(const char *path, const char **bytes, size_t *len) {
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *map = NULL;
    if (fd < 0 || fstat(fd, &stat) != 0) {
        if (fd >= 0) close(fd);
        return complain("cannot read", path);
    }
    *len = (size_t)stat.st_size;
    if (*len > 0) map = mmap(NULL, *len, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return complain("cannot map", path);
    *bytes = map;
    return 0;
}

static int build_head(const struct load_spec *spec, struct load_request *request,
                      const json_t *from) {
    const char *method = text(from, "method", "POST"), *name;
    json_t *value;
    FILE *out = open_memstream(&request->head, &request->head_len);
    if (out == NULL) return complain("no memory for", request->name);
    fprintf(out, "%s %s HTTP/1.1\r\nHost: %s:%d\r\n", method, text(from, "path", "/"), spec->host,
            spec->port);
    json_object_foreach(json_object_get(from, "headers"), name, value)
        fprintf(out, "%s: %s\r\n", name, json_is_string(value) ? json_string_value(value) : "");
    if (request->body != NULL || strcmp(method, "POST") == 0)
        fprintf(out, "Content-Length: %zu\r\n", request->body_len);
    fputs("\r\n", out);
    if (request->body_len > 0 && request->body_len <= SMALL_BODY) {
        fwrite(request->body, 1, request->body_len, out);
        munmap((void *)(uintptr_t)request->body, request->body_len);
        request->body = NULL;
        request->body_len = 0;
    }
    return fclose(out) == 0 ? 0 : complain("no memory for", request->name);
}

static int read_request(struct load_spec *spec, struct load_request *request, const json_t *from) {
    const char *body = text(from, "body", NULL), *tail = text(from, "tail", NULL);
    request->name = text(from, "name", "request");
    request->status = (int)number(from, "status", 200);
    request->contains = text(from, "contains", NULL);
    request->contains_len = request->contains == NULL ? 0 : strlen(request->contains);
    request->tail_float = (int)number(from, "tail_float", 0);
    request->tolerance = number(from, "tolerance", 0);
    if (request->tail_float != 0 && request->tail_float != 4 && request->tail_float != 8)
        return complain("tail_float must be 0, 4 or 8", request->name);
    request->latency = calloc(1, sizeof *request->latency);
    if (request->latency == NULL) return complain("no memory for", request->name);
    if (body != NULL && map_file(body, &request->body, &request->body_len) != 0) return -1;
    if (tail != NULL && map_file(tail, &request->tail, &request->tail_len) != 0) return -1;
    if (request->tail_float != 0 &&
        (request->tail == NULL || request->tail_len % (size_t)request->tail_float != 0))
        return complain("the tail is not a whole number of floats", request->name);
    return build_head(spec, request, from);
}

/* The mix: each request as often as its weight says, spread evenly, then shuffled a little by the
 * seed. */
static int make_order(struct load_spec *spec, const json_t *requests) {
    double credit[LOAD_MOST_REQUESTS] = {0}, weights[LOAD_MOST_REQUESTS], sum = 0;
    uint64_t state = spec->seed | 1;
    for (int i = 0; i < spec->request_count; i++) {
        weights[i] = number(json_array_get(requests, (size_t)i), "weight", 1);
        if (!(weights[i] >= 0)) return complain("a weight is negative", spec->requests[i].name);
        sum += weights[i];
    }
    if (!(sum > 0)) return complain("all weights are zero", "requests");
    for (int slot = 0; slot < LOAD_ORDER; slot++) {
        int best = 0;
        for (int i = 0; i < spec->request_count; i++) {
            credit[i] += weights[i] / sum;
            if (credit[i] > credit[best]) best = i;
        }
        credit[best] -= 1;
        spec->order[slot] = (unsigned char)best;
    }
    for (int slot = LOAD_ORDER - 1; slot > 0; slot--) {
        unsigned char other;
        int at;
        state = state * 6364136223846793005u + 1442695040888963407u;
        at = (int)((state >> 33) % (uint64_t)(slot + 1));
        other = spec->order[at];
        spec->order[at] = spec->order[slot];
        spec->order[slot] = other;
    }
    return 0;
}

static void read_poll(struct load_poll *poll, const json_t *from) {
    poll->on = json_is_object(from);
    poll->interval_ns = nanoseconds(number(from, "interval_ms", 10) * 1e-3);
    poll->most_interval_ns = nanoseconds(number(from, "most_interval_ms", 200) * 1e-3);
    poll->timeout_ns = nanoseconds(number(from, "timeout", 120));
    poll->window = (uint64_t)number(from, "window", 1000);
    poll->suffix = text(from, "suffix", "");
    poll->ended = text(from, "ended", "\"state\":\"succeeded\"");
    poll->failed = text(from, "failed", NULL);
    if (poll->interval_ns < 100000) poll->interval_ns = 100000;
    if (poll->most_interval_ns < poll->interval_ns) poll->most_interval_ns = poll->interval_ns;
}

static int check(const struct load_spec *spec) {
    if (spec->port < 1 || spec->port > 65535) return complain("not a port", "port");
    if (spec->connections < 1 || spec->connections > LOAD_MOST_CONNECTIONS)
        return complain("from 1 to 65536 are possible", "connections");
    if (spec->count == 0 && !(spec->duration_ns > 0))
        return complain("one is needed", "seconds or count");
    if (spec->duration_ns < 0 || spec->duration_ns / 1000000000 + 60 >= LOAD_SECONDS_MOST)
        return complain("too long", "seconds");
    if (spec->warmup_ns < 0 || !(spec->rate >= 0)) return complain("negative", "warmup or rate");
    if (spec->poll.on && (spec->count == 0 || spec->rate > 0))
        return complain("polling needs a count and a closed loop", "poll");
    return 0;
}

int load_spec_read(struct load_spec *spec, const char *path) {
    json_error_t error;
    const json_t *requests;
    memset(spec, 0, sizeof *spec);
    spec->json = json_load_file(path, 0, &error);
    if (spec->json == NULL) return complain(path, error.text);
    spec->host = text(spec->json, "host", "127.0.0.1");
    spec->port = (int)number(spec->json, "port", 0);
    spec->connections = (int)number(spec->json, "connections", 1);
    spec->duration_ns = nanoseconds(number(spec->json, "seconds", 0));
    spec->warmup_ns = nanoseconds(number(spec->json, "warmup", 0));
    spec->timeout_ns = nanoseconds(number(spec->json, "timeout", 60));
    spec->count = (uint64_t)number(spec->json, "count", 0);
    spec->rate = number(spec->json, "rate", 0);
    spec->poisson = strcmp(text(spec->json, "arrivals", "poisson"), "constant") != 0;
    spec->tls = json_is_true(json_object_get(spec->json, "tls"));
    spec->gather = json_is_true(json_object_get(spec->json, "gather"));
    spec->seed = (uint64_t)number(spec->json, "seed", 1);
    read_poll(&spec->poll, json_object_get(spec->json, "poll"));
    if (check(spec) != 0) return -1;
    requests = json_object_get(spec->json, "requests");
    if (json_array_size(requests) < 1 || json_array_size(requests) > LOAD_MOST_REQUESTS)
        return complain("from 1 to 64 are possible", "requests");
    for (size_t i = 0; i < json_array_size(requests); i++) {
        if (read_request(spec, &spec->requests[i], json_array_get(requests, i)) != 0) return -1;
        spec->request_count++;
    }
    return make_order(spec, requests);
}

static void unmap(const char *bytes, size_t len) {
    if (bytes != NULL) munmap((void *)(uintptr_t)bytes, len);
}

void load_spec_release(struct load_spec *spec) {
    for (int i = 0; i < LOAD_MOST_REQUESTS; i++) {
        struct load_request *request = &spec->requests[i];
        free(request->head);
        free(request->latency);
        unmap(request->body, request->body_len);
        unmap(request->tail, request->tail_len);
    }
    json_decref(spec->json);
    memset(spec, 0, sizeof *spec);
}
