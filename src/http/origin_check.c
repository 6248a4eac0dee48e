/* Checking Host and Origin. */
#include "http/origin_check.h"

#include "wire/sanitize.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

void http_origins_init(struct http_origins *allowed, const char *const *hosts,
                       const char *const *origins) {
    *allowed = (struct http_origins){.hosts = hosts, .origins = origins};
    if (gethostname(allowed->own_name, sizeof allowed->own_name - 1) != 0)
        allowed->own_name[0] = '\0';
}

static bool listed(const char *const *list, const char *text) {
    for (; list != NULL && *list != NULL; list++)
        if (strcmp(*list, "*") == 0 || strcasecmp(*list, text) == 0) return true;
    return false;
}

/* Cuts the port, brackets and a final dot off a Host header. False where it is none. */
static bool host_name(const char *host, char *name, size_t size) {
    const char *end, *port;
    size_t len;
    if (host[0] == '[') {
        host++;
        end = strchr(host, ']');
        if (end == NULL) return false;
        port = end + 1;
    } else {
        end = host + strcspn(host, ":");
        port = end;
    }
    if (*port == ':')
        for (port++; isdigit((unsigned char)*port);) port++;
    if (*port != '\0') return false;
    len = (size_t)(end - host);
    if (len > 0 && host[len - 1] == '.') len--;
    if (len == 0 || len >= size) return false;
    memcpy(name, host, len);
    name[len] = '\0';
    return true;
}

static bool is_address(const char *name) {
    unsigned char bytes[16];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

static bool is_localhost(const char *name) {
    static const char local[] = "localhost";
    size_t len = strlen(name), tail = strlen(local);
    if (len < tail || strcasecmp(name + len - tail, local) != 0) return false;
    return len == tail || name[len - tail - 1] == '.';
}

static bool same_origin(const char *origin, const char *host) {
    const char *at = strstr(origin, "://");
    return at != NULL && host != NULL && strcasecmp(at + 3, host) == 0;
}

static bool is(const char *text, const char *word) {
    return text != NULL && strcmp(text, word) == 0;
}

/* Whether a page of another site, or of another one of this machine's names or ports, had a browser
 * send this for itself. */
static bool from_elsewhere(const struct http_request *request) {
    bool reads = (request->method & (HTTP_GET | HTTP_HEAD)) != 0;
    if (!is(request->fetch.site, "cross-site") && !is(request->fetch.site, "same-site"))
        return false;
    return !reads || !is(request->fetch.mode, "navigate") || !is(request->fetch.dest, "document");
}

int http_origin_check(const struct http_origins *allowed, const struct http_request *request,
                      bool *foreign, struct blasd_err *err) {
    const char *host = request->host, *origin = request->origin;
    char name[256], shown[BLASD_SANITIZED_MAX];
    *foreign = false;
    if (host != NULL) {
        if (!host_name(host, name, sizeof name))
            return blasd_fail(err, BLASD_E_forbidden_host, "Host", "the Host header is not valid");
        if (!is_address(name) && !is_localhost(name) && strcasecmp(name, allowed->own_name) != 0 &&
            !listed(allowed->hosts, name))
            return blasd_fail(err, BLASD_E_forbidden_host, "Host",
                              "'%s' is not a name of this service",
                              blasd_sanitize(shown, name, strlen(name)));
    }
    if (origin == NULL || same_origin(origin, host)) {
        if (!from_elsewhere(request) || listed(allowed->origins, "*")) return 0;
        return blasd_fail(err, BLASD_E_forbidden_origin, "Sec-Fetch-Site",
                          "pages of other sites may not call this service");
    }
    if (!listed(allowed->origins, origin))
        return blasd_fail(err, BLASD_E_forbidden_origin, "Origin",
                          "pages of '%s' may not call this service",
                          blasd_sanitize(shown, origin, strlen(origin)));
    *foreign = true;
    return 0;
}
