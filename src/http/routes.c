/* The table of routes, and how a path finds its row. */
#include "http/routes.h"

#include "http/inference.h"
#include "http/jobs.h"
#include "http/tensors.h"

#include <string.h>

#define READ (HTTP_GET | HTTP_HEAD)
#define POST_PARAMS                                                                                \
    (HTTP_PARAM_WAIT | HTTP_PARAM_OP | HTTP_PARAM_PARAMS | HTTP_PARAM_PRIORITY |                   \
     HTTP_PARAM_DEADLINE | HTTP_PARAM_DEVICE | HTTP_PARAM_LABELS | HTTP_PARAM_KEEP |               \
     HTTP_PARAM_RESULTS | HTTP_PARAM_NOTIFY | HTTP_PARAM_DIGEST)

#define GRAPH_PARAMS                                                                               \
    (HTTP_PARAM_WAIT | HTTP_PARAM_PRIORITY | HTTP_PARAM_DEADLINE | HTTP_PARAM_DEVICE |             \
     HTTP_PARAM_DRY_RUN | HTTP_PARAM_LABELS | HTTP_PARAM_NOTIFY)

#define LIST_PARAMS                                                                                \
    (HTTP_PARAM_STATE | HTTP_PARAM_OP | HTTP_PARAM_SINCE | HTTP_PARAM_BEFORE | HTTP_PARAM_LIMIT |  \
     HTTP_PARAM_CURSOR | HTTP_PARAM_LABEL)

/* Who may call what. */
#define WRITES HTTP_ROLE(BLASD_ROLE_USER)
#define READS (WRITES | HTTP_ROLE(BLASD_ROLE_READ))
#define ANY_KEY (READS | HTTP_ROLE(BLASD_ROLE_METRICS))
#define WATCHES HTTP_ROLE(BLASD_ROLE_METRICS) /* what tells of others' work, if only in sums */

static const struct http_body_handlers jobs = {
    .admit = http_jobs_post_admit, .gone = http_jobs_post_gone, .release = http_jobs_post_release};
#define MODEL_ROUTES(path)                                                                         \
    {path, READ, 0, NULL, NULL, http_oip_model, NULL, ANY_KEY},                                    \
        {path "/ready", READ, 0, NULL, NULL, http_oip_model_ready, NULL, ANY_KEY},                 \
        {path "/config", READ, 0, NULL, NULL, http_oip_config, NULL, ANY_KEY},                     \
        {path "/stats", READ, 0, NULL, NULL, http_oip_statistics, NULL, WATCHES}, {                \
        path "/infer", HTTP_POST, 0, http_inference_begin, http_jobs_post_body,                    \
            http_jobs_post_run, &jobs, WRITES                                                      \
    }

const struct http_route http_routes[] = {
    {"/jobs", HTTP_POST, POST_PARAMS | HTTP_PARAM_DRY_RUN, http_jobs_post_begin,
     http_jobs_post_body, http_jobs_post_run, &jobs, WRITES},
    {"/jobs", READ, LIST_PARAMS, NULL, NULL, http_jobs_list, NULL, READS},
    {"/jobs", HTTP_DELETE, LIST_PARAMS, NULL, NULL, http_jobs_cancel, NULL, WRITES},
    {"/jobs/{id}", READ, HTTP_PARAM_WAIT, NULL, NULL, http_jobs_get, NULL, READS},
    {"/jobs/{id}", HTTP_DELETE, HTTP_PARAM_FORGET, NULL, NULL, http_jobs_delete, NULL, WRITES},
    {"/jobs/{id}/result", READ, 0, NULL, NULL, http_jobs_result, NULL, READS},
    {"/jobs/{id}/outputs/{name}", READ, 0, NULL, NULL, http_jobs_output, NULL, READS},
    {"/tensors", HTTP_POST, HTTP_PARAM_LIFE | HTTP_PARAM_SHA256, http_tensors_post_begin,
     http_tensors_post_body, http_tensors_post_run, NULL, WRITES},
    {"/tensors", READ, HTTP_PARAM_LIMIT | HTTP_PARAM_CURSOR, NULL, NULL, http_tensors_list, NULL,
     READS},
    {"/tensors/{id}", READ, 0, NULL, NULL, http_tensors_get, NULL, READS},
    {"/tensors/{id}", HTTP_PATCH, 0, NULL, http_tensors_patch_body, http_tensors_patch, NULL,
     WRITES},
    {"/tensors/{id}", HTTP_DELETE, 0, NULL, NULL, http_tensors_delete, NULL, WRITES},
    {"/graphs", HTTP_POST, GRAPH_PARAMS, http_graphs_post_begin, http_jobs_post_body,
     http_jobs_post_run, &jobs, WRITES},
    {"/graphs", READ, LIST_PARAMS & ~(unsigned)HTTP_PARAM_OP, NULL, NULL, http_graphs_list, NULL,
     READS},
    {"/graphs/{id}", READ, HTTP_PARAM_WAIT, NULL, NULL, http_graphs_get, NULL, READS},
    {"/graphs/{id}", HTTP_DELETE, HTTP_PARAM_FORGET, NULL, NULL, http_graphs_delete, NULL, WRITES},
    {"/ops", READ, 0, NULL, NULL, http_ops_list, NULL, ANY_KEY},
    {"/ops/{name}", READ, 0, NULL, NULL, http_ops_one, NULL, ANY_KEY},
    {"/devices", READ, 0, NULL, NULL, http_devices, NULL, ANY_KEY},
    {"/events", HTTP_GET, HTTP_PARAM_OP | HTTP_PARAM_STATE, NULL, NULL, http_events_get, NULL,
     READS},
    {"/share", READ, 0, NULL, NULL, http_share, NULL, WRITES},
    {"/metrics", READ, 0, NULL, NULL, http_metrics_show, NULL, WATCHES},
    {"/load", READ, HTTP_PARAM_TARGET, NULL, NULL, http_load, NULL, WATCHES},
    {"/health/live", READ, 0, NULL, NULL, http_health_live, NULL, HTTP_OPEN},
    {"/health/ready", READ, 0, NULL, NULL, http_health_ready, NULL, HTTP_OPEN},
    {"/version", READ, 0, NULL, NULL, http_version, NULL, HTTP_OPEN},
    {"/", READ, 0, NULL, NULL, http_console_page, NULL, ANY_KEY | HTTP_SIGN_IN},
    {"/openapi.json", READ, 0, NULL, NULL, http_openapi, NULL, HTTP_OPEN},
    {"/docs", READ, 0, NULL, NULL, http_docs, NULL, HTTP_OPEN},
    {"/docs/style.css", READ, 0, NULL, NULL, http_docs_style, NULL, HTTP_OPEN},
    {"/errors/{code}", READ, 0, NULL, NULL, http_error_page, NULL, HTTP_OPEN},
    {"/v2", READ, 0, NULL, NULL, http_oip_server, NULL, ANY_KEY},
    {"/v2/health/live", READ, 0, NULL, NULL, http_oip_live, NULL, ANY_KEY},
    {"/v2/health/ready", READ, 0, NULL, NULL, http_oip_ready, NULL, ANY_KEY},
    {"/v2/repository/index", HTTP_POST, 0, NULL, NULL, http_oip_repository, NULL, ANY_KEY},
    MODEL_ROUTES("/v2/models/{name}"),
    MODEL_ROUTES("/v2/models/{name}/versions/{version}"),
    /* behind those of one model: the last row that matches is taken */
    {"/v2/models/stats", READ, 0, NULL, NULL, http_oip_statistics, NULL, WATCHES},
    {NULL, 0, 0, NULL, NULL, NULL, NULL, 0},
};

_Static_assert(sizeof http_routes / sizeof *http_routes <= HTTP_MAX_ROUTES,
               "raise HTTP_MAX_ROUTES");

/* Whether `path` is what `pattern` describes; what stands for {…} goes to captures. A segment that
 * is longer than a capture holds names nothing we have: it is captured as empty text. */
static bool matches(const char *pattern, const char *path, char captures[HTTP_CAPTURES][64]) {
    int capture = 0;
    while (*pattern != '\0') {
        if (*pattern == '{') {
            size_t len = strcspn(path, "/");
            if (len == 0 || capture == HTTP_CAPTURES) return false;
            captures[capture][0] = '\0';
            if (len < sizeof captures[capture]) {
                memcpy(captures[capture], path, len);
                captures[capture][len] = '\0';
            }
            capture++;
            path += len;
            pattern = strchr(pattern, '}') + 1;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

const char *http_route_gone(const char *path) {
    static const struct {
        const char *prefix, *instead;
    } gone[] = {{"/usage", "read the stream {QUEUE}:ended (docs/ended.md)"},
                {"/v2/systemsharedmemory/", "use Body-File of POST /jobs (GET /share says how)"},
                {"/v2/cudasharedmemory/", "use Body-File of POST /jobs (GET /share says how)"}};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (strncmp(path, gone[i].prefix, strlen(gone[i].prefix)) == 0) return gone[i].instead;
    return NULL;
}

const struct http_dialect *http_dialect_find(const char *path) {
    const struct http_dialect *dialect = &http_inference_dialect;
    size_t len = strlen(dialect->prefix);
    bool under =
        strncmp(path, dialect->prefix, len) == 0 && (path[len] == '/' || path[len] == '\0');
    return under ? dialect : NULL;
}

const struct http_route *http_route_find(const char *path, enum http_method method,
                                         char captures[HTTP_CAPTURES][64], unsigned *allow) {
    const struct http_route *found = NULL;
    *allow = 0;
    for (const struct http_route *route = http_routes; route->path != NULL; route++) {
        /* most differ in their first letter */
        if (path[0] == '/' && path[1] != route->path[1]) continue;
        if (!matches(route->path, path, captures)) continue;
        *allow |= route->methods;
        if ((route->methods & (unsigned)method) != 0) found = route;
    }
    return found;
}
