/* One request by libcurl, with an end. Knows nothing of keys. */
#include "auth/key_url.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_MS 5000L
#define ALL_MS 10000L
#define REDIRECTS 5L

void auth_url_init(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
    return blasd_buf_add(arg, bytes, size * count) == 0 ? size * count : 0;
}

/* Whoever is asked over TLS sends one on over TLS. */
static CURLcode set_protocols(CURL *curl, const char *url) {
    bool plain = strncmp(url, "http:", 5) == 0;
#if LIBCURL_VERSION_NUM >= 0x075500
    const char *of = plain ? "http,https" : "https";
    CURLcode bad = curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, of);
    return bad != CURLE_OK ? bad : curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, of);
#else
    long of = CURLPROTO_HTTPS | (plain ? CURLPROTO_HTTP : 0);
    CURLcode bad = curl_easy_setopt(curl, CURLOPT_PROTOCOLS, of);
    return bad != CURLE_OK ? bad : curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, of);
#endif
}

int auth_url_read(const char *url, struct blasd_buf *text, char why[AUTH_URL_WHY]) {
    CURL *curl = curl_easy_init();
    CURLcode bad = curl == NULL ? CURLE_OUT_OF_MEMORY : set_protocols(curl, url);
#define SET(option, value) bad = bad != CURLE_OK ? bad : curl_easy_setopt(curl, option, value)
    SET(CURLOPT_URL, url);
    SET(CURLOPT_FOLLOWLOCATION, 1L);
    SET(CURLOPT_MAXREDIRS, REDIRECTS);
    SET(CURLOPT_FAILONERROR, 1L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_USERAGENT, "blasd");
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    SET(CURLOPT_TIMEOUT_MS, ALL_MS);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, (void *)text);
#undef SET
    if (bad == CURLE_OK) bad = curl_easy_perform(curl);
    if (curl != NULL) curl_easy_cleanup(curl);
    if (bad == CURLE_OK && blasd_buf_add(text, "", 1) != 0) bad = CURLE_OUT_OF_MEMORY;
    if (bad == CURLE_OK) return 0;
    snprintf(why, AUTH_URL_WHY, "%s", curl_easy_strerror(bad));
    return -1;
}
