/* The plain C server that the service is compared with: libmicrohttpd, and the computation in the
 * handler. No queue, no record, no recovery, no checks beyond what keeps it alive: the least that
 * HTTP can cost.
 *
 *   peer_mhd [--loops N] [--blas-threads N]     prints `ready http://127.0.0.1:PORT`, ends on
 * SIGTERM
 *
 *   POST /json            {"inputs":{"a":[[..]],"b":[[..]]}} -> {"c":[[..]]}, read and written by
 * jansson POST /binary?m&k&n    two float32 matrices, raw -> their product, raw POST /sink reads
 * the body and forgets it
 *
 * Each loop is a thread with a daemon and a listening socket of its own, 32 KiB a connection, and
 * buffers that are used again: its best form. The loops wait on libmicrohttpd's epoll descriptor
 * themselves, because its internal epoll threads can sleep while 128 connections are ready. */
#include <cblas.h>
#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LOOPS_MOST 16
#define BODY_MOST (2ull << 30)
#define SPARE_BYTES 65536 /* smaller buffers are not worth keeping */

extern void openblas_set_num_threads(int threads);

struct buffer {
    struct buffer *next;
    size_t cap;
    char bytes[] __attribute__((aligned(64)));
};

enum route { ROUTE_NONE, ROUTE_JSON, ROUTE_BINARY, ROUTE_SINK };

struct request {
    enum route route;
    struct buffer *body;
    size_t len;
    uint64_t sunk;
};

static _Thread_local struct buffer *spare;
static atomic_bool stopping;

/* --- buffers
 * ------------------------------------------------------------------------------------------ */

static struct buffer *take_buffer(size_t size) {
    struct buffer **at = &spare, *buffer;
    for (; *at != NULL; at = &(*at)->next)
        if ((*at)->cap >= size && (*at)->cap <= 4 * size) {
            buffer = *at;
            *at = buffer->next;
            return buffer;
        }
    buffer = aligned_alloc(64, (sizeof *buffer + size + 63) / 64 * 64);
    if (buffer != NULL) buffer->cap = size;
    return buffer;
}

static void give_buffer(struct buffer *buffer) {
    if (buffer == NULL) return;
    if (buffer->cap < SPARE_BYTES) {
        free(buffer);
        return;
    }
    buffer->next = spare;
    spare = buffer;
}

static void on_sent(void *cls) {
    give_buffer(cls);
}

/* --- answers
 * ------------------------------------------------------------------------------------------ */

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status, char *text) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result rc;
    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", "application/json");
    rc = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned status, const char *why) {
    char text[160], *copy;
    snprintf(text, sizeof text, "{\"error\":\"%s\"}", why);
    copy = strdup(text);
    return copy == NULL ? MHD_NO : answer_text(connection, status, copy);
}

/* A matrix from a nested list: rows and columns, elements in new memory. NULL where it is none. */
static double *read_matrix(const json_t *rows, int *m, int *n) {
    size_t height = json_array_size(rows), width = json_array_size(json_array_get(rows, 0));
    double *elements;
    if (height == 0 || width == 0 || height > 4096 || width > 4096) return NULL;
    elements = malloc(height * width * sizeof *elements);
    if (elements == NULL) return NULL;
    for (size_t i = 0; i < height; i++) {
        const json_t *row = json_array_get(rows, i);
        if (json_array_size(row) != width) {
            free(elements);
            return NULL;
        }
        for (size_t j = 0; j < width; j++)
            elements[i * width + j] = json_number_value(json_array_get(row, j));
    }
    *m = (int)height;
    *n = (int)width;
    return elements;
}

static json_t *write_matrix(const double *elements, int m, int n) {
    json_t *rows = json_array();
    for (int i = 0; i < m; i++) {
        json_t *row = json_array();
        for (int j = 0; j < n; j++)
            json_array_append_new(row, json_real(elements[(size_t)i * (size_t)n + (size_t)j]));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:o}", "c", rows);
}

static enum MHD_Result answer_json(struct MHD_Connection *connection, struct request *request) {
    json_t *document =
        request->body == NULL ? NULL : json_loadb(request->body->bytes, request->len, 0, NULL);
    json_t *inputs = json_object_get(document, "inputs"), *answer;
    int m = 0, k = 0, rows = 0, n = 0;
    double *a = read_matrix(json_object_get(inputs, "a"), &m, &k), *b, *c = NULL;
    char *text = NULL;
    b = read_matrix(json_object_get(inputs, "b"), &rows, &n);
    if (a != NULL && b != NULL && rows == k) c = malloc((size_t)m * (size_t)n * sizeof *c);
    if (c != NULL) {
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, k, b, n, 0, c, n);
        answer = write_matrix(c, m, n);
        text = json_dumps(answer, JSON_COMPACT);
        json_decref(answer);
    }
    free(a);
    free(b);
    free(c);
    json_decref(document);
    if (text == NULL) return refuse(connection, 400, "not two matrices that fit");
    return answer_text(connection, 200, text);
}

static size_t argument(struct MHD_Connection *connection, const char *name) {
    const char *value = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
    unsigned long number = value == NULL ? 0 : strtoul(value, NULL, 10);
    return number > 65536 ? 0 : number;
}

static enum MHD_Result answer_binary(struct MHD_Connection *connection, struct request *request) {
    size_t m = argument(connection, "m"), k = argument(connection, "k"),
           n = argument(connection, "n");
    struct MHD_Response *response;
    struct buffer *out;
    enum MHD_Result rc;
    const float *a;
    if (m == 0 || k == 0 || n == 0 || request->body == NULL ||
        request->len != (m * k + k * n) * sizeof(float))
        return refuse(connection, 400, "m, k, n and the body do not agree");
    out = take_buffer(m * n * sizeof(float));
    if (out == NULL) return MHD_NO;
    a = (const float *)(const void *)request->body->bytes;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, 1, a, (int)k,
                a + m * k, (int)n, 0, (float *)(void *)out->bytes, (int)n);
    response = MHD_create_response_from_buffer_with_free_callback_cls(m * n * sizeof(float),
                                                                      out->bytes, on_sent, out);
    if (response == NULL) {
        give_buffer(out);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", "application/octet-stream");
    rc = MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return rc;
}

/* --- requests
 * ----------------------------------------------------------------------------------------- */

static struct request *new_request(struct MHD_Connection *connection, const char *url) {
    struct request *request = calloc(1, sizeof *request);
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    unsigned long long size = length == NULL ? 0 : strtoull(length, NULL, 10);
    if (request == NULL) return NULL;
    if (strcmp(url, "/json") == 0) request->route = ROUTE_JSON;
    if (strcmp(url, "/binary") == 0) request->route = ROUTE_BINARY;
    if (strcmp(url, "/sink") == 0) request->route = ROUTE_SINK;
    if (request->route != ROUTE_SINK && size > 0 && size <= BODY_MOST)
        request->body = take_buffer((size_t)size);
    return request;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state) {
    struct request *request = *state;
    (void)cls, (void)method, (void)version;
    if (request == NULL) {
        *state = new_request(connection, url);
        return *state == NULL ? MHD_NO : MHD_YES;
    }
    if (*upload_size > 0) {
        if (request->route == ROUTE_SINK)
            request->sunk += *upload_size;
        else if (request->body != NULL && *upload_size <= request->body->cap - request->len) {
            memcpy(request->body->bytes + request->len, upload, *upload_size);
            request->len += *upload_size;
        }
        *upload_size = 0;
        return MHD_YES;
    }
    switch (request->route) {
    case ROUTE_JSON: return answer_json(connection, request);
    case ROUTE_BINARY: return answer_binary(connection, request);
    case ROUTE_SINK: return refuse(connection, 200, "none");
    default: return refuse(connection, 404, "no such route");
    }
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode how) {
    struct request *request = *state;
    (void)cls, (void)connection, (void)how;
    if (request == NULL) return;
    give_buffer(request->body);
    free(request);
    *state = NULL;
}

/* --- loops
 * --------------------------------------------------------------------------------------------- */

static struct MHD_Daemon *start_daemon(unsigned short *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*port)};
    const union MHD_DaemonInfo *info;
    struct MHD_Daemon *daemon;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    daemon = MHD_start_daemon(
        MHD_USE_EPOLL, *port, NULL, NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR, &address,
        MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32768, MHD_OPTION_CONNECTION_LIMIT, 8192u,
        MHD_OPTION_LISTEN_BACKLOG_SIZE, 2048u, MHD_OPTION_END);
    if (daemon == NULL) return NULL;
    info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    if (info != NULL && info->port != 0) *port = info->port;
    return daemon;
}

static void *run_loop(void *arg) {
    struct MHD_Daemon *daemon = arg;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd wait = {.fd = info == NULL ? -1 : info->epoll_fd, .events = POLLIN};
    while (!atomic_load(&stopping)) {
        MHD_UNSIGNED_LONG_LONG left;
        int timeout = 200;
        if (MHD_get_timeout(daemon, &left) == MHD_YES && left < 200) timeout = (int)left;
        if (poll(&wait, 1, timeout) < 0 && errno != EINTR) break;
        MHD_run(daemon);
    }
    MHD_stop_daemon(daemon);
    return NULL;
}

static int option(int argc, char **argv, const char *name, int otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return (int)strtol(argv[i + 1], NULL, 10);
    return otherwise;
}

int main(int argc, char **argv) {
    int loops = option(argc, argv, "--loops", 2), blas = option(argc, argv, "--blas-threads", 1),
        got;
    struct MHD_Daemon *daemons[LOOPS_MOST];
    pthread_t threads[LOOPS_MOST];
    unsigned short port = 0;
    struct rlimit files;
    sigset_t signals;
    if (loops < 1 || loops > LOOPS_MOST || blas < 1) return 2;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    openblas_set_num_threads(blas);
    for (int i = 0; i < loops; i++) {
        daemons[i] = start_daemon(&port);
        if (daemons[i] == NULL) {
            fprintf(stderr, "peer_mhd: cannot listen\n");
            return 1;
        }
    }
    for (int i = 0; i < loops; i++)
        if (pthread_create(&threads[i], NULL, run_loop, daemons[i]) != 0) return 1;
    printf("ready http://127.0.0.1:%d\n", port);
    fflush(stdout);
    sigwait(&signals, &got);
    atomic_store(&stopping, true);
    for (int i = 0; i < loops; i++) pthread_join(threads[i], NULL);
    return 0;
}
