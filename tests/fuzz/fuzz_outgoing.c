/* Lists of hosts and URLs from hostile texts: "LIST\nURL". What is allowed is listed, whichever way
 * it is read; what was made plain stays as it is, and is to libcurl, too, the place that was
 * looked at. */
#include "outgoing/hosts.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void require(bool holds) {
    if (!holds) abort();
}

static void require_part(CURLU *url, CURLUPart part, const char *is) {
    char *text = NULL;
    require(curl_url_get(url, part, &text, 0) == (is == NULL ? CURLUE_NO_USER : CURLUE_OK));
    require(is == NULL || strcmp(text, is) == 0);
    curl_free(text);
}

/* Where libcurl goes with it is where the list's entry says. */
static void check_plain(const struct outgoing_host *host, const char *plain) {
    CURLU *url = curl_url();
    char *name = NULL, port[8];
    size_t len, tail = strlen(host->name);
    require(url != NULL && curl_url_set(url, CURLUPART_URL, plain, 0) == CURLUE_OK);
    snprintf(port, sizeof port, "%u", host->port);
    require_part(url, CURLUPART_SCHEME, host->http ? "http" : "https");
    require_part(url, CURLUPART_PORT, port);
    require_part(url, CURLUPART_USER, NULL);
    require(curl_url_get(url, CURLUPART_HOST, &name, 0) == CURLUE_OK);
    len = strlen(name);
    if (name[0] == '[')
        require(host->literal && len == tail + 2 && memcmp(name + 1, host->name, tail) == 0);
    else if (host->below)
        require(len > tail && strcmp(name + len - tail, host->name) == 0);
    else
        require(strcmp(name, host->name) == 0);
    curl_free(name);
    curl_url_cleanup(url);
    for (const char *p = plain; *p != '\0'; p++) require(*p > ' ' && *p <= '~' && *p != '#');
}

static void try_url(const struct blasd_outgoing *outgoing, const char *url, size_t len) {
    char plain[BLASD_OUTGOING_URL], again[BLASD_OUTGOING_URL];
    const struct outgoing_host *host, *same;
    struct blasd_err err = {0};
    int code = outgoing_find(outgoing, url, len, "notify", plain, &host, &err);
    require(code == -(int)err.code);
    if (code != 0) {
        require(err.code == BLASD_E_invalid_field || err.code == BLASD_E_url_not_allowed);
        require(outgoing_find(NULL, url, len, "notify", plain, &host, &err) != 0);
        return;
    }
    check_plain(host, plain);
    if (strlen(plain) + 4 >= sizeof plain) return;
    require(outgoing_find(outgoing, plain, strlen(plain), "notify", again, &same, &err) == 0);
    require(same == host && strcmp(plain, again) == 0);
}

/* The bytes as an address: a name that leads there is refused by more than one way of writing it.
 */
static void try_address(const struct blasd_outgoing *outgoing, const uint8_t *bytes, size_t len) {
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    if (len < 4) return;
    memcpy(&in.sin_addr, bytes, 4);
    memcpy(in6.sin6_addr.s6_addr + 12, bytes, 4);
    memset(in6.sin6_addr.s6_addr + 10, 0xff, 2);
    require(outgoing_reach_of((const struct sockaddr *)&in) ==
            outgoing_reach_of((const struct sockaddr *)&in6));
    for (int i = 0; i < outgoing->count; i++) {
        const struct outgoing_host *host = &outgoing->hosts[i];
        enum outgoing_reach reach = outgoing_reach_of((const struct sockaddr *)&in);
        if (!outgoing_may_connect(host, (const struct sockaddr *)&in)) continue;
        require(host->literal || reach == OUTGOING_PUBLIC ||
                (host->private && reach == OUTGOING_PRIVATE));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    char *text = malloc(len + 1), *url;
    struct blasd_outgoing *outgoing;
    struct blasd_err err = {0};
    if (text == NULL) return 0;
    if (len > 0) memcpy(text, bytes, len);
    text[len] = '\0';
    url = strchr(text, '\n');
    if (url != NULL) *url++ = '\0';
    if (blasd_outgoing_new(text, NULL, &outgoing, &err) == 0) {
        if (url != NULL) try_url(outgoing, url, len - (size_t)(url - text));
        if (url != NULL) try_address(outgoing, (const uint8_t *)url, len - (size_t)(url - text));
        blasd_outgoing_free(outgoing);
    }
    free(text);
    return 0;
}
