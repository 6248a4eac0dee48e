/* The door. Every path is behind it but for /health/live. */
#include "http/authenticate.h"

#include "base/log.h"
#include "http/peer.h"
#include "http/timeouts.h"
#include "http/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The question of a browser before it lets an allowed page of another origin send its request, in
 * which it never shows a key. */
static bool is_preflight(const struct http_exchange *exchange) {
    return exchange->request.method == HTTP_OPTIONS && exchange->client.foreign &&
           exchange->allow != 0;
}

static bool is_open(const struct http_exchange *exchange) {
    return exchange->route != NULL && (exchange->route->roles & HTTP_OPEN) != 0;
}

static const struct sockaddr *address_of(const struct http_exchange *exchange) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info == NULL ? NULL : info->client_addr;
}

/* Whether requests of the route are about jobs or tensors: they cost the queue something. */
static bool counts(const struct http_route *route) {
    return (route->roles & HTTP_ROLE(BLASD_ROLE_USER)) != 0 &&
           (route->roles & HTTP_ROLE(BLASD_ROLE_METRICS)) == 0;
}

static int check_role(const struct http_exchange *exchange, struct blasd_err *err) {
    const struct blasd_identity *caller = &exchange->caller;
    if (exchange->route == NULL || caller->role == BLASD_ROLE_ADMIN ||
        (exchange->route->roles & HTTP_ROLE(caller->role)) != 0)
        return 0;
    char roles[64] = "admin";
    for (int role = 0, len = 5; role < BLASD_ROLE_COUNT; role++)
        if (role != BLASD_ROLE_ADMIN && (exchange->route->roles & HTTP_ROLE(role)) != 0)
            len +=
                snprintf(roles + len, sizeof roles - (size_t)len, " or %s", blasd_role_names[role]);
    return blasd_fail(err, BLASD_E_forbidden, "", "%s requires role %s; key '%s' has role %s",
                      exchange->route->path, roles, caller->name, blasd_role_names[caller->role]);
}

/* Whose certificate the client of this connection has shown; NULL: nobody's. */
static const char *certificate_of(const struct http_exchange *exchange) {
    const struct blasd_tls_files *tls = exchange->home->server->options->tls;
    struct http_connection *connection = exchange->client.connection;
    const int64_t now = blasd_loop_now(exchange->home->loop);
    char name[HTTP_TLS_NAME];
    int64_t seconds;
    if (tls == NULL || tls->client_ca == NULL || connection == NULL) return NULL;
    if (now < connection->certified_ns) return connection->certificate;
    free(connection->certificate);
    connection->certificate =
        http_tls_peer(exchange->connection, name, &seconds) ? strdup(name) : NULL;
    connection->certified_ns = now + seconds * 1000000000;
    return connection->certificate;
}

static int authenticate(struct http_exchange *exchange, struct blasd_err *err) {
    struct blasd_auth *auth = exchange->home->server->options->auth;
    const struct blasd_credentials shown = {.authorization = exchange->request.authorization,
                                            .certificate = certificate_of(exchange),
                                            .from = http_peer_part_of(exchange->connection)};
    int rc = blasd_auth_check(auth, &shown, &exchange->caller, &exchange->answer.retry_s, err);
    if (rc == 0) rc = check_role(exchange, err);
    if (rc == 0 && exchange->route != NULL && counts(exchange->route))
        rc = blasd_auth_take_job(auth, &exchange->caller, &exchange->answer.rate, err);
    return rc;
}

static void log_refused(const struct http_exchange *exchange, const struct blasd_err *err,
                        const char *client) {
    const struct blasd_log_field fields[] = {
        {"code", blasd_err_info(err->code)->name, false},
        {"key", exchange->caller.name[0] == '\0' ? "-" : exchange->caller.name, false},
        {"client", client, false}};
    blasd_log_job_event(BLASD_LOG_INFO, "request refused", fields, sizeof fields / sizeof *fields);
}

int http_authenticate(struct http_exchange *exchange, struct blasd_err *err) {
    char client[HTTP_PEER_TEXT];
    int rc;
    if (exchange->home->server->options->auth == NULL) {
        exchange->caller = blasd_identity_anyone;
        return 0;
    }
    if (is_open(exchange) || is_preflight(exchange)) return 0;
    rc = authenticate(exchange, err);
    /* of a job the one line about its refusal is enough */
    if (rc != 0 && (exchange->route == NULL || exchange->route->jobs == NULL)) {
        http_peer_text(address_of(exchange), client);
        log_refused(exchange, err, client);
    }
    return rc;
}
