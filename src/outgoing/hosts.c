/* The list is read once; a URL is taken apart by libcurl, as it will be when it is asked for, so
 * that the two never differ in what its host is. */
#include "outgoing/hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PRIVATE_MARK "+private"
#define BETWEEN ", \t\r\n"
#define LABEL_MOST 63
#define TOO_LONG "it is longer than 2047 characters"

/* --- names --- */

static bool is_literal(const char *name) {
    uint8_t bytes[16];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

/* Whether the last label is a number in any way of writing one: a resolver takes the name for an
 * address then. */
static bool ends_in_number(const char *name) {
    const char *dot = strrchr(name, '.'), *last = dot == NULL ? name : dot + 1;
    if (last[0] == '0' && last[1] == 'x') return true;
    return last[strspn(last, "0123456789")] == '\0';
}

/* Letters, digits, - and _ in labels with dots between, or a literal; in lower case. */
static bool is_name(const char *name) {
    size_t label = 0;
    if (is_literal(name)) return true;
    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '.' ? label == 0
                       : !(islower((unsigned char)*at) || isdigit((unsigned char)*at) ||
                           *at == '-' || *at == '_'))
            return false;
        label = *at == '.' ? 0 : label + 1;
        if (label > LABEL_MOST) return false;
    }
    return label > 0 && strlen(name) < OUTGOING_NAME - 2 && !ends_in_number(name);
}

/* In lower case; of an address the one way of writing it. */
static void make_plain(char *name) {
    char text[INET6_ADDRSTRLEN];
    uint8_t bytes[16];
    for (char *at = name; *at != '\0'; at++) *at = (char)tolower((unsigned char)*at);
    if (inet_pton(AF_INET6, name, bytes) == 1 &&
        inet_ntop(AF_INET6, bytes, text, sizeof text) != NULL && strlen(text) <= strlen(name))
        memcpy(name, text, strlen(text) + 1);
}

/* --- the list --- */

/* Cuts ":PORT" off the host; false where it is none. A host in brackets loses them. */
static bool cut_port(char *text, unsigned *port) {
    char *end = text[0] == '[' ? strchr(text, ']') : NULL, *colon, *stop;
    unsigned long number;
    if (text[0] == '[' && end == NULL) return false;
    colon = strchr(end == NULL ? text : end, ':');
    if (end != NULL && end[1] != '\0' && colon != end + 1) return false;
    if (colon != NULL) {
        if (!isdigit((unsigned char)colon[1])) return false;
        number = strtoul(colon + 1, &stop, 10);
        if (*stop != '\0' || number < 1 || number > 65535) return false;
        *port = (unsigned)number;
        *colon = '\0';
    }
    if (end == NULL) return true;
    *end = '\0';
    memmove(text, text + 1, strlen(text));
    return strchr(text, ':') != NULL;
}

static bool read_host(char *text, struct outgoing_host *host) {
    size_t len = strlen(text), mark = strlen(PRIVATE_MARK);
    char *name = text;
    make_plain(text);
    host->private = len > mark && strcmp(text + len - mark, PRIVATE_MARK) == 0;
    if (host->private) text[len - mark] = '\0';
    host->http = strncmp(text, "http://", 7) == 0;
    if (host->http)
        name += 7;
    else if (strncmp(text, "https://", 8) == 0)
        name += 8;
    host->port = host->http ? 80 : 443;
    host->below = strncmp(name, "*.", 2) == 0;
    if (host->below) name += 2;
    if (!cut_port(name, &host->port) || !is_name(name)) return false;
    make_plain(name);
    host->literal = is_literal(name);
    snprintf(host->name, sizeof host->name, "%s%.*s", host->below ? "." : "", OUTGOING_NAME - 2,
             name);
    return !(host->literal && host->below);
}

static int add_host(struct blasd_outgoing *outgoing, const char *from, size_t len,
                    struct blasd_err *err) {
    struct outgoing_host *more =
        realloc(outgoing->hosts, (size_t)(outgoing->count + 1) * sizeof *more);
    char text[OUTGOING_NAME + 32];
    if (more == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the hosts");
    outgoing->hosts = more;
    snprintf(text, sizeof text, "%.*s", (int)len, from);
    if (len >= sizeof text || !read_host(text, &more[outgoing->count]))
        return blasd_fail(err, BLASD_E_invalid_field, "outgoing-hosts",
                          "'%.*s' is not a host such as hooks.example.com, *.example.com:8443, "
                          "http://minio.internal:9000+private or 192.0.2.7",
                          len < 80 ? (int)len : 80, from);
    outgoing->count++;
    return 0;
}

int blasd_outgoing_new(const char *hosts, const char *ca, struct blasd_outgoing **ret,
                       struct blasd_err *err) {
    struct blasd_outgoing *outgoing = calloc(1, sizeof *outgoing);
    int code = 0;
    *ret = NULL;
    if (outgoing != NULL && ca != NULL) outgoing->ca = strdup(ca);
    if (outgoing == NULL || (ca != NULL && outgoing->ca == NULL))
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the hosts");
    for (const char *at = hosts; code == 0 && *(at += strspn(at, BETWEEN)) != '\0';) {
        size_t len = strcspn(at, BETWEEN);
        code = add_host(outgoing, at, len, err);
        at += len;
    }
    if (code == 0)
        *ret = outgoing;
    else
        blasd_outgoing_free(outgoing);
    return code;
}

void blasd_outgoing_free(struct blasd_outgoing *outgoing) {
    if (outgoing == NULL) return;
    free(outgoing->hosts);
    free(outgoing->ca);
    free(outgoing);
}

bool outgoing_may_connect(const struct outgoing_host *host, const struct sockaddr *address) {
    enum outgoing_reach reach = outgoing_reach_of(address);
    if (host->literal) return outgoing_is_address(address, host->name);
    return reach == OUTGOING_PUBLIC || (reach == OUTGOING_PRIVATE && host->private);
}

/* --- URLs --- */

/* Where a URL leads to. */
struct place {
    char name[OUTGOING_NAME];
    unsigned port;
    bool http;
};

static int bad(struct blasd_err *err, const char *field, const char *why) {
    return blasd_fail(err, BLASD_E_invalid_field, field, "%s is not a usable URL: %s", field, why);
}

/* One part of a URL, or NULL where it has none. To be freed with curl_free. */
static char *part_of(CURLU *url, CURLUPart part) {
    char *text = NULL;
    return curl_url_get(url, part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) ==
                   CURLUE_OK
               ? text
               : NULL;
}

static bool has_part(CURLU *url, CURLUPart part) {
    char *text = part_of(url, part);
    curl_free(text);
    return text != NULL;
}

static bool take_part(CURLU *url, CURLUPart part, char *to, size_t size) {
    char *text = part_of(url, part);
    int len = text == NULL ? -1 : snprintf(to, size, "%s", text);
    curl_free(text);
    return len > 0 && (size_t)len < size;
}

static const char *read_place(CURLU *url, struct place *place) {
    char host[OUTGOING_NAME + 2], port[8];
    size_t len;
    if (has_part(url, CURLUPART_USER) || has_part(url, CURLUPART_PASSWORD))
        return "it has a user or a password";
    if (has_part(url, CURLUPART_ZONEID)) return "its address has a zone";
    if (!take_part(url, CURLUPART_HOST, host, sizeof host) ||
        !take_part(url, CURLUPART_PORT, port, sizeof port))
        return "its host or port is invalid";
    len = strlen(host);
    if (host[0] == '[') {
        host[len - 1] = '\0';
        memmove(host, host + 1, len - 1);
    }
    make_plain(host);
    if (!is_name(host))
        return "its host is not a name as DNS has them (xn--… for others), or an address";
    place->port = (unsigned)strtoul(port, NULL, 10);
    snprintf(place->name, sizeof place->name, "%.*s", OUTGOING_NAME - 1, host);
    return place->port == 0 ? "its port is invalid" : NULL;
}

/* NULL, or what is wrong with it. */
static const char *read_url(const char *text, size_t len, char copy[BLASD_OUTGOING_URL],
                            struct place *place) {
    CURLU *url;
    const char *why;
    size_t head;
    if (len >= BLASD_OUTGOING_URL) return TOO_LONG;
    memcpy(copy, text, len);
    copy[len] = '\0';
    place->http = strncasecmp(copy, "http://", 7) == 0;
    if (!place->http && strncasecmp(copy, "https://", 8) != 0)
        return "it has to begin with https://";
    head = place->http ? 7 : 8;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '\\' || (i == head && text[i] == '/'))
            return "it has to be printable ASCII without \\, and with a host behind //";
    url = curl_url();
    if (url == NULL) return "out of memory";
    why = curl_url_set(url, CURLUPART_URL, copy, 0) == CURLUE_OK ? read_place(url, place)
                                                                 : "it cannot be read";
    curl_url_cleanup(url);
    return why;
}

static bool is_listed(const struct outgoing_host *host, const struct place *place) {
    size_t len = strlen(place->name), tail = strlen(host->name);
    if (host->http != place->http || host->port != place->port) return false;
    if (!host->below) return strcmp(host->name, place->name) == 0;
    return len > tail && strcmp(place->name + len - tail, host->name) == 0;
}

int outgoing_find(const struct blasd_outgoing *outgoing, const char *url, size_t len,
                  const char *field, char plain[BLASD_OUTGOING_URL],
                  const struct outgoing_host **ret, struct blasd_err *err) {
    struct place place;
    char copy[BLASD_OUTGOING_URL];
    const char *rest, *open = "", *close = "", *why = read_url(url, len, copy, &place);
    int host, all;
    *ret = NULL;
    if (why != NULL) return bad(err, field, why);
    if (strchr(place.name, ':') != NULL) open = "[", close = "]";
    rest = copy + (place.http ? 7 : 8);
    rest += strcspn(rest, "/?#");
    host = snprintf(plain, BLASD_OUTGOING_URL, "%s://%s%s%s:%u", place.http ? "http" : "https",
                    open, place.name, close, place.port);
    for (int i = 0; outgoing != NULL && i < outgoing->count && *ret == NULL; i++)
        if (is_listed(&outgoing->hosts[i], &place)) *ret = &outgoing->hosts[i];
    if (*ret == NULL)
        return blasd_fail(err, BLASD_E_url_not_allowed, field, "%.200s is not on the list", plain);
    all = host + snprintf(plain + host, BLASD_OUTGOING_URL - (size_t)host, "%.*s",
                          (int)strcspn(rest, "#"), rest);
    return all < BLASD_OUTGOING_URL ? 0 : bad(err, field, TOO_LONG);
}

int blasd_outgoing_check(const struct blasd_outgoing *outgoing, const char *url, size_t len,
                         const char *field, char plain[BLASD_OUTGOING_URL], struct blasd_err *err) {
    const struct outgoing_host *host;
    return outgoing_find(outgoing, url, len, field, plain, &host, err);
}
